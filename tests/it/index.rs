//! The index of a body: right for every spelling, and no panic on damaged bodies.

use std::collections::BTreeMap;

use crate::support::{
    data,
    generate::{self, JsonSpelling, Recipe, SHAPES, Session, any_conversation},
    parse,
    reading::{assert_sizes, assert_spans, index_conversation},
};
use plimsoll::conversation::{IndexError, edit::Edits};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

#[test]
fn recorded_bodies_are_indexed_right() {
    for recorded in data::requests().into_iter().chain(data::unusual()) {
        let messages = parse::parse_value(&recorded.body).unwrap();
        if !messages["messages"].is_array() {
            assert!(matches!(
                index_conversation(&recorded.body),
                Err(IndexError::Unguardable(_))
            ));
            continue;
        }
        assert_spans(&recorded.body, &recorded.name);
        assert_sizes(&recorded.body, &recorded.name);
    }
}

#[test]
fn generated_bodies_of_every_shape_are_indexed_right() {
    for &shape in SHAPES {
        for seed in 0..4 {
            let body = generate::conversation(seed, shape);
            let name = format!("{shape:?} {seed}");
            assert_spans(&body, &name);
            assert_sizes(&body, &name);
        }
    }
}

fn digests(body: &[u8]) -> Vec<u128> {
    index_conversation(body)
        .unwrap()
        .items
        .iter()
        .map(|message| message.digest)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_body_is_indexed_right(case in any_conversation(16)) {
        assert_spans(&case.body(), "generated");
        assert_sizes(&case.body(), "generated");
    }

    /// White space, key order and escapes change no digest.
    #[test]
    fn a_spelling_changes_no_digest(case in any_conversation(10)) {
        let plain = Recipe { spelling: JsonSpelling::PLAIN, ..case.recipe };
        let plain = Session::from_units(case.seed, plain, &case.units).whole();
        let spelt = case.body();
        let (one, other) = (index_conversation(&spelt).unwrap(), index_conversation(&plain).unwrap());
        for (at, (one, other)) in one.items.iter().zip(&other.items).enumerate() {
            prop_assert_eq!(one.author, other.author);
            prop_assert_eq!(one.sizes, other.sizes, "message {}", at);
            prop_assert_eq!(one.digest, other.digest, "message {}", at);
            prop_assert_eq!(one.short_digest, other.short_digest, "message {}", at);
        }
    }

    /// Digests are equal exactly where role, text, media, ids, names and arguments are.
    #[test]
    fn equal_digests_mean_equal_content(case in any_conversation(12)) {
        let body = case.body();
        let value = parse::parse_value(&body).unwrap();
        // serde_json reads every lone surrogate as the same character.
        prop_assume!(!String::from_utf8_lossy(&body).contains("\\ud8"));
        let mut seen: BTreeMap<String, u128> = BTreeMap::new();
        let mut back: BTreeMap<u128, String> = BTreeMap::new();
        let found = index_conversation(&body).unwrap();
        for (message, raw) in found.items.iter().zip(value["messages"].as_array().unwrap()) {
            let said = digest_inputs(raw);
            let digest = *seen.entry(said.clone()).or_insert(message.digest);
            prop_assert_eq!(digest, message.digest);
            let text = back.entry(message.digest).or_insert_with(|| said.clone());
            prop_assert_eq!(text, &said);
        }
    }

    #[test]
    fn a_damaged_body_never_panics(case in any_conversation(8), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut body = case.body();
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        damaged(&body);
    }

    #[test]
    fn a_cut_body_is_invalid_json(case in any_conversation(8), at in any::<prop::sample::Index>()) {
        let body = case.body();
        let cut = &body[..at.index(body.len())];
        prop_assert!(matches!(index_conversation(cut), Err(IndexError::NotJson(_))));
    }

    #[test]
    fn json_like_bytes_never_panic(body in "[\\[\\]{}\",:\\\\u0dDmessages roltn1e.-]{0,200}") {
        damaged(body.as_bytes());
    }
}

/// Any body: where it can be indexed, every accessor of the index works.
fn damaged(body: &[u8]) {
    let Ok(found) = index_conversation(body) else {
        return;
    };
    for message in &found.items {
        assert!(found.list.start < message.span.start && message.span.end < found.list.end);
        let _ = (
            found.span_bytes(message.span),
            found.calls_of(message),
            found.blocks_of(message),
        );
    }
    let _ = (
        found.model(),
        found.asks_for_stream(),
        found.max_answer_tokens(),
    );
    let mut edits = Edits::default();
    found.ask_usage(&mut edits);
    let _ = edits.apply(&found.body).to_bytes();
}

