//! The values in the arguments of a call: which of them are too long, and what is removed of those.

use std::ops::Range;

use crate::{
    guard::text::truncate::TruncationMarker,
    json::{
        scan::{JsonScanner, MalformedJson, Span},
        text::count_chars,
    },
};

/// Levels of nesting that are read. serde_json does not read more either.
const MAX_DEPTH: usize = 128;
/// An array of up to this many items keeps all of them. A longer one keeps as many characters as this many values may have.
pub(super) const MAX_ITEMS: usize = 16;
/// The longest marker of removed items; characters.
const ITEMS_MARKER_CHARS: usize = 48;

/// What stays of a long value; characters.
#[derive(Clone, Copy, Debug)]
pub(in crate::guard) enum Keep {
    /// A string of more than `most` characters keeps its first `head`. The marker behind them fits into the difference.
    Head { most: usize, head: usize },
    /// A string over this limit keeps its beginning and end around the marker of truncated results, within the
    /// limit. An array of many items keeps the first and the last.
    Ends(usize),
}

impl Keep {
    pub(super) const fn max_chars(self) -> usize {
        match self {
            Self::Head { most, .. } | Self::Ends(most) => most,
        }
    }

    /// The characters to remove from a string of `chars` characters, and their marker as inner JSON spells it.
    pub(super) fn plan_cut(self, chars: usize) -> (Range<usize>, String) {
        match self {
            Self::Head { head, .. } => {
                let marker = format!("... [{} characters left out]", chars - head);
                (head..chars, marker)
            }
            Self::Ends(most) => {
                let room = most.saturating_sub(TruncationMarker::Plain.max_chars());
                let removed = room / 2..chars - (room - room / 2);
                let marker = TruncationMarker::Plain.format_marker(removed.len(), None);
                (removed, marker)
            }
        }
    }
}

pub(super) enum ArgumentValue {
    /// Its text and characters.
    String(Span, usize),
    /// The characters of its keys, and its values.
    Object(usize, Vec<ArgumentValue>),
    Array(Vec<(Span, ArgumentValue)>),
    /// A number, `true`, `false`, `null` or a string that cannot be decoded, with its bytes. Never cut.
    Other(usize),
}

pub(super) enum LongValue {
    /// A string and its characters.
    String(Span, usize),
    /// A run of array items and their number.
    Items(Span, usize),
}

impl ArgumentValue {
    /// Reads the JSON `inner`.
    pub(super) fn parse(inner: &[u8]) -> Result<Self, MalformedJson> {
        Self::parse_next(&mut JsonScanner::new(inner, 0), inner, MAX_DEPTH)
    }

    fn parse_next(
        scan: &mut JsonScanner<'_>,
        inner: &[u8],
        depth: usize,
    ) -> Result<Self, MalformedJson> {
        let deeper = depth.checked_sub(1).ok_or(MalformedJson::TooDeep)?;
        Ok(match scan.peek() {
            Some(b'"') => {
                let span = scan.take_string()?.span;
                match count_chars(&inner[span.range()]) {
                    Some(chars) => Self::String(span, chars),
                    None => Self::Other(span.len()),
                }
            }
            Some(b'{') => {
                let (mut keys, mut values) = (0, Vec::new());
                scan.walk_object(|scan, key| {
                    keys += key.span.len();
                    values.push(Self::parse_next(scan, inner, deeper)?);
                    Ok::<_, MalformedJson>(())
                })?;
                Self::Object(keys, values)
            }
            Some(b'[') => {
                let mut items = Vec::new();
                scan.walk_array(|scan| {
                    scan.peek();
                    let start = scan.position();
                    let item = Self::parse_next(scan, inner, deeper)?;
                    items.push((Span::new(start, scan.position()), item));
                    Ok::<_, MalformedJson>(())
                })?;
                Self::Array(items)
            }
            _ => Self::Other(scan.take_value()?.0.len()),
        })
    }

    /// Lists the long values, first to last. Returns the characters that stay.
    pub(super) fn collect_cuts(&self, keep: Keep, cuts: &mut Vec<LongValue>) -> usize {
        match self {
            Self::String(text, chars) if *chars > keep.max_chars() => {
                cuts.push(LongValue::String(*text, *chars));
                keep.max_chars()
            }
            Self::String(_, chars) | Self::Other(chars) => *chars,
            Self::Object(keys, values) => {
                let values = values.iter().map(|value| value.collect_cuts(keep, cuts));
                keys + values.sum::<usize>()
            }
            Self::Array(items) => cut_items(items, keep, cuts),
        }
    }
}

/// Cuts the items of an array. If the array is still too long, one cut more removes the items in its middle.
fn cut_items(items: &[(Span, ArgumentValue)], keep: Keep, cuts: &mut Vec<LongValue>) -> usize {
    let (mut first_cuts, mut chars) = (Vec::new(), Vec::new());
    for (_, item) in items {
        first_cuts.push(cuts.len());
        chars.push(item.collect_cuts(keep, cuts));
    }
    let total: usize = chars.iter().sum();
    let most = match keep {
        Keep::Ends(most) => most.saturating_mul(MAX_ITEMS),
        Keep::Head { .. } => return total,
    };
    if items.len() <= MAX_ITEMS || total <= most {
        return total;
    }
    let half = most.saturating_sub(ITEMS_MARKER_CHARS) / 2;
    let first = count_fitting(chars.iter(), half);
    let end = items.len() - count_fitting(chars.iter().rev(), half);
    let removed = Span {
        start: items[first].0.start,
        end: items[end - 1].0.end,
    };
    let inside = first_cuts[first]..first_cuts.get(end).copied().unwrap_or(cuts.len());
    cuts.splice(inside, [LongValue::Items(removed, end - first)]);
    total - chars[first..end].iter().sum::<usize>() + ITEMS_MARKER_CHARS
}

/// How many of the first sizes fit into `room` together.
fn count_fitting<'s>(sizes: impl Iterator<Item = &'s usize>, room: usize) -> usize {
    let sums = sizes.scan(0usize, |sum, size| {
        *sum += size;
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= room).count()
}
