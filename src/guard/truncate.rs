//! Truncates tool results: a result over its limit keeps its head and its tail.
//!
//! The cut depends on the message's bytes and the settings alone, so it is the same in every request. Cuts lie
//! between characters, never inside an escape, and at the end of a line where one is near. A text with half a
//! surrogate pair is not edited, and a part with a cache breakpoint is not removed. A cut result is within its
//! limit, marker included, so that a second pass changes nothing.

use std::ops::Range;

use super::recall_id::{self, RecallId};
use crate::{
    conversation::{BlockKind, Content, Conversation, Item, edit::Edits},
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
    pub(super) const fn with_halves(chars: usize) -> Self {
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

/// What takes the place of the removed characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationMarker {
    Plain,
    /// Says that the window is nearly full, so that the model asks for less.
    NearlyFull,
}

/// The longest plain marker: its words, the number, two line ends.
const MARKER_CHARS: usize = 52;
/// Bytes of a marker beyond one for each of its characters: its line ends are escaped.
pub(super) const MARKER_BYTES: usize = 2;

impl TruncationMarker {
    /// The longest marker of this kind without an id.
    pub(super) const fn max_chars(self) -> usize {
        MARKER_CHARS + self.advice().len()
    }

    /// The longest marker of this kind.
    const fn max_chars_with(self, id: Option<RecallId>) -> usize {
        let pointer = if id.is_some() {
            recall_id::MAX_POINTER_CHARS
        } else {
            0
        };
        self.max_chars() + pointer
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::NearlyFull => ": the context window is nearly full, read smaller parts",
        }
    }

    /// The marker for `chars` removed characters, escaped.
    pub(super) fn format_marker(self, chars: usize, id: Option<RecallId>) -> String {
        let (advice, pointer) = (self.advice(), recall_id::write_pointer(id));
        format!("\\n... [{chars} characters truncated{advice}{pointer}] ...\\n")
    }
}

/// How far a cut moves at most to reach the end of a line; characters.
const NEAR_CHARS: usize = 200;

/// Cuts a tool result down to its limit; `None` where it is within the limit or cannot be cut. The marker names the
/// `id`.
pub fn cut_result(
    conversation: &Conversation,
    message: &Item,
    limit: TruncationLimit,
    marker: TruncationMarker,
    id: Option<RecallId>,
) -> Option<ResultCut> {
    let texts = collect_texts(conversation, message);
    // A character takes a byte at least, so the length in bytes decides for most results.
    let bytes: usize = texts.iter().map(|piece| piece.text.span.len()).sum();
    if bytes <= limit.chars {
        return None;
    }
    let mut total = 0;
    for piece in &texts {
        let mut walk = TextWalk::new(conversation.raw_bytes(piece.text));
        total += walk.by_ref().count();
        if !walk.is_sound() {
            return None;
        }
    }
    let removed = find_cut_range(total, limit, marker.max_chars_with(id))?;
    let texts = ResultTexts {
        conversation,
        texts: &texts,
        total,
        marker,
        id,
    };
    Some(texts.cut_chars(removed))
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
    /// The part around the text, where it may be removed: it has no cache breakpoint.
    part: Option<Span>,
}

/// The texts of a result, in order.
fn collect_texts(conversation: &Conversation, message: &Item) -> Vec<ResultText> {
    if let Content::Text(text) = message.content {
        return vec![ResultText { text, part: None }];
    }
    let parts = conversation.blocks_of(message).iter();
    let texts = parts.filter_map(|part| match part.kind {
        BlockKind::Text(text) => Some(ResultText {
            text,
            part: (!part.marked).then_some(part.span),
        }),
        _ => None,
    });
    texts.collect()
}

struct ResultTexts<'a> {
    conversation: &'a Conversation,
    texts: &'a [ResultText],
    /// Characters of all texts.
    total: usize,
    marker: TruncationMarker,
    id: Option<RecallId>,
}

