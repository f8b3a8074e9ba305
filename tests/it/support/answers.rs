//! Whole answers of the three formats.

use plimsoll::{conversation::Format, guard::profile::find_profile};
use serde_json::{Value, json};

use super::{ProxyBuilder, ScriptedProvider};

/// The formats, the paths of their requests, the member with their messages, and a profile that speaks them.
pub(crate) const WAYS: [(Format, &str, &str, &str); 3] = [
    (Format::Chat, "/v1/chat/completions", "messages", "openai"),
    (Format::Messages, "/v1/messages", "messages", "anthropic"),
    (Format::Responses, "/v1/responses", "input", "openai"),
];

/// A proxy before `up` with this profile.
pub(crate) fn proxy_with_profile(up: &ScriptedProvider, profile: &str) -> ProxyBuilder {
    let profile = find_profile(profile).unwrap();
    up.proxy().providers(|provider| provider.profile = profile)
}

/// An answer with these calls, or else this text; its tokens of prompt and answer.
pub(crate) fn whole_answer(
    format: Format,
    text: &str,
    calls: &[(&str, Value)],
    (prompt, made): (u32, u32),
) -> String {
    let ids = |at: usize| format!("call_{prompt}_{at}");
    let calls = calls.iter().enumerate();
    let ends_with_calls = calls.len() > 0;
    match format {
        Format::Chat => {
            let calls: Vec<Value> = calls
                .map(|(at, (name, arguments))| {
                    let function = json!({"name": name, "arguments": arguments.to_string()});
                    json!({"id": ids(at), "type": "function", "function": function})
                })
                .collect();
            let message = if ends_with_calls {
                json!({"role": "assistant", "content": null, "tool_calls": calls})
            } else {
                json!({"role": "assistant", "content": text})
            };
            let reason = if ends_with_calls {
                "tool_calls"
            } else {
                "stop"
            };
            let usage = json!({"prompt_tokens": prompt, "completion_tokens": made,
                "total_tokens": prompt + made});
            json!({"id": "c", "object": "chat.completion", "usage": usage,
                "choices": [{"index": 0, "message": message, "finish_reason": reason}]})
        }
        Format::Messages => {
            let said = json!({"type": "text", "text": text});
            let calls = calls.map(|(at, (name, input))| {
                json!({"type": "tool_use", "id": ids(at), "name": name, "input": input})
            });
            let mut content: Vec<Value> = calls.collect();
            if !ends_with_calls {
                content.push(said);
            }
            let reason = if ends_with_calls {
                "tool_use"
            } else {
                "end_turn"
            };
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": content, "stop_reason": reason, "stop_sequence": null,
                "usage": {"input_tokens": prompt, "output_tokens": made}})
        }
        Format::Responses => {
            let said = json!({"type": "output_text", "text": text, "annotations": []});
            let calls = calls.map(|(at, (name, arguments))| {
                json!({"type": "function_call", "id": format!("fc_{}", ids(at)), "call_id": ids(at),
                    "name": name, "arguments": arguments.to_string(), "status": "completed"})
            });
            let mut output: Vec<Value> = calls.collect();
            if !ends_with_calls {
                output.push(
                    json!({"type": "message", "id": "msg_1", "role": "assistant",
                    "status": "completed", "content": [said]}),
                );
            }
            json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m",
                "output": output, "usage": {"input_tokens": prompt, "output_tokens": made,
                "total_tokens": prompt + made}})
        }
    }
    .to_string()
}

/// A tool of the client's, as the format defines it.
pub(crate) fn client_tool(format: Format) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    match format {
        Format::Chat => json!({"type": "function",
            "function": {"name": "read_file", "parameters": schema}}),
        Format::Messages => json!({"name": "read_file", "input_schema": schema}),
        Format::Responses => json!({"type": "function", "name": "read_file", "parameters": schema}),
    }
}
