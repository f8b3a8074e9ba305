//! Answers and events of Responses, as the proxy writes them.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::format::{error_body::ErrorBody, usage::Usage};

/// An error as the last event of a stream. Clients read it there, and not from an event of the type `error`: Codex
/// takes only this one for a full window.
pub fn error_event(error: &ErrorBody) -> Bytes {
    let code = error.code.as_deref().unwrap_or("server_error");
    let mut response = make_response("failed", "", None);
    response["error"] = json!({"code": code, "message": error.message});
    write_events(&[("response.failed", response)])
}

/// The end of an answer without output. Without it, the client would report an error or wait for ever.
pub fn empty_answer(streamed: bool, model: &str, usage: Option<Usage>) -> Bytes {
    let completed = make_response("completed", model, usage);
    if !streamed {
        return Bytes::from(completed.to_string());
    }
    let begun = make_response("in_progress", model, None);
    write_events(&[
        ("response.created", begun),
        ("response.completed", completed),
    ])
}

fn make_response(status: &str, model: &str, usage: Option<Usage>) -> Value {
    let usage = usage.map(|usage| {
        let output = usage.completion_tokens.unwrap_or(0);
        json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cached_tokens.unwrap_or(0),
                "cache_write_tokens": usage.cache_written_tokens.unwrap_or(0),
            },
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens.saturating_add(output),
        })
    });
    json!({
        "id": "resp_plimsoll", "object": "response", "created_at": 0, "status": status, "model": model,
        "output": [], "error": null, "incomplete_details": null, "usage": usage,
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
    })
}

fn write_events(events: &[(&str, Value)]) -> Bytes {
    let write = |(number, (name, response)): (usize, &(&str, Value))| {
        let event = json!({"type": name, "sequence_number": number, "response": response});
        format!("event: {name}\ndata: {event}\n\n")
    };
    Bytes::from(events.iter().enumerate().map(write).collect::<String>())
}
