//! Chat completions through a gateway: the request that it makes of them, the answer that it passes on, and how it
//! wraps a refusal.

use serde_json::{Value, json};

use super::BoundApi;

/// The Messages request that a gateway makes of a chat completion.
pub(super) fn to_messages(body: &Value) -> Value {
    let mut system = Vec::new();
    let mut entries: Vec<Value> = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        match message["role"].as_str().unwrap_or_default() {
            "system" | "developer" if entries.is_empty() => {
                system.extend(text_blocks(&message["content"]))
            }
            "tool" => {
                let result = json!({"type": "tool_result", "tool_use_id": message["tool_call_id"],
                    "content": text_blocks(&message["content"])});
                let last = entries.last_mut().map(|entry| &mut entry["content"]);
                match last.and_then(Value::as_array_mut) {
                    Some(blocks) if blocks.iter().all(|block| block["type"] == "tool_result") => {
                        blocks.push(result)
                    }
                    _ => entries.push(json!({"role": "user", "content": [result]})),
                }
            }
            "assistant" => {
                let content = read_answer(message);
                entries.push(json!({"role": "assistant", "content": content}));
            }
            role => {
                entries.push(json!({"role": role, "content": text_blocks(&message["content"])}))
            }
        }
    }
    let mut request = json!({"model": body["model"], "system": system, "messages": entries,
        "stream": body["stream"]});
    if body["tools"].is_array() {
        request["tools"] = body["tools"].clone();
    }
    request
}

fn text_blocks(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) if !text.is_empty() => vec![json!({"type": "text", "text": text})],
        Value::Array(parts) => parts.clone(),
        _ => Vec::new(),
    }
}

fn read_answer(message: &Value) -> Vec<Value> {
    let list = |key: &str| message[key].as_array().cloned().unwrap_or_default();
    let details = list("reasoning_details").into_iter().filter_map(|detail| {
        match detail["type"].as_str()? {
            "reasoning.text" => Some(json!({"type": "thinking", "thinking": detail["text"],
            "signature": detail["signature"]})),
            "reasoning.encrypted" => {
                Some(json!({"type": "redacted_thinking", "data": detail["data"]}))
            }
            _ => None,
        }
    });
    let calls = list("tool_calls").into_iter().map(|call| {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let input: Value = serde_json::from_str(arguments).unwrap_or_default();
        json!({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": input})
    });
    let thoughts = list("thinking_blocks").into_iter().chain(details);
    thoughts
        .chain(text_blocks(&message["content"]))
        .chain(calls)
        .collect()
}

/// A chat message has its thinking first, then one text, then its calls.
pub(super) fn order_blocks(blocks: &mut Vec<Value>) {
    let texts: String = blocks
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect();
    blocks.retain(|block| block["type"] != "text");
    if !texts.is_empty() {
        blocks.push(json!({"type": "text", "text": texts}));
    }
    blocks.sort_by_key(|block| match block["type"].as_str() {
        Some("text") => 1,
        Some("tool_use") => 2,
        _ => 0,
    });
}

pub(super) fn to_completion(message: &Value, api: BoundApi) -> Value {
    let blocks = || message["content"].as_array().into_iter().flatten();
    let of_kind = |kind: &'static str| blocks().filter(move |block| block["type"] == kind);
    let text = of_kind("text")
        .next()
        .map_or(Value::Null, |block| block["text"].clone());
    let mut said = json!({"role": "assistant", "content": text});
    let calls: Vec<Value> = of_kind("tool_use")
        .map(|call| {
            json!({"id": call["id"], "type": "function",
                "function": {"name": call["name"], "arguments": call["input"].to_string()}})
        })
        .collect();
    let finish = if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    if !calls.is_empty() {
        said["tool_calls"] = calls.into();
    }
    let thoughts: Vec<&Value> = blocks()
        .filter(|block| !block["thinking"].is_null() || !block["data"].is_null())
        .collect();
    let words: String = thoughts
        .iter()
        .filter_map(|block| block["thinking"].as_str())
        .collect();
    match api {
        _ if thoughts.is_empty() => {}
        BoundApi::ThinkingBlocks => {
            said["thinking_blocks"] = thoughts.into_iter().cloned().collect();
            said["reasoning_content"] = words.into();
        }
        _ => {
            let details = thoughts.iter().enumerate().map(|(index, block)| if block["data"].is_null() {
                json!({"type": "reasoning.text", "text": block["thinking"], "signature": block["signature"],
                    "format": "anthropic-claude-v1", "index": index})
            } else {
                json!({"type": "reasoning.encrypted", "data": block["data"],
                    "format": "anthropic-claude-v1", "index": index})
            });
            said["reasoning_details"] = details.collect();
            said["reasoning"] = words.into();
        }
    }
    json!({"id": message["id"], "object": "chat.completion", "created": 1, "model": message["model"],
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}})
}

/// As OpenRouter passes on a provider's refusal.
pub(super) fn wrap_refusal(body: &Value) -> Value {
    json!({"error": {"message": "Provider returned error", "code": 400,
        "metadata": {"raw": body.to_string(), "provider_name": "Anthropic"}}})
}
