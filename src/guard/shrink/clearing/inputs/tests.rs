use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{VALUE_CHARS, shorten_arguments};
use crate::{
    config::{GuardConfig, profile::find_profile},
    conversation::Conversation,
    format::chat::index_body,
    guard::request::{policy::Policy, view::RequestView},
};

/// A call with these arguments, as they are spelled in the body.
fn with_arguments(spelled: &str) -> Conversation {
    let body = format!(
        r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"a","function":{{"name":"write_file","arguments":{spelled}}}}}]}}]}}"#
    );
    index_body(Bytes::from(body)).unwrap()
}

/// The arguments as they are sent, where they are edited.
fn shortened(spelled: &str, exclude: &[&str]) -> Option<String> {
    let conversation = with_arguments(spelled);
    let mut settings = GuardConfig::counted_by_characters();
    settings.clear.exclude = exclude.iter().map(|&name| name.to_owned()).collect();
    let policy = Policy::new(
        find_profile("openai").unwrap(),
        32_768,
        crate::config::tokens::unknown_model(),
        &settings,
    );
    let view = |conversation| RequestView {
        conversation,
        units: &[],
        policy,
        names_ids: crate::guard::request::recall_id::NamedIds::NONE,
        scale: crate::guard::request::estimate::TokenScale::default(),
    };
    let small = shorten_arguments(view(&conversation), 0)?;
    let sent = small.edits.apply(&conversation.body).to_bytes();
    let again = index_body(sent.clone()).unwrap();
    let message = &again.items[0];
    let weighed = view(&again).weigh_item(0, &message.sizes);
    assert_eq!(small.tokens, weighed, "it weighs what was said");
    assert!(
        shorten_arguments(view(&again), 0).is_none(),
        "a second pass"
    );
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let arguments = &sent["messages"][0]["tool_calls"][0]["function"]["arguments"];
    Some(arguments.as_str().unwrap().to_owned())
}

fn spelled(arguments: &str) -> String {
    Value::from(arguments).to_string()
}

#[test]
fn long_values_keep_their_beginning_at_any_depth() {
    let long = "x\n\"y\" ".repeat(80);
    let arguments = json!({"path": "a.rs", "edits": [{"new": long, "line": 3}, null, [long]]});
    let text = shortened(&spelled(&arguments.to_string()), &[]).unwrap();
    let now: Value = serde_json::from_str(&text).unwrap();
    let head: String = long.chars().take(120).collect();
    let value = format!(
        "{head}... [{} characters left out]",
        long.chars().count() - 120
    );
    let expected = json!({"path": "a.rs", "edits": [{"new": value, "line": 3}, null, [value]]});
    assert_eq!(now, expected);
}

#[test]
fn what_cannot_be_edited_is_left_alone() {
    let long = "x".repeat(400);
    for arguments in [
        format!("*** Begin Patch\n{long}"),
        format!("{{\"a\":\"{long}\""),
        format!("{{\"a\":\"{long}\\ud800\"}}"),
        format!("{{\"a\":\"{}\"}}", "x".repeat(VALUE_CHARS)),
        format!("{}\"{long}\"{}", "[".repeat(200), "]".repeat(200)),
        String::new(),
    ] {
        assert_eq!(shortened(&spelled(&arguments), &[]), None, "{arguments}");
    }
    // Half a pair in the spelling of the body.
    let half = format!(r#""{{\"a\":\"{long}\ud800\"}}""#);
    assert_eq!(shortened(&half, &[]), None);
    let fine = spelled(&format!("{{\"a\":\"{long}\"}}"));
    assert!(shortened(&fine, &[]).is_some());
    assert_eq!(shortened(&fine, &["write_*"]), None);
    assert_eq!(shortened(&fine, &["write_file"]), None);
    assert!(shortened(&fine, &["write"]).is_some());
}

/// A text with every kind of escape, spelled as JSON in one of its ways.
fn value() -> impl Strategy<Value = String> {
    let letter = prop_oneof![
        Just('"'),
        Just('\\'),
        Just('/'),
        Just('\n'),
        Just('\u{1}'),
        Just('中'),
        Just('😀'),
        Just('a'),
        proptest::char::any(),
    ];
    prop::collection::vec(letter, 0..500).prop_map(|text| text.into_iter().collect())
}

/// JSON of a string with `\u` escapes for all that is not plain.
fn ascii(text: &str) -> String {
    let mut out = String::from("\"");
    for unit in text.encode_utf16() {
        match char::from_u32(unit.into()) {
            Some(letter) if letter.is_ascii_alphanumeric() => out.push(letter),
            Some('/') => out.push_str("\\/"),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out + "\""
}

/// The same but for long strings, which begin as they did.
fn alike(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::String(before), Value::String(after)) if before != after => {
            let Some((head, rest)) = after.rsplit_once("... [") else {
                return false;
            };
            let left_out = before.chars().count() - head.chars().count();
            before.chars().count() > VALUE_CHARS
                && before.starts_with(head)
                && rest == format!("{left_out} characters left out]")
                && after.chars().count() <= VALUE_CHARS
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len() && before.iter().zip(after).all(|(a, b)| alike(a, b))
        }
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && before
                    .iter()
                    .all(|(key, value)| after.get(key).is_some_and(|after| alike(value, after)))
        }
        (before, after) => before == after,
    }
}

proptest! {
    #[test]
    fn arguments_stay_json_and_say_the_same_but_for_long_values(values in prop::collection::vec(value(), 1..4), inner in any::<bool>(), outer in any::<bool>()) {
        let spell = |text: &str, ascii_only: bool| if ascii_only { ascii(text) } else { Value::from(text).to_string() };
        let [first, rest @ ..] = &values[..] else { unreachable!("at least one") };
        let rest: Vec<_> = rest.iter().map(|text| spell(text, inner)).collect();
        let arguments = format!(r#" {{ "a" : {} , "b":[ 1.50, {{"c":[{}]}} ]}} "#, spell(first, inner), rest.join(","));
        let before: Value = serde_json::from_str(&arguments).unwrap();
        let long = values.iter().any(|text| text.chars().count() > VALUE_CHARS);
        let now = shortened(&spell(&arguments, outer), &[]);
        prop_assert_eq!(now.is_some(), long);
        if let Some(now) = now {
            let after: Value = serde_json::from_str(&now).unwrap();
            prop_assert!(alike(&before, &after), "{now}");
            prop_assert!(now.contains("1.50"), "numbers keep their spelling");
        }
    }

    #[test]
    fn whatever_stands_there_is_edited_soundly_or_not_at_all(spelled in r#"([ -~]|\\\\u[0-9a-f]{4}|\\\\n|\\\\"){0,400}"#) {
        let quoted = format!("\"{}\"", spelled.replace('"', "\\\""));
        if serde_json::from_str::<Value>(&quoted).is_ok() {
            shortened(&quoted, &[]);
        }
    }
}
