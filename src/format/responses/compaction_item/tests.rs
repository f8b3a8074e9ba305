use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use super::{TAG, append_trigger, encode_text};
use crate::{
    conversation::{Author, Format},
    format::responses::index::unfold_body,
};

const TEXT: &str = "Mended: \"bow\"\nLeft: \u{1F6A2} 船";

fn entry(content: &str) -> Value {
    json!({"type": "compaction", "id": "cmp_1", "encrypted_content": content})
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "role": "developer",
        "content": [{"type": "input_text", "text": text}]})
}

fn body(input: &[Value]) -> Bytes {
    json!({"model": "m", "input": input}).to_string().into()
}

fn unfold(input: &[Value]) -> Option<Value> {
    let unfolded = unfold_body(&body(input))?;
    Some(serde_json::from_slice::<Value>(&unfolded).unwrap()["input"].take())
}

#[test]
fn an_entry_of_the_proxy_becomes_a_message_at_its_place() {
    let content = encode_text(TEXT);
    let mut older = entry(&content);
    older["type"] = "compaction_summary".into();
    let input = [user("a"), entry(&content), user("b"), older];
    let expected = json!([user("a"), message(TEXT), user("b"), message(TEXT)]);
    assert_eq!(unfold(&input), Some(expected));

    let found = Format::Responses.index_body(body(&input)).unwrap();
    let authors: Vec<Author> = found.items.iter().map(|item| item.author).collect();
    let system = Author::System;
    assert_eq!(authors, [Author::User, system, Author::User, system]);
    assert!(found.items[1].is_pinned_system());
    // What stands beside it keeps its bytes.
    let odd = format!(
        r#"{{ "model":"m", "input":[ {{"role":"user","content":"h\u00e9"}} ,{{"encrypted_content":"{content}","type":"compaction"}}], "x":1.0}}"#
    );
    let unfolded = unfold_body(&odd.into()).unwrap();
    let text = str::from_utf8(&unfolded).unwrap();
    assert!(text.starts_with(r#"{ "model":"m", "input":[ {"role":"user","content":"h\u00e9"} ,{"#));
    assert!(text.ends_with(r#"], "x":1.0}"#), "{text}");
}

#[test]
fn what_the_proxy_did_not_make_stays_as_it_came() {
    let whole = encode_text(TEXT);
    let (_, sum_and_text) = whole.split_once("-1.").unwrap();
    let other = encode_text("Another text.");
    let swapped = format!(
        "{}.{}",
        &whole[..whole.rfind('.').unwrap()],
        &other[other.rfind('.').unwrap() + 1..]
    );
    for content in [
        "gAAAAABmprovider".to_owned(),
        String::new(),
        TAG.to_owned(),
        format!("{TAG}."),
        format!("plimsoll-compaction-2.{sum_and_text}"),
        format!(" {whole}"),
        format!("{whole} "),
        format!("{whole}="),
        whole.to_uppercase(),
        swapped,
        // Nothing would be said by it.
        encode_text(" \n"),
    ] {
        let input = [user("a"), entry(&content)];
        assert_eq!(unfold(&input), None, "{content}");
        let raw = body(&input);
        assert_eq!(Format::Responses.index_body(raw.clone()).unwrap().body, raw);
    }
    for end in 0..whole.len() {
        assert_eq!(unfold(&[entry(&whole[..end])]), None);
    }
    // In another entry, or another member, it is data.
    let mut reasoning = entry(&whole);
    reasoning["type"] = "reasoning".into();
    assert_eq!(unfold(&[reasoning, user(&whole)]), None);
    let named = json!({"type": "compaction", "content": whole, "encrypted_content": "x"});
    let listed = json!({"type": "compaction", "encrypted_content": [whole]});
    assert_eq!(unfold(&[named, listed]), None);
}

proptest! {
    #[test]
    fn every_text_comes_back(text in "\\PC{1,80}", before in vec("[a-z]{0,9}", 0..4)) {
        prop_assume!(!text.trim().is_empty());
        let mut input: Vec<Value> = before.iter().map(|text| user(text)).collect();
        input.push(entry(&encode_text(&text)));
        let unfolded = unfold(&input).unwrap();
        prop_assert_eq!(&unfolded[before.len()], &message(&text));
    }

    #[test]
    fn a_damaged_entry_never_gives_another_text(at in 0usize..90, byte in "[ -!#-\\[\\]-~]") {
        let mut content = encode_text(TEXT);
        let at = at % content.len();
        content.replace_range(at..=at, &byte);
        let unfolded = unfold(&[entry(&content)]);
        let is_text = |it: Value| it == json!([message(TEXT)]);
        prop_assert!(unfolded.is_none_or(is_text));
    }
}

#[test]
fn a_list_to_compact_ends_in_a_trigger() {
    let trigger = json!({"type": "compaction_trigger"});
    let append = |fields: Value| {
        let found = Format::Responses
            .index_body(fields.to_string().into())
            .unwrap();
        let body: Value = serde_json::from_slice(&append_trigger(&found)?).unwrap();
        let found = Format::Responses
            .index_body(body.to_string().into())
            .unwrap();
        assert!(found.can_be_compacted() && found.asks_to_compact() && found.is_auxiliary());
        Some(body["input"].clone())
    };
    let held = |name: &str| json!({"input": [user("a")], name: "x_1"});
    assert_eq!(
        append(json!({"input": [user("a")]})),
        Some(json!([user("a"), trigger]))
    );
    assert_eq!(
        append(json!({"input": [user("a"), trigger]})),
        Some(json!([user("a"), trigger]))
    );
    assert_eq!(
        append(json!({"instructions": "s", "input": "h\"é"})),
        Some(json!([{"role": "user", "content": "h\"é"}, trigger]))
    );
    assert_eq!(append(json!({"instructions": "s", "input": []})), None);
    assert_eq!(append(held("previous_response_id")), None);
    assert_eq!(append(held("conversation")), None);
    let reference = json!({"type": "item_reference", "id": "msg_1"});
    assert_eq!(append(json!({"input": [user("a"), reference]})), None);
}