/// Everything a digest depends on, written out.
fn digest_inputs(message: &Value) -> String {
    let content = match &message["content"] {
        Value::String(text) if text.is_empty() => Value::Array(vec![]),
        Value::String(text) => Value::Array(vec![Value::String(text.clone())]),
        Value::Array(parts) => parts
            .iter()
            .map(|part| {
                let mut part = part.clone();
                if let Some(part) = part.as_object_mut() {
                    part.remove("cache_control");
                }
                if part["type"] == "text" {
                    part["text"].clone()
                } else {
                    part
                }
            })
            .collect(),
        _ => Value::Array(vec![]),
    };
    let listed = message["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<String> = listed
        .map(|call| {
            format!(
                "{}{}{}",
                call["id"], call["function"]["name"], call["function"]["arguments"]
            )
        })
        .chain(
            message
                .get("function_call")
                .map(|call| format!("{}{}", call["name"], call["arguments"])),
        )
        .collect();
    format!(
        "{}|{content}|{calls:?}|{}|{}",
        message["role"], message["tool_call_id"], message["name"]
    )
}

#[test]
fn only_content_changes_a_digest() {
    let body = |message: &str| format!(r#"{{"messages":[{message}]}}"#);
    let one = |message: &str| digests(body(message).as_bytes())[0];
    let plain = one(r#"{"role":"tool","tool_call_id":"c","content":"a b"}"#);
    for same in [
        r#"{"role":"tool","tool_call_id":"c","content":"a b","cache_control":{"type":"ephemeral"}}"#,
        r#"{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"a b"}]}"#,
        r#"{"content":"\u0061 b","tool_call_id":"\u0063","role":"tool","weight":1e0}"#,
        r#"{"role":"tool","tool_call_id":"c","content":"a b","reasoning_content":"x"}"#,
    ] {
        assert_eq!(one(same), plain, "{same}");
    }
    for other in [
        r#"{"role":"user","tool_call_id":"c","content":"a b"}"#,
        r#"{"role":"tool","tool_call_id":"d","content":"a b"}"#,
        r#"{"role":"tool","tool_call_id":"c","content":"a  b"}"#,
        r#"{"role":"tool","tool_call_id":"c","name":"n","content":"a b"}"#,
        r#"{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"a "},{"type":"text","text":"b"}]}"#,
        r#"{"role":"tool","tool_call_id":"c","content":[{"type":"image_url","image_url":{"url":"a b"}}]}"#,
    ] {
        assert_ne!(one(other), plain, "{other}");
    }
}

/// An escaped key must be recognised, or proxy and provider would read different conversations.
#[test]
fn an_escaped_json_key_is_recognised() {
    let whole = r#"{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}],"content":[{"type":"text","text":"t"}]}"#;
    for key in [
        "role",
        "content",
        "tool_calls",
        "id",
        "function",
        "name",
        "arguments",
        "type",
        "text",
    ] {
        let (first, rest) = key.split_at(1);
        let spelt = format!("\"\\u{:04x}{rest}\":", u32::from(first.as_bytes()[0]));
        let message = whole.replacen(&format!("\"{key}\":"), &spelt, 1);
        assert_ne!(message, whole);
        let plain = index_conversation(format!(r#"{{"messages":[{whole}]}}"#).as_bytes()).unwrap();
        match index_conversation(format!(r#"{{"messages":[{message}]}}"#).as_bytes()) {
            Err(IndexError::Unguardable(_)) => {}
            Err(error) => panic!("{message}: {error}"),
            Ok(found) => assert_eq!(
                found.items[0].digest, plain.items[0].digest,
                "{message} is neither understood nor refused"
            ),
        }
    }
}

#[test]
fn no_prefix_of_a_body_is_taken_for_the_whole() {
    #[derive(Deserialize)]
    struct Any {}
    let body = generate::conversation(5, generate::Shape::Chinese);
    let body = &body[..body.len().min(3_000)];
    for end in 0..body.len() {
        let cut = &body[..end];
        assert!(serde_json::from_slice::<Any>(cut).is_err());
        assert!(
            matches!(index_conversation(cut), Err(IndexError::NotJson(_))),
            "at {end}"
        );
    }
}
