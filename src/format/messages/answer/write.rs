//! Answers and events of Messages, as the proxy writes them.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::format::{answer::usage::Usage, errors::error_body::ErrorBody};

/// The types that clients know; any other error is the server's fault.
const ERROR_TYPES: [&str; 9] = [
    "authentication_error",
    "billing_error",
    "invalid_request_error",
    "not_found_error",
    "overloaded_error",
    "permission_error",
    "rate_limit_error",
    "request_too_large",
    "timeout_error",
];

/// The type of an error of this status (Anthropic's page on errors).
pub fn error_kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}

/// The code of Anthropic's error for a request that a thread cannot take. The details of the error list the reasons. The
/// proxy names a setting of the server there, so that clients leave out `thread` and no other member.
const THREAD_CODE: &str = "thread_unsupported_request";

/// An error as the body of an answer.
pub fn error_json(error: &ErrorBody) -> Vec<u8> {
    let kind = match error.kind.as_deref() {
        // As OpenAI names it.
        Some("requests") => "rate_limit_error",
        Some(kind) if ERROR_TYPES.contains(&kind) => kind,
        _ => "api_error",
    };
    let mut body = json!({
        "type": "error",
        "error": {"type": kind, "message": error.message},
    });
    if error.code.as_deref() == Some(THREAD_CODE) {
        body["error"]["details"] =
            json!({"error_code": THREAD_CODE, "unsupported": ["inference_hooks"]});
    }
    body.to_string().into_bytes()
}

/// An error as an event of a stream.
pub fn error_event(error: &ErrorBody) -> Bytes {
    let event = [b"event: error\ndata: ", &error_json(error)[..], b"\n\n"];
    event.concat().into()
}

/// Writes an answer without content that ends properly. Without an end, the client would report an error or wait for
/// ever.
pub fn empty_answer(streamed: bool, model: &str, usage: Option<Usage>) -> Bytes {
    let mut counts = json!({"input_tokens": 0, "output_tokens": 0});
    if let Some(usage) = usage {
        let cached = usage.cached_tokens.unwrap_or(0);
        let written = usage.cache_written_tokens.unwrap_or(0);
        let uncached = usage
            .prompt_tokens
            .saturating_sub(cached.saturating_add(written));
        counts["input_tokens"] = uncached.into();
        counts["cache_read_input_tokens"] = cached.into();
        counts["cache_creation_input_tokens"] = written.into();
    }
    let mut message = json!({
        "id": "msg_plimsoll", "type": "message", "role": "assistant", "model": model,
        "content": [], "stop_reason": "end_turn", "stop_sequence": null, "usage": counts,
    });
    if !streamed {
        return Bytes::from(message.to_string());
    }
    message["stop_reason"] = Value::Null;
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({
            "type": "message_delta", "usage": counts,
            "delta": {"stop_reason": "end_turn", "stop_sequence": null},
        }),
        json!({"type": "message_stop"}),
    ];
    let write = |event: &Value| {
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    };
    Bytes::from(events.iter().map(write).collect::<String>())
}
