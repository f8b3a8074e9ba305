//! Messages, calls, requests and answers of the Messages API, as the proxy writes them.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    conversation::Author,
    format::{ProxyToolCall, text_request::TextRequest, values::find_member},
};

pub(in crate::format) fn wrap_items(items: &[&str]) -> String {
    format!(r#"{{"messages":[{}]}}"#, write_entries(items))
}

/// Joins items to entries. Adjacent blocks share one entry: all results of an answer must be in one.
pub(in crate::format) fn write_entries(items: &[&str]) -> String {
    let runs = items.chunk_by(|item, next| is_block(item) && is_block(next));
    let entries = runs.map(|run| match run {
        [first, ..] if is_block(first) => {
            let blocks = run.join(",");
            format!(r#"{{"role":"user","content":[{blocks}]}}"#)
        }
        run => run.join(","),
    });
    entries.collect::<Vec<_>>().join(",")
}

/// Whether the JSON of an item is a block of an entry, and no entry.
fn is_block(item: &str) -> bool {
    find_member(item.as_bytes(), 0, b"role").is_none()
}

pub(in crate::format) fn text_item(author: Author, escaped: &str) -> String {
    let role = match author {
        Author::Model => "assistant",
        Author::System => "system",
        _ => "user",
    };
    format!(r#"{{"role":"{role}","content":"{escaped}"}}"#)
}

pub(in crate::format) fn calls_item(calls: &[&str]) -> String {
    let calls = calls.join(",");
    format!(r#"{{"role":"assistant","content":[{calls}]}}"#)
}

/// A call without its arguments.
pub(in crate::format) fn write_empty_call(call: &ProxyToolCall) -> Value {
    json!({"type": "tool_use", "id": &*call.id, "name": &*call.name, "input": {}})
}

/// Gives a call its id, and an object as its input.
pub(in crate::format) fn mend_call(call: &ProxyToolCall, json: &mut Value) {
    json["id"] = json!(call.id);
    json["input"] = serde_json::from_str(&call.object_text()).unwrap_or_default();
}

/// Writes a result as a block, which shares an entry with the other results of the same answer.
pub(in crate::format) fn result_item(call: &ProxyToolCall, text: &str) -> Box<str> {
    let block = json!({"type": "tool_result", "tool_use_id": &*call.id, "content": text});
    block.to_string().into()
}

pub(in crate::format) fn text_request(request: &TextRequest<'_>) -> Bytes {
    let body = json!({
        "model": request.model,
        "max_tokens": request.limit.tokens,
        "messages": [{"role": "user", "content": request.text}],
    });
    Bytes::from(body.to_string())
}
