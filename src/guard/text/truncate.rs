//! Truncates tool results: a result over its limit keeps its head and its tail.
//!
//! The cut depends on the message's bytes and the settings alone, so it is the same in every request. Cuts lie
//! between characters, never inside an escape, and at the end of a line where one is near. A text with half a
//! surrogate pair is not edited, and a part with a cache breakpoint is not removed. A cut result is within its
//! limit, marker included, so that a second pass changes nothing.
//!
//! The text of an answer with calls is cut in the same way, but no part of it vanishes: reasoning without what
//! followed it is refused.

mod marker;
pub(in crate::guard) mod text_cut;

use std::ops::Range;

pub(in crate::guard) use self::marker::MARKER_BYTES;
pub use self::{marker::TruncationMarker, text_cut::shorten_to_tokens};
use crate::{
    conversation::{Author, BlockKind, Content, Conversation, Item, edit::Edits},
    guard::request::recall_id::RecallId,
    json::{
        scan::{JsonString, Span},
        text::{self, Character, TextSizes, TextWalk},
    },
};

/// How much of a result may stay; characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncationLimit {
    /// The longest result that is not cut, and the longest that a cut result may be.
    pub chars: usize,
    /// What a cut result keeps at each end, as far as it fits.
    pub head: usize,
    pub tail: usize,
}

impl TruncationLimit {
    /// Half of `chars` stays at each end of a cut result.
    pub(in crate::guard) const fn with_halves(chars: usize) -> Self {
        Self {
            chars,
            head: chars / 2,
            tail: chars / 2,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct ResultCut {
    /// Characters before and after, marker included.
    pub before: usize,
    pub after: usize,
    /// The sizes of the text that is left.
    pub sizes: TextSizes,
    pub edits: Edits,
}

/// How far a cut moves at most to reach the end of a line; characters.
const NEAR_CHARS: usize = 200;

/// What is left of a text that is cut whole, but cannot vanish: some providers refuse a part with an empty text.
const ELLIPSIS: &str = "...";

/// Cuts a tool result down to its limit; `None` where it is within the limit or cannot be cut. The marker names the
/// `id`.
pub fn cut_result(
    conversation: &Conversation,
    message: &Item,
    limit: TruncationLimit,
    marker: TruncationMarker,
    id: Option<RecallId>,
) -> Option<ResultCut> {
    let mut texts = collect_texts(conversation, message);
    // The texts of an answer that are as short as what a cut leaves of them stay as they are.
    let mut kept = TextSizes::default();
    if message.author == Author::Model && texts.len() > 1 {
        texts.retain(|piece| {
            let is_long = piece.text.span.len() > ELLIPSIS.len();
            if !is_long {
                kept += text::measure_text(conversation.raw_bytes(piece.text));
            }
            is_long
        });
    }
    // A character takes a byte at least, so the length in bytes decides for most results.
    let bytes: usize = texts.iter().map(|piece| piece.text.span.len()).sum();
    if bytes <= limit.chars {
        return None;
    }
    let mut total = 0;
    for piece in &texts {
        total += text::count_chars(conversation.raw_bytes(piece.text))?;
    }
    let removed = find_cut_range(total, limit, marker.max_chars_with(id))?;
    let raws = texts.iter();
    let raws = raws.map(|piece| conversation.raw_bytes(piece.text));
    let removed = widen_to_lines(raws.flat_map(TextWalk::new), removed, total);
    let marker = marker.format_marker(removed.len(), id);
    let mut cut = ResultCut {
        before: total,
        ..ResultCut::default()
    };
    let mut start = 0;
    let mut marked = false;
    for piece in &texts {
        let raw = conversation.raw_bytes(piece.text);
        let end = start + TextWalk::new(raw).count();
        let from = removed.start.clamp(start, end) - start;
        let to = removed.end.clamp(start, end) - start;
        start = end;
        if from == to {
            cut.sizes += text::measure_text(raw);
            continue;
        }
        let (from, to) = (find_byte_offset(raw, from), find_byte_offset(raw, to));
        let whole = from == 0 && to == raw.len();
        // The part with the marker precedes it.
        let part = piece.part.filter(|_| whole && marked);
        if let Some(span) = part.and_then(|part| conversation.block_with_comma(part)) {
            cut.edits.remove(span);
            continue;
        }
        let replacement = match marked {
            false => marker.as_str(),
            true if whole => ELLIPSIS,
            true => "",
        };
        marked = true;
        let span = piece.text.span.part(from..to);
        cut.edits.replace(span, replacement.to_owned());
        let left = [&raw[..from], replacement.as_bytes(), &raw[to..]];
        cut.sizes += text::measure_text(&left.concat());
    }
    cut.after = cut.sizes.total_chars();
    cut.sizes += kept;
    Some(cut)
}

/// The characters to remove between head and tail; `None` for a text within the limit.
fn find_cut_range(
    total: usize,
    limit: TruncationLimit,
    marker_chars: usize,
) -> Option<Range<usize>> {
    if total <= limit.chars {
        return None;
    }
    let room = limit.chars.saturating_sub(marker_chars);
    let wanted = limit.head + limit.tail;
    if wanted <= room {
        return Some(limit.head..total - limit.tail);
    }
    // Both get shorter in proportion.
    let head = room * limit.head / wanted.max(1);
    Some(head..total - (room - head))
}

struct ResultText {
    text: JsonString,
    /// The part around the text, where it may be removed: it is one of a result, without a cache breakpoint.
    part: Option<Span>,
}

/// The texts of a result, in order.
fn collect_texts(conversation: &Conversation, message: &Item) -> Vec<ResultText> {
    if let Content::Text(text) = message.content {
        return vec![ResultText { text, part: None }];
    }
    let parts = conversation.blocks_of(message).iter();
    let is_answer = message.author == Author::Model;
    let texts = parts.filter_map(|part| match part.kind {
        BlockKind::Text(text) => Some(ResultText {
            text,
            part: (!part.marked && !is_answer).then_some(part.span),
        }),
        _ => None,
    });
    texts.collect()
}

/// Widens a gap in a text of `total` characters to the ends of lines that are near. These line ends go too:
/// the marker brings its own.
pub(in crate::guard) fn widen_to_lines(
    text: impl Iterator<Item = Character>,
    gap: Range<usize>,
    total: usize,
) -> Range<usize> {
    let near_head = NEAR_CHARS.min(gap.start / 4);
    let near_tail = NEAR_CHARS.min((total - gap.end) / 4);
    let mut wide = gap.clone();
    let ends = text.enumerate().filter(|it| it.1.code == u32::from('\n'));
    for (at, _) in ends {
        if at < gap.start && gap.start - at <= near_head {
            wide.start = at;
        }
        if at >= gap.end {
            if at - gap.end <= near_tail {
                wide.end = at + 1;
            }
            break;
        }
    }
    wide
}

/// The byte at which character `index` begins; the end of `raw` beyond its last character.
pub(in crate::guard) fn find_byte_offset(raw: &[u8], index: usize) -> usize {
    let character = TextWalk::new(raw).nth(index);
    character.map_or(raw.len(), |character| character.at)
}

#[cfg(test)]
mod tests;