impl ResultTexts<'_> {
    /// Removes these characters, and those up to the ends of lines that are near.
    fn cut_chars(&self, removed: Range<usize>) -> ResultCut {
        let mut cut = ResultCut {
            before: self.total,
            ..ResultCut::default()
        };
        let raws = self.texts.iter();
        let raws = raws.map(|piece| self.conversation.raw_bytes(piece.text));
        let removed = widen_to_lines(raws.flat_map(TextWalk::new), removed, self.total);
        let marker = self.marker.format_marker(removed.len(), self.id);
        let mut start = 0;
        let mut marked = false;
        for piece in self.texts {
            let raw = self.conversation.raw_bytes(piece.text);
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
            if whole && marked && self.remove_part(piece, &mut cut.edits) {
                continue;
            }
            let replacement = match marked {
                false => marker.as_str(),
                // Some providers refuse a part with an empty text.
                true if whole => "...",
                true => "",
            };
            marked = true;
            let base = piece.text.span.start as usize;
            let span = Span::new(base + from, base + to);
            cut.edits.replace(span, replacement.to_owned());
            cut.sizes += text::measure_text(&raw[..from]);
            cut.sizes += text::measure_text(replacement.as_bytes());
            cut.sizes += text::measure_text(&raw[to..]);
        }
        cut.after = cut.sizes.total_chars();
        cut
    }

    /// Removes a part whose whole text is cut, and the comma before it: the part with the marker precedes it.
    fn remove_part(&self, piece: &ResultText, edits: &mut Edits) -> bool {
        let part = piece.part;
        let with_comma = part.and_then(|part| self.conversation.block_with_comma(part));
        with_comma.map(|span| edits.remove(span)).is_some()
    }
}

