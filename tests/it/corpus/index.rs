//! The index of any body: spans nest, invalid JSON is refused, and the body is unchanged.

use std::collections::BTreeMap;

use bytes::Bytes;
use plimsoll::{
    conversation::{Content, Conversation, IndexError, Item, edit::Edits},
    format::chat,
    json::scan::{JsonString, Span},
    wire::model::shallow_parse,
};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

pub(super) fn check(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let found = chat::index_body(body.clone());
    assert_eq!(body, data, "the body is read only");
    match found {
        Ok(found) => {
            assert_eq!(found.body.as_ptr(), body.as_ptr(), "no copy");
            nests(&found);
            as_serde_finds(&found);
            answers_every_question(&found);
        }
        Err(IndexError::NotJson(why)) => {
            assert!(!why.is_empty());
            assert!(!deep_or_json(data), "JSON was refused: {why}");
        }
        Err(IndexError::Unguardable(why)) => {
            assert!(!why.is_empty());
            assert!(deep_or_json(data), "no JSON went on: {why}");
        }
    }
}

fn without_mark(data: &[u8]) -> &[u8] {
    data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data)
}

/// Whether serde_json accepts it, or stops at its nesting limit.
fn deep_or_json(data: &[u8]) -> bool {
    match serde_json::from_slice::<IgnoredAny>(without_mark(data)) {
        Ok(_) => true,
        Err(error) => error.to_string().starts_with("recursion limit"),
    }
}

fn assert_nested(inner: Span, outer: Span) {
    let whole = inner.start <= inner.end;
    assert!(
        whole && outer.start <= inner.start && inner.end <= outer.end,
        "{inner:?} is not within {outer:?}"
    );
}

fn text_within(found: &Conversation, text: Option<JsonString>, outer: Span) {
    let Some(text) = text else { return };
    assert_nested(text.quoted_span(), outer);
    let quoted = found.span_bytes(text.quoted_span());
    assert!(quoted.len() >= 2 && quoted.starts_with(b"\"") && quoted.ends_with(b"\""));
    let _ = found.decode_text(text);
}

/// The spans follow each other, and none overlaps another.
fn in_order(spans: impl Iterator<Item = Span>, outer: Span) {
    let mut end = outer.start;
    for span in spans {
        assert_nested(span, outer);
        assert!(span.start >= end, "{span:?} begins before {end}");
        end = span.end;
    }
}

fn nests(found: &Conversation) {
    let all = Span::new(0, found.body.len());
    assert_nested(found.span, all);
    in_order(found.fields.iter().map(|field| field.value), found.span);
    for field in &found.fields {
        text_within(found, Some(field.key), found.span);
        assert!(field.key.quoted_span().end < field.value.start);
    }
    let messages = found.find_field("messages").expect("an index has messages");
    assert_eq!(messages.value, found.list);
    in_order(found.items.iter().map(|it| it.span), found.list);
    for message in &found.items {
        message_nests(found, message);
    }
    in_order(found.annotations.iter().map(|it| it.span), found.list);
}

fn message_nests(found: &Conversation, message: &Item) {
    let span = message.span;
    assert!(found.span_bytes(span).starts_with(b"{") && found.span_bytes(span).ends_with(b"}"));
    text_within(found, message.call_id, span);
    text_within(found, message.name, span);
    match &message.content {
        Content::Absent | Content::Null(_) => {}
        Content::Text(text) => text_within(found, Some(*text), span),
        Content::Blocks(_, parts) | Content::FixedBlocks(_, parts) | Content::Other(parts) => {
            assert_nested(*parts, span);
        }
    }
    in_order(found.blocks_of(message).iter().map(|part| part.span), span);
    for call in found.calls_of(message) {
        assert_nested(call.span, span);
        for text in [call.id, call.name] {
            text_within(found, text, call.span);
        }
        if let Some(arguments) = call.arguments {
            assert_nested(arguments.span(), call.span);
        }
    }
}

/// Where serde_json reads it too, members and messages are at the places that serde_json finds.
fn as_serde_finds(found: &Conversation) {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let Ok(text) = std::str::from_utf8(without_mark(&found.body)) else {
        return;
    };
    let Ok(members) = serde_json::from_str::<Members<'_>>(text) else {
        return;
    };
    let place = |raw: &RawValue| {
        let start = raw.get().as_ptr() as usize - found.body.as_ptr() as usize;
        Span::new(start, start + raw.get().len())
    };
    assert_eq!(found.fields.len(), members.len());
    for field in &found.fields {
        let key = String::from_utf8_lossy(found.raw_bytes(field.key)).into_owned();
        assert_eq!(field.value, place(members[&key]), "{key}");
    }
    let messages: Vec<&RawValue> = serde_json::from_str(members["messages"].get()).unwrap();
    let spans: Vec<_> = messages.into_iter().map(place).collect();
    let told: Vec<_> = found.items.iter().map(|message| message.span).collect();
    assert_eq!(told, spans);
}

fn answers_every_question(found: &Conversation) {
    let _ = (
        found.model(),
        found.asks_for_stream(),
        found.include_usage(),
    );
    let _ = (found.max_answer_tokens(), found.odd_annotations());
    for at in 0..found.items.len() {
        let _ = found.annotations_of(at);
    }
    let mut edits = Edits::default();
    found.ask_usage(&mut edits);
    found.take_out_annotations(&mut edits);
    let after = edits.apply(&found.body).to_bytes();
    if serde_json::from_slice::<IgnoredAny>(without_mark(&found.body)).is_ok() {
        let json = serde_json::from_slice::<IgnoredAny>(without_mark(&after));
        assert!(json.is_ok(), "{}", String::from_utf8_lossy(&after));
    }
    let _ = shallow_parse(&found.body);
}
