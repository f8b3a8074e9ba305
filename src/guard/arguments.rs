//! Long string values in the arguments of calls, and what goes of them.
//!
//! Arguments are JSON inside of a JSON string, so every place of the inner text is mapped to its
//! place in the body. What is cut lies between characters of both, so the arguments stay valid, and all
//! but the shortened values stays byte for byte. Arguments that are not JSON, or that have half a surrogate
//! pair, are left alone.

use serde::de::IgnoredAny;

use super::{
    place,
    truncate::{self, Marker},
};
use crate::json::{
    scan::{Malformed, Scan, Span, Text},
    text::{self, Sizes, Walk},
};

/// Levels of nesting; serde_json follows no more.
const MAX_DEPTH: usize = 128;

/// What stays of a value that is too long, in characters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keep {
    /// Of one over `most`: its first `head`. The marker after them is within the difference.
    Head { most: usize, head: usize },
    /// Of one over this: its beginning and end around the marker of truncated results, within it.
    Ends(usize),
}

impl Keep {
    const fn most(self) -> usize {
        match self {
            Self::Head { most, .. } | Self::Ends(most) => most,
        }
    }

    /// What of a value of so many characters goes, and what takes its place, as inner JSON spells it.
    fn cut(self, chars: usize) -> (std::ops::Range<usize>, String) {
        match self {
            Self::Head { head, .. } => {
                let marker = format!("... [{} characters left out]", chars - head);
                (head..chars, marker)
            }
            Self::Ends(most) => {
                let room = most.saturating_sub(Marker::Plain.chars());
                let gone = room / 2..chars - (room - room / 2);
                let marker = Marker::Plain.text(gone.len());
                (gone, marker)
            }
        }
    }
}

/// The arguments of one call, read.
pub(super) struct Arguments {
    /// The decoded text, and where each of its bytes is spelled; one place more for its end.
    inner: Vec<u8>,
    places: Vec<u32>,
    /// The strings that are values, at any depth, and their characters; without a decoded form, none.
    values: Vec<(Span, usize)>,
    /// A text that is no JSON: one value, spelled once.
    plain: bool,
}

impl Arguments {
    /// Reads arguments as they are spelled in the body; `None` where nothing of them can be edited.
    pub(super) fn read(raw: &[u8]) -> Option<Self> {
        if !place::sound(raw) {
            return None;
        }
        let (inner, places) = decoded(raw);
        serde_json::from_slice::<IgnoredAny>(&inner).ok()?;
        let mut found = Vec::new();
        walk(&mut Scan::new(&inner, 0), MAX_DEPTH, &mut found).ok()?;
        let values = found
            .into_iter()
            .filter_map(|value| Some((value.span, length(&inner[value.span.range()])?)))
            .collect();
        Some(Self {
            inner,
            places,
            values,
            plain: false,
        })
    }

    /// The same, where a text that was never meant to be JSON, such as a patch, is one value.
    pub(super) fn read_any(raw: &[u8]) -> Option<Self> {
        Self::read(raw).or_else(|| {
            let first = raw.iter().find(|it| !it.is_ascii_whitespace())?;
            // A broken object keeps what is left of its form; a quote is escaped here.
            let text = !matches!(first, b'{' | b'[' | b'\\') && place::sound(raw);
            text.then(|| Self {
                inner: raw.to_vec(),
                places: (0..=raw.len() as u32).collect(),
                values: vec![(Span::new(0, raw.len()), Walk::new(raw).count())],
                plain: true,
            })
        })
    }

    /// Characters of each value.
    pub(super) fn values(&self) -> impl Iterator<Item = usize> {
        self.values.iter().map(|(_, chars)| *chars)
    }

    /// What is cut, as places of the arguments' spelling in the body, and what goes there.
    pub(super) fn cuts(&self, keep: Keep) -> Vec<(Span, String)> {
        let long = self.values.iter().filter(|(_, chars)| *chars > keep.most());
        let cuts = long.map(|(value, chars)| {
            let (gone, marker) = keep.cut(*chars);
            let text = &self.inner[value.range()];
            let start = value.start as usize;
            let from = self.places[start + truncate::offset(text, gone.start)];
            let to = self.places[start + truncate::offset(text, gone.end)];
            let span = Span::new(from as usize, to as usize);
            (
                span,
                if self.plain {
                    marker
                } else {
                    text::escape(&marker)
                },
            )
        });
        cuts.collect()
    }
}