/// Widens a gap in a text of `total` characters to the ends of lines that are near. These line ends go too:
/// the marker brings its own.
pub(super) fn widen_to_lines(
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
pub(super) fn find_byte_offset(raw: &[u8], index: usize) -> usize {
    let character = TextWalk::new(raw).nth(index);
    character.map_or(raw.len(), |character| character.at)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::format::chat::index_body;

    const LIMIT: TruncationLimit = TruncationLimit {
        chars: 300,
        head: 60,
        tail: 40,
    };

    fn with_content(content: &str) -> Conversation {
        let body =
            format!(r#"{{"messages":[{{"role":"tool","tool_call_id":"a","content":{content}}}]}}"#);
        index_body(Bytes::from(body)).unwrap()
    }

    fn apply(content: &str, limit: TruncationLimit) -> Option<(ResultCut, serde_json::Value)> {
        let conversation = with_content(content);
        let result = &conversation.items[0];
        let cut = cut_result(&conversation, result, limit, TruncationMarker::Plain, None)?;
        let body = cut.edits.apply(&conversation.body).to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        Some((cut, body["messages"][0]["content"].clone()))
    }

    #[test]
    fn head_and_tail_stay_around_the_marker() {
        let text = "a".repeat(200) + &"z".repeat(200);
        let (cut, content) = apply(&format!("\"{text}\""), LIMIT).unwrap();
        let (head, tail) = ("a".repeat(60), "z".repeat(40));
        let expected = format!("{head}\n... [300 characters truncated] ...\n{tail}");
        assert_eq!(content, expected);
        assert_eq!((cut.before, cut.after), (400, expected.chars().count()));
        assert_eq!(cut.sizes.total_chars(), cut.after);
    }

    #[test]
    fn the_marker_says_that_the_window_is_nearly_full() {
        let conversation = with_content(&format!("\"{}\"", "a".repeat(400)));
        let message = &conversation.items[0];
        let cut = cut_result(
            &conversation,
            message,
            LIMIT,
            TruncationMarker::NearlyFull,
            None,
        )
        .unwrap();
        assert!(cut.after <= LIMIT.chars);
        let body = cut.edits.apply(&conversation.body).to_bytes();
        let marker = "\\n... [300 characters truncated: the context window is nearly full, read \
                      smaller parts] ...\\n";
        assert!(String::from_utf8_lossy(&body).contains(marker));
        // No body has as many characters. The line ends of the marker take two bytes each.
        let longest = TruncationMarker::NearlyFull.format_marker(u32::MAX as usize, None);
        assert!(longest.len() - MARKER_BYTES <= TruncationMarker::NearlyFull.max_chars());
    }

    #[test]
    fn a_result_within_the_limit_is_not_cut() {
        assert!(apply(&format!("\"{}\"", "a".repeat(300)), LIMIT).is_none());
        // 300 characters in 1,800 bytes.
        assert!(apply(&format!("\"{}\"", r"\u4e2d".repeat(300)), LIMIT).is_none());
        assert!(apply(&format!("\"{}\"", r"\u4e2d".repeat(301)), LIMIT).is_some());
    }

    #[test]
    fn lines_are_kept_whole_where_their_end_is_near() {
        let (first, middle, last) = ("a".repeat(50), "b".repeat(400), "c".repeat(35));
        let (_, content) = apply(&format!(r#""{first}\n{middle}\n{last}""#), LIMIT).unwrap();
        let content = content.as_str().unwrap();
        assert!(content.starts_with(&format!("{first}\n... [")), "{content}");
        assert!(content.ends_with(&format!("] ...\n{last}")), "{content}");
    }

    #[test]
    fn half_a_surrogate_pair_is_not_edited() {
        let text = format!("\"{}\\ud800{}\"", "a".repeat(300), "b".repeat(300));
        assert!(apply(&text, LIMIT).is_none());
    }

    #[test]
    fn parts_keep_their_order_and_their_cache_breakpoints() {
        let part = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
        let image = r#"{"type":"image_url","image_url":{"url":"http://x"}}"#;
        let marked = format!(
            r#"{{"cache_control":{{"type":"ephemeral"}},"type":"text","text":"{}"}}"#,
            "m".repeat(100)
        );
        let content = [
            part(&"a".repeat(100)),
            part(&"b".repeat(100)),
            image.into(),
            marked,
            part(&"c".repeat(100)),
        ]
        .join(" , ");
        let (cut, content) = apply(&format!("[{content}]"), LIMIT).unwrap();
        let parts = content.as_array().unwrap();
        assert_eq!(parts.len(), 4, "{content}");
        let first = parts[0]["text"].as_str().unwrap();
        assert!(first.starts_with(&"a".repeat(60)));
        assert_eq!(parts[1]["type"], "image_url");
        assert_eq!(parts[2]["text"], "...");
        assert!(parts[2]["cache_control"].is_object());
        assert_eq!(parts[3]["text"], "c".repeat(40));
        assert_eq!(cut.before, 400);
    }

    fn text() -> impl Strategy<Value = String> {
        let character = prop_oneof![
            Just('\n'),
            Just('"'),
            Just('\\'),
            Just('中'),
            Just('😀'),
            proptest::char::any(),
            Just('a'),
        ];
        prop::collection::vec(character, 0..900).prop_map(|text| text.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_cut_result_is_within_its_limit_and_not_cut_again(text in text(), chars in 0usize..500, head in 0usize..300, tail in 0usize..300) {
            let limit = TruncationLimit { chars, head, tail };
            let quoted = serde_json::Value::from(text.as_str()).to_string();
            if let Some((cut, content)) = apply(&quoted, limit) {
                let content = content.as_str().unwrap();
                prop_assert_eq!(content.chars().count(), cut.after);
                prop_assert!(cut.after <= chars.max(MARKER_CHARS));
                let (first, rest) = content.split_once("\n... [").unwrap();
                let (number, last) = rest.split_once(" characters truncated] ...\n").unwrap();
                let number: usize = number.parse().unwrap();
                prop_assert!(text.starts_with(first) && text.ends_with(last));
                prop_assert_eq!(first.chars().count() + number + last.chars().count(), text.chars().count());
                if chars >= MARKER_CHARS {
                    let again = serde_json::Value::from(content).to_string();
                    prop_assert!(apply(&again, limit).is_none());
                }
            } else {
                prop_assert!(text.chars().count() <= chars);
            }
        }

        #[test]
        fn parts_are_cut_like_one_text(texts in prop::collection::vec("[a-c\n]{0,200}", 1..8), chars in 60usize..400) {
            let limit = TruncationLimit { chars, head: chars / 2, tail: chars / 3 };
            let parts: Vec<_> = texts.iter().map(|text| serde_json::json!({"type": "text", "text": text})).collect();
            let total: usize = texts.iter().map(|text| text.chars().count()).sum();
            match apply(&serde_json::Value::from(parts).to_string(), limit) {
                None => prop_assert!(total <= chars),
                Some((cut, content)) => {
                    let left: String = content.as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect();
                    prop_assert_eq!(left.chars().count(), cut.after);
                    prop_assert!(cut.after <= chars);
                    prop_assert_eq!(left.matches("characters truncated] ...").count(), 1);
                }
            }
        }
    }
}
