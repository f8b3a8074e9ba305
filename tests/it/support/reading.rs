//! Compares the index of a body with an independent reading by serde_json.

use std::collections::BTreeMap;

use super::parse;
use bytes::Bytes;
use plimsoll::{
    conversation::{Arguments, Author, Block, BlockKind, Content, Conversation, IndexError, Item},
    format::chat,
    json::{
        scan::{JsonString, Span},
        text::Script,
    },
};
use serde_json::{Value, value::RawValue};

pub(crate) fn index_conversation(body: &[u8]) -> Result<Conversation, IndexError> {
    chat::index_body(Bytes::copy_from_slice(body))
}

/// The span of a slice of the body.
fn find_span(body: &[u8], slice: &str) -> Span {
    let start = slice.as_ptr() as usize - body.as_ptr() as usize;
    Span::new(start, start + slice.len())
}

type RawMembers<'a> = BTreeMap<String, &'a RawValue>;

fn members(raw: &RawValue) -> RawMembers<'_> {
    serde_json::from_str(raw.get()).unwrap()
}

fn list(raw: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(raw.get()).unwrap()
}

/// Every span of the index is where serde_json finds the same value.
pub(crate) fn assert_spans(body: &[u8], name: &str) {
    let found = index_conversation(body).unwrap_or_else(|error| panic!("{name}: {error}"));
    let text = std::str::from_utf8(body).unwrap();
    let fields: RawMembers<'_> = serde_json::from_str(text).unwrap();
    assert_eq!(found.fields.len(), fields.len(), "{name}");
    for field in &found.fields {
        let key = std::str::from_utf8(found.raw_bytes(field.key)).unwrap();
        assert_eq!(
            field.value,
            find_span(body, fields[key].get()),
            "{name}: {key}"
        );
    }
    assert_eq!(
        found.list,
        find_span(body, fields["messages"].get()),
        "{name}"
    );
    let messages = list(fields["messages"]);
    assert_eq!(found.items.len(), messages.len(), "{name}");
    for (at, (message, raw)) in found.items.iter().zip(messages).enumerate() {
        assert_eq!(
            message.span,
            find_span(body, raw.get()),
            "{name}: message {at}"
        );
        message_is_right(body, &found, message, &members(raw));
    }
}

fn message_is_right(body: &[u8], found: &Conversation, message: &Item, raw: &RawMembers<'_>) {
    let text = |text: Option<JsonString>| text.map(|text| text.quoted_span());
    let string = |raw: Option<&&RawValue>| {
        let raw = raw.filter(|raw| raw.get().starts_with('"'))?;
        Some(find_span(body, raw.get()))
    };
    let role: String = serde_json::from_str(raw["role"].get()).unwrap();
    let expected = match role.as_str() {
        "system" | "developer" => Author::System,
        "user" => Author::User,
        "assistant" => Author::Model,
        "tool" | "function" => Author::Tool,
        _ => Author::Unknown,
    };
    assert_eq!(message.author, expected);
    // The legacy result of a `function_call` answers the call without an id.
    let call_id = raw.get("tool_call_id").filter(|_| role != "function");
    assert_eq!(text(message.call_id), string(call_id));
    assert_eq!(text(message.name), string(raw.get("name")));
    match (&message.content, raw.get("content")) {
        (Content::Absent, None) => {}
        (Content::Null(span), Some(content)) => {
            assert_eq!(content.get(), "null");
            assert_eq!(*span, find_span(body, content.get()));
        }
        (Content::Text(text), Some(content)) => {
            assert_eq!(text.quoted_span(), find_span(body, content.get()));
            assert_eq!(text.has_escapes, content.get().contains('\\'));
        }
        (Content::Blocks(_, span), Some(content)) => {
            assert_eq!(*span, find_span(body, content.get()));
            for (part, raw) in found.blocks_of(message).iter().zip(list(content)) {
                assert_eq!(part.span, find_span(body, raw.get()));
                part_is_right(body, part, &members(raw));
            }
            assert_eq!(found.blocks_of(message).len(), list(content).len());
        }
        (other, content) => panic!("{other:?} for {content:?}"),
    }
    let listed = raw.get("tool_calls").filter(|calls| calls.get() != "null");
    let mut calls: Vec<&RawValue> = listed.map_or_else(Vec::new, |calls| list(calls));
    calls.extend(raw.get("function_call").filter(|call| call.get() != "null"));
    assert_eq!(found.calls_of(message).len(), calls.len());
    for (call, raw) in found.calls_of(message).iter().zip(calls) {
        assert_eq!(call.span, find_span(body, raw.get()));
        let outer = members(raw);
        let function = outer
            .get("function")
            .map_or_else(|| outer.clone(), |raw| members(raw));
        assert_eq!(text(call.id), string(outer.get("id")));
        assert_eq!(text(call.name), string(function.get("name")));
        let arguments = call.arguments.and_then(|it| match it {
            Arguments::Text(text) => Some(text),
            Arguments::Json(_) => None,
        });
        assert_eq!(text(arguments), string(function.get("arguments")));
    }
}

