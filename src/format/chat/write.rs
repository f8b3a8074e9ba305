//! Messages, calls, requests and answers of chat completions, as the proxy writes them.

use bytes::Bytes;
use serde_json::{Value, json};

use super::summary::usual_cap;
use crate::{
    conversation::{Author, Format},
    format::{ModelAnswer, ProxyToolCall, answer::usage::Usage, text_request::TextRequest},
};

pub(in crate::format) fn wrap_items(messages: &[&str]) -> String {
    format!(r#"{{"messages":[{}]}}"#, messages.join(","))
}

pub(in crate::format) fn text_item(author: Author, escaped: &str) -> String {
    let role = match author {
        Author::Model => "assistant",
        _ => "user",
    };
    format!(r#"{{"role":"{role}","content":"{escaped}"}}"#)
}

pub(in crate::format) fn text_block(escaped: &str) -> String {
    format!(r#"{{"type":"text","text":"{escaped}"}}"#)
}

pub(in crate::format) fn calls_item(calls: &[&str]) -> String {
    let calls = calls.join(",");
    format!(r#"{{"role":"assistant","content":null,"tool_calls":[{calls}]}}"#)
}

/// Reduces an answer to its calls, or to its continuation block.
pub(in crate::format) fn reduce_answer(said: &ModelAnswer, max_argument_bytes: usize) -> Box<str> {
    let calls = &said.proxy_calls;
    let is_legacy = calls.first().is_some_and(|call| call.legacy);
    let calls = calls
        .iter()
        .map(|it| Format::Chat.write_call(it, max_argument_bytes));
    let calls: Vec<_> = calls.collect();
    let calls: Vec<&str> = calls.iter().map(|call| &**call).collect();
    match (&calls[..], &said.package) {
        ([call], _) if is_legacy => {
            format!(r#"{{"role":"assistant","content":null,"function_call":{call}}}"#)
        }
        ([], Some(package)) => json!({"role": "assistant", "content": &*package.text}).to_string(),
        _ => calls_item(&calls),
    }
    .into()
}

/// A call without its arguments.
pub(in crate::format) fn write_empty_call(call: &ProxyToolCall) -> Value {
    let function = json!({"name": &*call.name, "arguments": "{}"});
    if call.legacy {
        function
    } else {
        json!({"id": &*call.id, "type": "function", "function": function})
    }
}

/// Gives a call its id, and the text of an object as its arguments.
pub(in crate::format) fn mend_call(call: &ProxyToolCall, json: &mut Value) {
    let arguments = call.object_text().into();
    if call.legacy {
        json["arguments"] = arguments;
        return;
    }
    (json["id"], json["type"]) = (json!(call.id), "function".into());
    json["function"]["arguments"] = arguments;
}

pub(in crate::format) fn result_item(call: &ProxyToolCall, text: &str) -> Box<str> {
    let message = if call.legacy {
        json!({"role": "function", "name": &*call.name, "content": text})
    } else {
        json!({"role": "tool", "tool_call_id": &*call.id, "content": text})
    };
    message.to_string().into()
}

pub(in crate::format) fn text_request(request: &TextRequest<'_>) -> Bytes {
    let body = json!({
        "model": request.model,
        "messages": [{"role": "user", "content": request.text}],
        usual_cap(request.limit): request.limit.tokens,
    });
    Bytes::from(body.to_string())
}

/// Writes an answer without content that ends properly. Without an end, the client would report an error or wait for
/// ever.
pub(in crate::format) fn empty_answer(streamed: bool, model: &str, usage: Option<Usage>) -> Bytes {
    let empty_message = json!({"role": "assistant", "content": ""});
    let (object, member, message) = if streamed {
        ("chat.completion.chunk", "delta", json!({}))
    } else {
        ("chat.completion", "message", empty_message)
    };
    let mut body: Value = json!({
        "id": "chatcmpl-plimsoll", "object": object, "created": 0, "model": model,
        "choices": [{"index": 0, member: message, "finish_reason": "stop"}],
    });
    // The usage is not in a chunk of its own: a client that did not ask for such a chunk may fail on it.
    if let Some(Usage {
        prompt_tokens: tokens,
        ..
    }) = usage
    {
        body["usage"] =
            json!({"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens});
    }
    if streamed {
        Bytes::from(format!("data: {body}\n\ndata: [DONE]\n\n"))
    } else {
        Bytes::from(body.to_string())
    }
}
