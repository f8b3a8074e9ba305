//! OpenAI's Responses over real sockets: guarded, followed and recovered as chat completions are.

mod apart;
mod compaction;
mod compaction_requests;
mod endpoints;
mod held_by_provider;
mod overflow;
mod plain;
mod recovery;
mod rounds;
mod sessions;

use serde_json::{Value, json};

use crate::support::{ProxyBuilder, RunningModel, model_with_early_levels};

const WINDOW: u32 = 20_000;

/// A proxy before model `m` with this window.
fn proxy_before(up: &RunningModel, window: u32) -> ProxyBuilder {
    let proxy = up.provider.proxy();
    proxy.model("m", model_with_early_levels(window))
}

/// A whole answer.
fn response(output: &[Value], tokens: u32) -> String {
    let usage = json!({"input_tokens": tokens, "input_tokens_details": {"cached_tokens": 1},
        "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens + 3});
    json!({"id": "resp_1", "object": "response", "status": "completed", "error": null,
        "incomplete_details": null, "model": "m", "output": output, "usage": usage})
    .to_string()
}

fn said(text: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

/// A step: a call, and its output.
fn step(id: &str, output: &str) -> [Value; 2] {
    [
        json!({"type": "function_call", "call_id": id, "name": "read_file",
            "arguments": "{\"path\":\"a\"}"}),
        json!({"type": "function_call_output", "call_id": id, "output": output}),
    ]
}

/// The entries of a request.
fn entries(body: &Value) -> &[Value] {
    body["input"].as_array().unwrap()
}

/// The entries of this type.
fn of_type<'a>(entries: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    entries.iter().filter(move |entry| entry["type"] == kind)
}
