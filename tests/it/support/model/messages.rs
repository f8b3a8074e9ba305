//! A model that speaks Anthropic's Messages: its requests as those of chat completions, so that the same reply rules
//! hold, and its answers.

use serde_json::{Value, json};

use super::{
    ModelCall,
    dialect::{ANSWER_TOKENS, Dialect, ReplyWriter},
    render::split_pieces,
};
use crate::support::{
    provider::{ProviderStep, answer},
    strict,
};

pub(crate) const DIALECT: Dialect = Dialect {
    find_violations: strict::messages::find_violations,
    view: view_as_chat,
    refuse: refuse_as_anthropic,
    fail,
    write: |writer, text, calls| {
        let message = writer.write_message(text, calls);
        let events = message_events(&message, writer.fragment);
        (message, events)
    },
};

/// What a model reads of a request, in the shape of chat completions.
fn view_as_chat(body: &Value) -> Value {
    let entries = || body["messages"].as_array().into_iter().flatten();
    let mut view = json!({"stream": body["stream"]});
    let added = entries().flat_map(|entry| entry["content"].as_array().into_iter().flatten());
    let added = added.filter(|block| block["type"] == "tool_addition");
    let added = added.map(|block| &block["tool"]["definition"]);
    if let Some(tools) = body["tools"].as_array() {
        let tools = tools.iter().chain(added).map(|tool| {
            json!({"type": "function", "function": {"name": tool["name"],
                "description": tool["description"], "parameters": tool["input_schema"]}})
        });
        view["tools"] = tools.collect();
    }
    let mut messages = vec![json!({"role": "system", "content": text_of(&body["system"])})];
    for entry in entries() {
        let blocks = || entry["content"].as_array().into_iter().flatten();
        let of_kind = |kind: &'static str| blocks().filter(move |block| block["type"] == kind);
        for result in of_kind("tool_result") {
            let text = text_of(&result["content"]);
            messages.push(
                json!({"role": "tool", "tool_call_id": result["tool_use_id"], "content": text}),
            );
        }
        let calls: Vec<Value> = of_kind("tool_use")
            .map(|call| {
                let arguments = call["input"].to_string();
                json!({"id": call["id"], "type": "function",
                    "function": {"name": call["name"], "arguments": arguments}})
            })
            .collect();
        let text = text_of(&entry["content"]);
        if !calls.is_empty() {
            messages.push(json!({"role": "assistant", "content": text, "tool_calls": calls}));
        } else if !text.is_empty() {
            // A system entry in the midst speaks to the model as a user does.
            let role = if entry["role"] == "assistant" {
                "assistant"
            } else {
                "user"
            };
            messages.push(json!({"role": role, "content": text}));
        }
    }
    view["messages"] = messages.into();
    view
}

pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().map(|block| {
                let thought = block["thinking"].as_str();
                block["text"].as_str().or(thought).unwrap_or("")
            });
            texts
                .filter(|it| !it.is_empty())
                .collect::<Vec<_>>()
                .join("\n")
        }
        _ => String::new(),
    }
}

/// Anthropic's refusal of a prompt.
fn refuse_as_anthropic(window: u32, tokens: u64) -> Vec<ProviderStep> {
    fail(
        400,
        "invalid_request_error",
        &format!("prompt is too long: {tokens} tokens > {window} maximum"),
    )
}

fn fail(status: u16, kind: &str, message: &str) -> Vec<ProviderStep> {
    let body = json!({"type": "error", "error": {"type": kind, "message": message},
        "request_id": "req_1"});
    vec![answer(&format!("{status} Refused"), "", body.to_string())]
}

impl ReplyWriter<'_> {
    /// With thinking where the request asks for it.
    fn write_message(&self, text: &str, calls: &[ModelCall]) -> Value {
        let mut content = Vec::new();
        if self.body["thinking"].is_object() {
            let thought = format!("thought {} \u{fc}\u{2192}", self.nth);
            content.push(json!({"type": "thinking", "thinking": thought,
                "signature": format!("sig-{}==", self.nth)}));
        }
        if !text.is_empty() {
            content.push(json!({"type": "text", "text": text}));
        }
        content.extend(calls.iter().map(|call| {
            let input: Value =
                serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
        }));
        let stop = if calls.is_empty() {
            "end_turn"
        } else {
            "tool_use"
        };
        // What is read from a cache counts too.
        let cached = self.tokens / 2;
        json!({"id": format!("msg_{}", self.nth), "type": "message", "role": "assistant",
            "model": "m", "content": content, "stop_reason": stop, "stop_sequence": null,
            "usage": {"input_tokens": self.tokens - cached, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": cached, "output_tokens": ANSWER_TOKENS}})
    }
}

/// The events of a whole answer, in fragments of at least so many bytes.
pub(crate) fn message_events(message: &Value, fragment: usize) -> String {
    let mut events = String::new();
    let mut push = |mut data: Value, kind: &str| {
        data["type"] = kind.into();
        events.push_str(&format!("event: {kind}\ndata: {data}\n\n"));
    };
    let mut started = message.clone();
    (started["content"], started["stop_reason"]) = (json!([]), Value::Null);
    started["usage"]["output_tokens"] = 1.into();
    let edits = started
        .as_object_mut()
        .and_then(|it| it.remove("context_management"));
    push(json!({ "message": started }), "message_start");
    push(json!({}), "ping");
    for (index, block) in message["content"].as_array().unwrap().iter().enumerate() {
        let mut empty = block.clone();
        let whole = match block["type"].as_str().unwrap() {
            "tool_use" => {
                empty["input"] = json!({});
                (
                    "input_json_delta",
                    "partial_json",
                    block["input"].to_string(),
                )
            }
            "thinking" => {
                (empty["thinking"], empty["signature"]) = ("".into(), "".into());
                let thought = block["thinking"].as_str().unwrap();
                ("thinking_delta", "thinking", thought.to_owned())
            }
            "redacted_thinking" => ("", "", String::new()),
            _ => {
                empty["text"] = "".into();
                (
                    "text_delta",
                    "text",
                    block["text"].as_str().unwrap().to_owned(),
                )
            }
        };
        push(
            json!({"index": index, "content_block": empty}),
            "content_block_start",
        );
        let (kind, key, whole) = whole;
        for piece in split_pieces(&whole, fragment) {
            let mut delta = json!({ "type": kind });
            delta[key] = piece.into();
            push(
                json!({"index": index, "delta": delta}),
                "content_block_delta",
            );
        }
        if let Some(signature) = block.get("signature") {
            let delta = json!({"type": "signature_delta", "signature": signature});
            push(
                json!({"index": index, "delta": delta}),
                "content_block_delta",
            );
        }
        push(json!({ "index": index }), "content_block_stop");
    }
    let delta = json!({"stop_reason": message["stop_reason"], "stop_sequence": null});
    let mut last = json!({"delta": delta, "usage": {"output_tokens": ANSWER_TOKENS}});
    if let Some(edits) = edits {
        last["context_management"] = edits;
    }
    push(last, "message_delta");
    push(json!({}), "message_stop");
    events
}
