//! Anthropic's Messages over real sockets: guarded, followed and recovered as chat completions are.

mod errors;
mod keys;
mod markers;
mod plain;
mod recovery;
mod sessions;
mod threads;

use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};

use crate::support::{ProxyBuilder, RunningModel, model_with_early_levels};

const WINDOW: u32 = 20_000;

/// A proxy before model `m` with this window.
fn proxy_before(up: &RunningModel, window: u32) -> ProxyBuilder {
    let profile = find_profile("anthropic").unwrap();
    let proxy = up.provider.proxy();
    let proxy = proxy.providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    });
    proxy.model("m", model_with_early_levels(window))
}

/// A whole answer.
fn message(content: &[Value], stop: &str, tokens: u32) -> String {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": tokens, "output_tokens": 3}})
    .to_string()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A step: a call, and its result.
fn step(id: &str, result: &str) -> [Value; 2] {
    let call = json!({"type": "tool_use", "id": id, "name": "read_file", "input": {"path": "a"}});
    let result = json!({"type": "tool_result", "tool_use_id": id, "content": result});
    [
        json!({"role": "assistant", "content": [call]}),
        json!({"role": "user", "content": [result]}),
    ]
}
