//! Answers and events of Messages, as the proxy writes them.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::format::{error_body::ErrorBody, usage::Usage};

/// An error as an event of a stream.
pub fn error_event(error: &ErrorBody) -> Bytes {
    // Clients know only the types of the API; others are the provider's fault.
    let kind = error
        .kind
        .as_deref()
        .filter(|kind| kind.ends_with("_error"));
    let kind = kind.filter(|kind| !matches!(*kind, "provider_error" | "server_error"));
    let event = json!({
        "type": "error",
        "error": {"type": kind.unwrap_or("api_error"), "message": error.message},
    });
    Bytes::from(format!("event: error\ndata: {event}\n\n"))
}

/// The end of an answer without content. Without it, the client would report an error or wait for
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