/// The decoded text, and where each of its bytes is spelled; one place more for its end.
fn decoded(raw: &[u8]) -> (Vec<u8>, Vec<u32>) {
    let mut inner = Vec::with_capacity(raw.len());
    let mut places = Vec::with_capacity(raw.len() + 1);
    for character in Walk::new(raw) {
        let letter = char::from_u32(character.code).unwrap_or(char::REPLACEMENT_CHARACTER);
        let mut bytes = [0; 4];
        let bytes = letter.encode_utf8(&mut bytes).as_bytes();
        inner.extend_from_slice(bytes);
        places.extend(bytes.iter().map(|_| character.at as u32));
    }
    places.push(raw.len() as u32);
    (inner, places)
}

/// Gathers the strings that are values, at any depth.
fn walk(scan: &mut Scan<'_>, depth: usize, values: &mut Vec<Text>) -> Result<(), Malformed> {
    let Some(deeper) = depth.checked_sub(1) else {
        return Err(Malformed::TooDeep);
    };
    match scan.peek() {
        Some(b'"') => values.push(scan.string()?),
        Some(b'{') => {
            scan.object(|scan, _| walk(scan, deeper, values))?;
        }
        Some(b'[') => {
            scan.array(|scan| walk(scan, deeper, values))?;
        }
        _ => {
            scan.value()?;
        }
    }
    Ok(())
}

/// Characters of a text; `None` where it has no decoded form.
fn length(text: &[u8]) -> Option<usize> {
    let mut walk = Walk::new(text);
    let chars = walk.by_ref().count();
    walk.sound().then_some(chars)
}

/// The sizes of a text of which something went.
pub(super) fn less(sizes: Sizes, gone: Sizes) -> Sizes {
    Sizes {
        latin: sizes.latin.saturating_sub(gone.latin),
        han: sizes.han.saturating_sub(gone.han),
        kana: sizes.kana.saturating_sub(gone.kana),
        hangul: sizes.hangul.saturating_sub(gone.hangul),
        emoji: sizes.emoji.saturating_sub(gone.emoji),
        other: sizes.other.saturating_sub(gone.other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The arguments as they are sent, and those that were not cut as they came.
    fn cut(spelled: &str, most: usize) -> (usize, String) {
        let read = Arguments::read_any(spelled.as_bytes());
        let mut cuts = read.map_or_else(Vec::new, |it| it.cuts(Keep::Ends(most)));
        let count = cuts.len();
        let mut out = spelled.to_owned();
        cuts.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
        for (span, marker) in cuts {
            out.replace_range(span.range(), &marker);
        }
        (count, out)
    }

    #[test]
    fn a_patch_that_is_no_json_keeps_its_beginning_and_end() {
        let patch = format!(
            "*** Begin Patch\n{}*** End Patch",
            "+ \"line\"\n".repeat(90)
        );
        let (count, out) = cut(&text::escape(&patch), 200);
        let out = text::decode(out.as_bytes()).unwrap();
        assert_eq!(count, 1);
        assert!(
            out.starts_with("*** Begin Patch\n+") && out.ends_with("*** End Patch"),
            "{out}"
        );
        assert!(out.contains("characters truncated] ...\n") && out.chars().count() <= 200);
        // A broken object and half a pair are left alone.
        for broken in [format!("{{\"a\":\"{}", "x".repeat(400)), "[".repeat(900)] {
            assert_eq!(cut(&text::escape(&broken), 80).0, 0);
        }
        assert_eq!(cut(&format!("{}\\ud800", "x".repeat(400)), 80).0, 0);
    }

    proptest! {
        #[test]
        fn long_values_come_within_the_limit_and_all_else_stays(
            values in prop::collection::vec(r#"[a"\\/\n\u{1}\u{4e2d}\u{1f600}]{0,300}"#, 1..5),
            most in 80usize..250,
        ) {
            let before = serde_json::json!({"path": values[0], "edits": [1.5, {"new": values}, null]});
            let (count, out) = cut(&text::escape(&before.to_string()), most);
            let long = |text: &String| text.chars().count() > most;
            prop_assert_eq!(count, values.iter().filter(|it| long(it)).count() + usize::from(long(&values[0])));
            let out = text::decode(out.as_bytes()).unwrap();
            let after: Value = serde_json::from_str(&out).unwrap();
            for (was, now) in values.iter().zip(after["edits"][1]["new"].as_array().unwrap()) {
                let now = now.as_str().unwrap();
                prop_assert!(now.chars().count() <= most && (long(was) || now == was));
            }
            let again = cut(&text::escape(&out), most);
            prop_assert_eq!(again.0, 0);
        }
    }
}
