//! Entries, calls and requests of the Responses API, as the proxy writes them. None of them has an `id`: the provider
//! knows only the ids that it made itself.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    conversation::Author,
    format::{ProxyToolCall, text_request::TextRequest},
};

pub(in crate::format) fn wrap_items(entries: &[&str]) -> String {
    format!(r#"{{"input":[{}]}}"#, entries.join(","))
}

/// Writes a message. A text of the system has the role `developer`, since some servers refuse `system` in the list.
pub(in crate::format) fn text_item(author: Author, escaped: &str) -> String {
    let (role, kind) = match author {
        Author::Model => ("assistant", "output_text"),
        Author::System => ("developer", "input_text"),
        _ => ("user", "input_text"),
    };
    format!(
        r#"{{"type":"message","role":"{role}","content":[{{"type":"{kind}","text":"{escaped}"}}]}}"#
    )
}

/// For the messages of a client, and for outputs.
pub(in crate::format) fn text_block(escaped: &str) -> String {
    format!(r#"{{"type":"input_text","text":"{escaped}"}}"#)
}

/// Each call is an entry.
pub(in crate::format) fn calls_item(calls: &[&str]) -> String {
    calls.join(",")
}

/// A call without its arguments.
pub(in crate::format) fn write_empty_call(call: &ProxyToolCall) -> Value {
    let (id, name) = (&*call.id, &*call.name);
    json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"})
}

/// Gives a call its id, and the text of an object as its arguments.
pub(in crate::format) fn mend_call(call: &ProxyToolCall, json: &mut Value) {
    json["call_id"] = json!(call.id);
    json["arguments"] = call.object_text().into();
}

pub(in crate::format) fn result_item(call: &ProxyToolCall, text: &str) -> Box<str> {
    let output = json!({"type": "function_call_output", "call_id": &*call.id, "output": text});
    output.to_string().into()
}

pub(in crate::format) fn text_request(request: &TextRequest<'_>) -> Bytes {
    let text = json!({"type": "input_text", "text": request.text});
    let body = json!({
        "model": request.model,
        "max_output_tokens": request.limit.tokens,
        "store": false,
        "input": [{"type": "message", "role": "user", "content": [text]}],
    });
    Bytes::from(body.to_string())
}
