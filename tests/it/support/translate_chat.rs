//! Chat completions as requests in the other formats, for the benches: in Messages with the cache markers of Claude Code.

use plimsoll::conversation::Format;
use serde_json::{Map, Value, json};

/// The same conversation in a format. `marks`: a client of Messages sets cache markers.
pub(crate) fn translate_chat(body: &[u8], format: Format, marks: bool) -> Vec<u8> {
    match format {
        Format::Messages => chat_to_messages(body, marks),
        Format::Responses => chat_to_responses(body),
        _ => body.to_vec(),
    }
}

/// The same without cache markers.
pub(crate) fn translate_unmarked(body: &[u8], format: Format) -> Vec<u8> {
    translate_chat(body, format, false)
}

/// The same conversation in Messages. `marks`: the client marks its last system block, and the last block of its last
/// two user entries.
fn chat_to_messages(body: &[u8], marks: bool) -> Vec<u8> {
    let chat: Value = serde_json::from_slice(body).expect("a generated body is JSON");
    let mut system = Vec::new();
    let mut entries: Vec<Value> = Vec::new();
    for message in chat["messages"].as_array().into_iter().flatten() {
        match message["role"].as_str().unwrap_or_default() {
            "system" | "developer" if entries.is_empty() => system.extend(blocks(message)),
            "assistant" => {
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                let blocks = blocks(message).into_iter().chain(calls.map(tool_use));
                let content: Vec<_> = blocks.collect();
                entries.push(json!({"role": "assistant", "content": content}));
            }
            "tool" => {
                let result = json!({"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": blocks(message)});
                push_user(&mut entries, vec![result]);
            }
            "user" => push_user(&mut entries, blocks(message)),
            _ => {}
        }
    }
    if marks {
        mark(system.last_mut());
        let users = entries.iter_mut().rev().filter(|it| it["role"] == "user");
        for entry in users.take(2) {
            mark(entry["content"].as_array_mut().and_then(|it| it.last_mut()));
        }
    }
    let tools = chat["tools"].as_array().into_iter().flatten();
    let tools = tools.map(|tool| {
        let function = &tool["function"];
        json!({"name": function["name"], "description": function["description"], "input_schema": function["parameters"]})
    });
    let mut made = Map::new();
    made.insert("model".into(), json!("claude-sonnet-5"));
    made.insert("max_tokens".into(), json!(8_000));
    made.insert("system".into(), system.into());
    made.insert("tools".into(), tools.collect());
    made.insert("messages".into(), entries.into());
    Value::from(made).to_string().into_bytes()
}

/// The same conversation in Responses. Leading system messages are the instructions.
fn chat_to_responses(body: &[u8]) -> Vec<u8> {
    let chat: Value = serde_json::from_slice(body).expect("a generated body is JSON");
    let mut instructions = String::new();
    let mut entries: Vec<Value> = Vec::new();
    for message in chat["messages"].as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or_default();
        match role {
            "system" | "developer" if entries.is_empty() => {
                let texts = blocks(message).into_iter();
                texts.for_each(|it| instructions += it["text"].as_str().unwrap_or_default());
            }
            "tool" => entries.push(json!({
                "type": "function_call_output", "call_id": message["tool_call_id"],
                "output": parts(message, "input_text"),
            })),
            _ => {
                let kind = if role == "assistant" {
                    "output_text"
                } else {
                    "input_text"
                };
                let content = parts(message, kind);
                if !content.is_empty() {
                    entries.push(json!({"type": "message", "role": role, "content": content}));
                }
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                entries.extend(calls.map(|call| {
                    let function = &call["function"];
                    json!({"type": "function_call", "call_id": call["id"], "name": function["name"], "arguments": function["arguments"]})
                }));
            }
        }
    }
    let tools = chat["tools"].as_array().into_iter().flatten();
    let tools: Vec<_> = tools
        .map(|tool| {
            let mut made = tool["function"].clone();
            made["type"] = "function".into();
            made
        })
        .collect();
    let made = json!({"model": "gpt-5.5", "max_output_tokens": 8_000, "store": false,
        "instructions": instructions, "tools": tools, "input": entries});
    made.to_string().into_bytes()
}

/// The blocks of a message as parts of Responses, whose texts are of this kind.
fn parts(message: &Value, kind: &str) -> Vec<Value> {
    let parts = blocks(message)
        .into_iter()
        .map(|block| match block["type"].as_str() {
            Some("image") => json!({"type": "input_image", "image_url": block["source"]["url"]}),
            _ => json!({"type": kind, "text": block["text"]}),
        });
    parts.collect()
}

/// Results stand first in the entry after their calls.
fn push_user(entries: &mut Vec<Value>, blocks: Vec<Value>) {
    match entries.last_mut() {
        Some(last) if last["role"] == "user" => {
            if let Some(content) = last["content"].as_array_mut() {
                content.extend(blocks);
            }
        }
        _ => entries.push(json!({"role": "user", "content": blocks})),
    }
}

fn blocks(message: &Value) -> Vec<Value> {
    let text = |text: &str| json!({"type": "text", "text": text});
    match &message["content"] {
        Value::String(only) if !only.is_empty() => vec![text(only)],
        Value::Array(parts) => {
            let parts = parts.iter();
            let parts = parts.filter_map(|part| match part["type"].as_str() {
                Some("text") => part["text"].as_str().filter(|it| !it.is_empty()).map(text),
                Some("image_url") => {
                    let source = json!({"type": "url", "url": part["image_url"]["url"]});
                    Some(json!({"type": "image", "source": source}))
                }
                _ => None,
            });
            parts.collect()
        }
        _ => Vec::new(),
    }
}

fn tool_use(call: &Value) -> Value {
    let function = &call["function"];
    let input = function["arguments"].as_str();
    let input = input.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let input = input.filter(Value::is_object).unwrap_or_else(|| json!({}));
    json!({"type": "tool_use", "id": call["id"], "name": function["name"], "input": input})
}

fn mark(block: Option<&mut Value>) {
    if let Some(block) = block {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
}
