//! Truncates tool results: a result over its limit keeps its head and its tail. Unless the settings give a limit or the
//! lengths of the ends, it also keeps the lines between them that its call asked for.
//!
//! The cut depends on the bytes of the message and of its call, and on the settings alone, so it is the same in every
//! request. Cuts lie between characters, never inside an escape, and at the end of a line where one is near. A text with
//! half a surrogate pair is not edited, and a part with a cache breakpoint is not removed. A cut result is within its limit,
//! marker included, so that a second pass changes nothing.
//!
//! The text of an answer with calls is cut in the same way, but none of its parts is removed: providers refuse reasoning
//! without the part that followed it.

mod marker;
pub(in crate::guard) mod text_cut;

use std::{iter, ops::Range};

pub(in crate::guard) use self::marker::MARKER_BYTES;
pub use self::{marker::TruncationMarker, text_cut::shorten_to_tokens};
use crate::{
    conversation::{
        Author, BlockKind, Content, Conversation, Item, edit::Edits, texts::decode_chars,
    },
    guard::{request::recall_id::RecallId, text::asked_lines::AskedLines},
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
    /// What a cut result keeps at its beginning and at its end, as far as the limit has room.
    pub head: usize,
    pub tail: usize,
}

impl TruncationLimit {
    /// Keeps half of `chars` at each end of a cut result.
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

/// What is left of a text that is cut whole, in a part that stays: some providers refuse a part with an empty text.
const ELLIPSIS: &str = "...";

/// Cuts a tool result, or the text of an answer with calls, down to its limit; `None` if it is within the limit or cannot be
/// cut. The markers name the `id`. With `asked`, the lines that it finds stay between head and tail, as far as there is
/// room.
pub(in crate::guard) fn cut_result(
    conversation: &Conversation,
    message: &Item,
    limit: TruncationLimit,
    marker: TruncationMarker,
    asked: Option<&AskedLines>,
    id: Option<RecallId>,
) -> Option<ResultCut> {
    let mut texts = collect_texts(conversation, message);
    // A text of an answer stays as it is if it is no longer than what a cut would leave of it.
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
    let counts = texts.iter();
    let counts = counts.map(|piece| text::count_chars(conversation.raw_bytes(piece.text)));
    let counts: Vec<usize> = counts.collect::<Option<_>>()?;
    let total = counts.iter().sum();
    let marker_chars = marker.max_chars_with(id);
    let removed = find_cut_range(total, limit, marker_chars)?;
    let raws = texts.iter();
    let raws = raws.map(|piece| conversation.raw_bytes(piece.text));
    let removed = widen_to_lines(raws.clone().flat_map(TextWalk::new), removed, total);
    let stretches = asked.map(|asked| {
        let text: String = raws.flat_map(decode_chars).collect();
        let ends = total - removed.len() + marker_chars;
        let room = limit.chars.saturating_sub(ends);
        asked.choose_stretches(&text, &removed, room, marker_chars)
    });
    let gaps = list_gaps(removed, &stretches.unwrap_or_default(), marker_chars);
    let mut cut = ResultCut {
        before: total,
        ..ResultCut::default()
    };
    let mut start = 0;
    let mut marked = None;
    for (piece, chars) in texts.iter().zip(counts) {
        let raw = conversation.raw_bytes(piece.text);
        let (mut walk, mut walked) = (TextWalk::new(raw), start);
        // The byte at which a character of this text begins. It must be called with ascending indices.
        let mut find_byte = |index: usize| {
            walk.skip_chars(index.saturating_sub(walked));
            walked = walked.max(index);
            walk.next_byte()
        };
        let (mut left, mut from) = (Vec::new(), 0);
        for (nth, gap) in gaps.iter().enumerate() {
            let bytes = find_byte(gap.start)..find_byte(gap.end);
            if bytes.is_empty() {
                continue;
            }
            let whole = bytes == (0..raw.len());
            let is_marked = marked.replace(nth) == Some(nth);
            left.extend_from_slice(&raw[from..bytes.start]);
            from = bytes.end;
            // A part is removed only if an earlier part has the marker of this gap.
            let part = piece.part.filter(|_| whole && is_marked);
            if let Some(span) = part.and_then(|part| conversation.block_with_comma(part)) {
                cut.edits.remove(span);
                continue;
            }
            let replacement = match is_marked {
                false => marker.format_marker(gap.len(), id),
                true if whole => ELLIPSIS.to_owned(),
                true => String::new(),
            };
            left.extend_from_slice(replacement.as_bytes());
            cut.edits.replace(piece.text.span.part(bytes), replacement);
        }
        left.extend_from_slice(&raw[from..]);
        cut.sizes += text::measure_text(&left);
        start += chars;
    }
    cut.after = cut.sizes.total_chars();
    cut.sizes += kept;
    Some(cut)
}

/// Lists the gaps: the stretches of the `removed` characters that are left out, each with a marker in its place, between
/// those that `stay`. If some stay, a gap that is no longer than its marker stays too.
fn list_gaps(
    removed: Range<usize>,
    stay: &[Range<usize>],
    marker_chars: usize,
) -> Vec<Range<usize>> {
    let starts = iter::once(removed.start).chain(stay.iter().map(|it| it.end));
    let ends = stay.iter().map(|it| it.start).chain([removed.end]);
    let gaps = starts.zip(ends).map(|(start, end)| start..end);
    gaps.filter(|gap| stay.is_empty() || gap.len() > marker_chars)
        .collect()
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
    /// The part around the text, if it may be removed: it is a part of a result and has no cache breakpoint.
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

/// Widens a gap in a text of `total` characters to the ends of lines that are near. These line ends are removed too: the
/// marker brings its own.
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
