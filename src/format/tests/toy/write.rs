//! Entries and requests of the toy format, as the proxy writes them.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    conversation::Author,
    format::{ProxyToolCall, text_request::TextRequest},
    json::text,
};

pub(in crate::format) fn wrap_items(entries: &[&str]) -> String {
    format!(r#"{{"log":[{}]}}"#, entries.join(","))
}

pub(in crate::format) fn text_item(author: Author, escaped: &str) -> String {
    let who = match author {
        Author::Model => "machine",
        _ => "person",
    };
    format!(r#"{{"who":"{who}","says":{{"words":"{escaped}"}}}}"#)
}

pub(in crate::format) fn text_block(escaped: &str) -> String {
    format!(r#"{{"line":"{escaped}"}}"#)
}

pub(in crate::format) fn calls_item(calls: &[&str]) -> String {
    let calls = calls.join(",");
    format!(r#"{{"who":"machine","says":{{"words":false}},"wants":[{calls}]}}"#)
}

pub(in crate::format) const fn mend_call(_: &ProxyToolCall, _: &mut Value) {}

pub(in crate::format) fn result_item(call: &ProxyToolCall, text: &str) -> Box<str> {
    let entry = json!({"who": "report", "for": &*call.id, "says": {"words": text}});
    entry.to_string().into()
}

pub(in crate::format) fn text_request(request: &TextRequest<'_>) -> Bytes {
    let text = text::escape_text(request.text);
    let entry = text_item(Author::User, &text);
    let (engine, limit) = (json!(request.model), request.limit.tokens);
    Bytes::from(format!(
        r#"{{"engine":{engine},"log":[{entry}],"reply_limit":{limit}}}"#
    ))
}

pub(in crate::format) fn write_empty_call(call: &ProxyToolCall) -> Value {
    serde_json::from_str(&call.json).unwrap_or_default()
}
