use bytes::Bytes;
use proptest::prelude::*;

use super::{marker::MARKER_CHARS, *};
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
    let cut = cut_result(
        &conversation,
        result,
        limit,
        TruncationMarker::Plain,
        None,
        None,
    )?;
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

fn apply_asked(content: &str, limit: TruncationLimit) -> Option<(ResultCut, serde_json::Value)> {
    let conversation = with_content(content);
    let asked = AskedLines::from_arguments(r#"{"pattern": "needle"}"#);
    let (result, marker) = (&conversation.items[0], TruncationMarker::Plain);
    let cut = cut_result(&conversation, result, limit, marker, Some(&asked), None)?;
    let body = cut.edits.apply(&conversation.body).to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    Some((cut, body["messages"][0]["content"].clone()))
}

#[test]
fn lines_that_were_asked_for_stay_between_head_and_tail() {
    let filler = |nth: usize| format!("{nth} planks are sound here\n").repeat(100);
    let text = [
        &filler(1),
        "a needle\n",
        "error: one\n",
        "  at two\n",
        &filler(2),
        "no needle? a needle\n",
        "short\n",
        "needle\n",
        &filler(3),
    ]
    .concat();
    let limit = TruncationLimit {
        chars: 1_000,
        head: 50,
        tail: 50,
    };
    let quoted = serde_json::Value::from(text.as_str()).to_string();
    let (cut, content) = apply_asked(&quoted, limit).unwrap();
    let content = content.as_str().unwrap();
    assert_eq!(cut.after, content.chars().count());
    assert_eq!(cut.sizes.total_chars(), cut.after);
    let shape = content.lines().map(|line| {
        if line.starts_with("... [") {
            "..."
        } else {
            line
        }
    });
    let shape = shape.collect::<Vec<_>>();
    let middle = [
        "...",
        "a needle",
        "error: one",
        "  at two",
        "...",
        "no needle? a needle",
        "short",
        "needle",
        "...",
    ];
    assert!(
        shape.windows(middle.len()).any(|it| it == middle),
        "{content}"
    );
    let numbers = content.split("... [").skip(1);
    let numbers = numbers.map(|it| it.split_once(' ').unwrap().0.parse::<usize>().unwrap());
    let removed: usize = numbers.sum();
    let markers: usize = content
        .lines()
        .filter(|it| it.starts_with("... ["))
        .map(|it| it.len() + 2)
        .sum();
    assert_eq!(content.len() - markers + removed, text.len());
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
    fn asked_lines_stay_within_the_limit_and_in_their_order(lines in prop::collection::vec("(needle |error |字|[ab]){0,12}\\PC{0,3}", 0..200), parts in 1usize..4, chars in 0usize..1_500, head in 0usize..300, tail in 0usize..300) {
        let limit = TruncationLimit { chars, head, tail };
        let texts: Vec<String> = lines.chunks(lines.len().div_ceil(parts).max(1)).map(|lines| lines.join("\n")).collect();
        let whole = texts.concat();
        let content: Vec<_> = texts.iter().map(|text| serde_json::json!({"type": "text", "text": text})).collect();
        let content = serde_json::Value::from(content).to_string();
        match apply_asked(&content, limit) {
            None => prop_assert!(whole.chars().count() <= chars),
            Some((cut, content)) => {
                let left: String = content.as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect();
                prop_assert_eq!(left.chars().count(), cut.after);
                prop_assert_eq!(cut.sizes.total_chars(), cut.after);
                prop_assert!(cut.after <= chars.max(MARKER_CHARS + 3 * parts));
                // What is kept, with as many characters between as the markers say, is the whole.
                let mut rest = whole.as_str();
                let mut pieces = left.split("\n... [");
                let first = pieces.next().unwrap();
                prop_assert!(rest.starts_with(first));
                rest = &rest[first.len()..];
                for piece in pieces {
                    let (number, kept) = piece.split_once(" characters truncated] ...\n").unwrap();
                    let bytes: usize = rest.chars().take(number.parse().unwrap()).map(char::len_utf8).sum();
                    rest = &rest[bytes..];
                    let kept = kept.strip_prefix("...").filter(|_| !rest.starts_with(kept)).unwrap_or(kept);
                    prop_assert!(rest.starts_with(kept), "{:?} of {:?}", kept, rest);
                    rest = &rest[kept.len()..];
                }
                prop_assert_eq!(rest, "");
            }
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