fn part_is_right(body: &[u8], part: &Block, raw: &RawMembers<'_>) {
    let kind: String = serde_json::from_str(raw["type"].get()).unwrap();
    let marks = ["cache_control", "prompt_cache_breakpoint"];
    let marked = marks
        .iter()
        .any(|key| raw.get(*key).is_some_and(|raw| raw.get() != "null"));
    assert_eq!(part.marked, marked);
    match (part.kind, kind.as_str()) {
        (BlockKind::Text(text), "text") => {
            assert_eq!(text.quoted_span(), find_span(body, raw["text"].get()));
        }
        (BlockKind::Image { url, low }, "image_url") if raw["image_url"].get().starts_with('{') => {
            let image = members(raw["image_url"]);
            assert_eq!(
                url.unwrap().quoted_span(),
                find_span(body, image["url"].get())
            );
            assert_eq!(
                low,
                image
                    .get("detail")
                    .is_some_and(|raw| raw.get() == r#""low""#)
            );
        }
        (BlockKind::Image { url, .. }, "image_url") => {
            assert_eq!(
                url.unwrap().quoted_span(),
                find_span(body, raw["image_url"].get())
            );
        }
        (BlockKind::Media | BlockKind::Opaque, kind) => assert_ne!(kind, "text"),
        (kind, told) => panic!("{kind:?} for {told}"),
    }
}

/// The reasoning of a chat message, which gateways send under several names.
fn longest_reasoning(message: &Value) -> String {
    let read = |name: &str| match &message[name] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().flat_map(|part| {
                let texts = ["text", "thinking", "summary"].iter();
                texts.filter_map(|name| part[*name].as_str())
            });
            texts.collect()
        }
        _ => String::new(),
    };
    let names = [
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "thinking_blocks",
    ];
    let texts = names.into_iter().map(read);
    texts
        .max_by_key(|text| text.chars().count())
        .unwrap_or_default()
}

/// Character counts of all text, computed from decoded strings.
pub(crate) fn assert_sizes(body: &[u8], name: &str) {
    let found = index_conversation(body).unwrap();
    let value = parse::parse_value(body).unwrap();
    for (at, message) in value["messages"].as_array().unwrap().iter().enumerate() {
        let sizes = found.items[at].sizes;
        // A part of an unknown type is counted as it is spelt.
        let parts = found.blocks_of(&found.items[at]);
        if parts.iter().any(|part| part.kind == BlockKind::Opaque) {
            continue;
        }
        let raw = message.to_string();
        if ["\"data\":", "\"thought_signature\":"]
            .iter()
            .any(|it| raw.contains(it))
        {
            continue;
        }
        let mut said = longest_reasoning(message);
        let mut say = |value: &Value| said.push_str(value.as_str().unwrap_or(""));
        match &message["content"] {
            Value::Array(parts) => parts.iter().for_each(|part| say(&part["text"])),
            content => say(content),
        }
        let listed = message["tool_calls"].as_array().into_iter().flatten();
        let functions = listed.map(|call| &call["function"]);
        for function in functions.chain(message.get("function_call")) {
            say(&function["name"]);
            say(&function["arguments"]);
        }
        let kind = |wanted: fn(char) -> bool| said.chars().filter(|&it| wanted(it)).count();
        assert_eq!(sizes.total_chars(), kind(|_| true), "{name}: message {at}");
        assert_eq!(
            sizes.ascii as usize,
            kind(|it| it.is_ascii()),
            "{name}: message {at}"
        );
        let hangul = kind(|it| matches!(it, '\u{A000}'..='\u{D7FF}'));
        let counted = sizes.script(Script::Hangul) as usize;
        assert_eq!(counted, hangul, "{name}: message {at}");
        let han = kind(|it| matches!(it, '\u{4000}'..='\u{9FFF}'));
        let counted = sizes.script(Script::Han) as usize;
        assert_eq!(counted, han, "{name}: message {at}");
    }
}
