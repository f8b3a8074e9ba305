//! Conversations for tests, indexed from the JSON that a client would send.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{conversation::Conversation, format::chat};

/// A request with these messages.
pub(in crate::session) fn conversation(messages: &[Value]) -> Conversation {
    let body = json!({ "model": "m", "messages": messages });
    chat::index_body(Bytes::from(body.to_string())).unwrap()
}

/// A request with these top-level members, as raw JSON, and one message.
pub(in crate::session) fn with_fields(fields: &[(&str, &str)]) -> Conversation {
    let mut body = String::from(r#"{"messages":[{"role":"user","content":"hi"}]"#);
    for (name, value) in fields {
        body.push_str(&format!(r#","{name}":{value}"#));
    }
    body.push('}');
    chat::index_body(Bytes::from(body)).unwrap()
}

/// The digest of an answer, as the relay computes it.
pub(in crate::session) fn answer_digest(answer: &Value) -> u128 {
    conversation(std::slice::from_ref(answer)).items[0].short_digest
}

pub(in crate::session) fn system(text: &str) -> Value {
    json!({ "role": "system", "content": text })
}

pub(in crate::session) fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

pub(in crate::session) fn assistant(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

/// An answer that calls `read` with these arguments, spelled as given.
pub(in crate::session) fn call(id: &str, arguments: &str) -> Value {
    let function = json!({ "name": "read", "arguments": arguments });
    let calls = json!([{ "id": id, "type": "function", "function": function }]);
    json!({ "role": "assistant", "content": null, "tool_calls": calls })
}

pub(in crate::session) fn result(id: &str, text: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": text })
}
