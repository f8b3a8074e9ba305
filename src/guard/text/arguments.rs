//! Cuts long strings and long arrays in the arguments of calls.
//!
//! Arguments are JSON, in most formats inside a JSON string. There each byte of the inner text is mapped to its offset
//! in the body. A cut lies between characters of both texts, or removes whole items of an array. So the arguments stay
//! valid, and everything but the shortened values stays byte for byte. A text with half a surrogate pair is not edited.

mod values;

use std::ops::Range;

use serde::de::IgnoredAny;

pub(in crate::guard) use self::values::Keep;
use self::values::{ArgumentValue, LongValue};
use crate::{
    conversation::{Arguments, Conversation, edit::Edits},
    guard::text::truncate,
    json::{
        scan::Span,
        text::{self, TextSizes, TextWalk},
    },
};

pub(in crate::guard) struct CutArguments {
    pub(in crate::guard) edits: Edits,
    /// The whole arguments as they came, and as they are cut.
    pub(in crate::guard) removed: TextSizes,
    pub(in crate::guard) inserted: TextSizes,
}

/// Cuts the long values of a call's arguments; `None` if no value is long, or if the arguments cannot be edited.
pub(in crate::guard) fn cut_arguments(
    conversation: &Conversation,
    arguments: Arguments,
    keep: Keep,
) -> Option<CutArguments> {
    let raw = conversation.span_bytes(arguments.span());
    // A character takes at least one byte, so shorter arguments have no long value.
    if raw.len() <= keep.max_chars() {
        return None;
    }
    let needs_json = matches!(keep, Keep::Head { .. });
    let read = CallArguments::read(conversation, arguments)
        .filter(|read| !(needs_json && read.kind == ArgumentsKind::OtherText))?;
    let mut edits = Edits::default();
    for (removed, marker) in read.list_cuts(keep) {
        edits.replace(arguments.span().part(removed), marker);
    }
    let left = edits.apply_to_part(&conversation.body, arguments.span());
    (!edits.is_empty()).then(|| CutArguments {
        edits,
        removed: text::measure_text(raw),
        inserted: text::measure_text(&left),
    })
}

pub(in crate::guard) struct CallArguments {
    /// The decoded text.
    inner: Vec<u8>,
    /// The offset in the body's spelling of each byte of `inner`, and of its end.
    offsets: Vec<u32>,
    value: ArgumentValue,
    kind: ArgumentsKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentsKind {
    /// JSON inside a JSON string.
    TextOfJson,
    /// Any other text inside a JSON string: `inner` is the text as the body spells it, and `value` is one string.
    OtherText,
    /// JSON that is in the body as it is, not inside a string.
    Json,
}

impl CallArguments {
    /// Reads the arguments of a call; `None` where they cannot be edited.
    pub(in crate::guard) fn read(
        conversation: &Conversation,
        arguments: Arguments,
    ) -> Option<Self> {
        let raw = conversation.span_bytes(arguments.span());
        match arguments {
            Arguments::Text(_) => Self::from_raw(raw),
            Arguments::Json(_) => Some(Self {
                inner: raw.to_vec(),
                offsets: (0..=raw.len() as u32).collect(),
                value: ArgumentValue::parse(raw).ok()?,
                kind: ArgumentsKind::Json,
            }),
        }
    }

    /// Reads a text of arguments as the body spells it. A text that is not JSON becomes one value: a patch, or an object
    /// whose end is missing because the answer was cut off.
    fn from_raw(raw: &[u8]) -> Option<Self> {
        if !text::is_decodable(raw) {
            return None;
        }
        let (mut inner, mut offsets) = decode_with_offsets(raw);
        let plain = serde_json::from_slice::<IgnoredAny>(&inner).is_err();
        let value = if plain {
            (inner, offsets) = (raw.to_vec(), (0..=raw.len() as u32).collect());
            ArgumentValue::String(Span::new(0, raw.len()), TextWalk::new(raw).count())
        } else {
            ArgumentValue::parse(&inner).ok()?
        };
        Some(Self {
            inner,
            offsets,
            value,
            kind: if plain {
                ArgumentsKind::OtherText
            } else {
                ArgumentsKind::TextOfJson
            },
        })
    }

    /// Characters that stay once each value is cut to `most`.
    pub(in crate::guard) fn chars_within(&self, most: usize) -> usize {
        self.value.collect_cuts(Keep::Ends(most), &mut Vec::new())
    }

    /// The bytes to replace, in the body's spelling of the arguments, and their markers.
    fn list_cuts(&self, keep: Keep) -> Vec<(Range<usize>, String)> {
        let mut long_values = Vec::new();
        self.value.collect_cuts(keep, &mut long_values);
        let cuts = long_values.into_iter().map(|long| {
            let (removed, marker) = match long {
                LongValue::String(text, chars) => {
                    let (removed, marker) = keep.plan_cut(chars);
                    let (start, text) = (text.start as usize, &self.inner[text.range()]);
                    let offset = |chars| start + truncate::find_byte_offset(text, chars);
                    (offset(removed.start)..offset(removed.end), marker)
                }
                LongValue::Items(items, count) => {
                    let marker = format!("\"... [{count} items truncated] ...\"");
                    (items.range(), marker)
                }
            };
            let [start, end] = [removed.start, removed.end].map(|it| self.offsets[it] as usize);
            let marker = match self.kind {
                ArgumentsKind::TextOfJson => text::escape_text(&marker),
                ArgumentsKind::OtherText | ArgumentsKind::Json => marker,
            };
            (start..end, marker)
        });
        cuts.collect()
    }
}

/// The decoded text, with the offset in `raw` of each of its bytes and of its end.
fn decode_with_offsets(raw: &[u8]) -> (Vec<u8>, Vec<u32>) {
    let mut inner = Vec::with_capacity(raw.len());
    let mut offsets = Vec::with_capacity(raw.len() + 1);
    for character in TextWalk::new(raw) {
        let mut bytes = [0; 4];
        let bytes = character.to_char().encode_utf8(&mut bytes).as_bytes();
        inner.extend_from_slice(bytes);
        offsets.extend(bytes.iter().map(|_| character.at as u32));
    }
    offsets.push(raw.len() as u32);
    (inner, offsets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::{CallArguments, Keep, text, values::MAX_ITEMS};

    /// The number of cuts, and the arguments after them.
    fn cut(spelled: &str, most: usize) -> (usize, String) {
        let read = CallArguments::from_raw(spelled.as_bytes());
        let mut cuts = read.map_or_else(Vec::new, |it| it.list_cuts(Keep::Ends(most)));
        let count = cuts.len();
        let mut out = spelled.to_owned();
        cuts.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
        for (span, marker) in cuts {
            out.replace_range(span, &marker);
        }
        (count, out)
    }

    #[test]
    fn arguments_that_are_not_json_keep_their_beginning_and_end() {
        let lines = "+ \"line\"\n".repeat(90);
        let patch = format!("*** Begin Patch\n{lines}*** End Patch");
        let (count, out) = cut(&text::escape_text(&patch), 200);
        let out = text::decode_text(out.as_bytes()).unwrap();
        assert_eq!(count, 1);
        assert!(
            out.starts_with("*** Begin Patch\n+") && out.ends_with("*** End Patch"),
            "{out}"
        );
        assert!(out.contains("characters truncated] ...\n") && out.chars().count() <= 200);
        // So does JSON whose end is missing.
        for broken in [format!("{{\"a\":\"{}", "x".repeat(400)), "[".repeat(900)] {
            let (count, out) = cut(&text::escape_text(&broken), 80);
            assert_eq!(count, 1);
            let out = text::decode_text(out.as_bytes()).unwrap();
            assert!(out.starts_with(&broken[..9]) && out.chars().count() <= 80);
        }
        // Half a pair is left alone.
        assert_eq!(cut(&format!("{}\\ud800", "x".repeat(400)), 80).0, 0);
    }

    #[test]
    fn an_array_in_a_removed_item_is_not_cut_again() {
        let long = vec!["a line"; 500];
        let items: Vec<_> = (0..40)
            .map(|at| serde_json::json!([at, long, "x".repeat(200)]))
            .collect();
        let (count, out) = cut(&text::escape_text(&Value::from(items).to_string()), 150);
        assert_eq!(count, 1);
        let out = text::decode_text(out.as_bytes()).unwrap();
        assert_eq!(out, r#"["... [40 items truncated] ..."]"#);
    }

    proptest! {
        #[test]
        fn long_arrays_keep_their_first_and_last_items(
            lines in prop::collection::vec(r#"[a"\\/\n\u{1}\u{4e2d}\u{1f600}]{0,120}"#, 0..200),
            most in 80usize..250,
        ) {
            let before = serde_json::json!({"path": "p", "edits": [{"lines": lines}, 1.5], "end": true});
            let (count, out) = cut(&text::escape_text(&before.to_string()), most);
            let chars = |lines: &[String]| -> usize { lines.iter().map(|it| it.chars().count().min(most)).sum() };
            let long = |text: &String| text.chars().count() > most;
            let out = text::decode_text(out.as_bytes()).unwrap();
            let after: Value = serde_json::from_str(&out).unwrap();
            let kept: Vec<String> = serde_json::from_value(after["edits"][0]["lines"].clone()).unwrap();
            prop_assert_eq!((&after["path"], &after["edits"][1], &after["end"]), (&before["path"], &before["edits"][1], &before["end"]));
            if lines.len() <= MAX_ITEMS || chars(&lines) <= MAX_ITEMS * most {
                prop_assert_eq!((kept.len(), count), (lines.len(), lines.iter().filter(|it| long(it)).count()));
            } else {
                let marker = kept.iter().position(|it| it.ends_with(" items truncated] ...")).unwrap();
                let last = kept.len() - marker - 1;
                prop_assert_eq!(&kept[marker], &format!("... [{} items truncated] ...", lines.len() - marker - last));
                prop_assert!(chars(&kept) <= MAX_ITEMS * most);
                for (was, now) in lines[..marker].iter().zip(&kept).chain(lines.iter().rev().zip(kept.iter().rev().take(last))) {
                    prop_assert!(long(was) || was == now);
                }
            }
            prop_assert_eq!(cut(&text::escape_text(&out), most).0, 0);
        }

        #[test]
        fn long_strings_are_cut_to_the_limit_and_all_else_stays(
            values in prop::collection::vec(r#"[a"\\/\n\u{1}\u{4e2d}\u{1f600}]{0,300}"#, 1..5),
            most in 80usize..250,
        ) {
            let before = serde_json::json!({"path": values[0], "edits": [1.5, {"new": values}, null]});
            let (count, out) = cut(&text::escape_text(&before.to_string()), most);
            let long = |text: &String| text.chars().count() > most;
            prop_assert_eq!(count, values.iter().filter(|it| long(it)).count() + usize::from(long(&values[0])));
            let out = text::decode_text(out.as_bytes()).unwrap();
            let after: Value = serde_json::from_str(&out).unwrap();
            for (was, now) in values.iter().zip(after["edits"][1]["new"].as_array().unwrap()) {
                let now = now.as_str().unwrap();
                prop_assert!(now.chars().count() <= most && (long(was) || now == was));
            }
            let again = cut(&text::escape_text(&out), most);
            prop_assert_eq!(again.0, 0);
        }
    }
}
