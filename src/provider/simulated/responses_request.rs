//! Reads a request of OpenAI's Responses, and refuses it where OpenAI would.
//!
//! The scripted agent reads chat completions, so a valid request is rewritten to one: what one answer gave becomes one
//! assistant message, with the outputs of its calls behind it.

use serde_json::{Value, json};

use super::request::SimulatedRefusal;

/// The request as a chat completion.
///
/// # Errors
/// The first reason why OpenAI would refuse the request.
pub(super) fn rewrite_request(body: &Value) -> Result<Value, SimulatedRefusal> {
    if let Some(id) = body["previous_response_id"].as_str() {
        return Err(SimulatedRefusal {
            code: Some("previous_response_not_found"),
            ..SimulatedRefusal::for_parameter(
                "previous_response_id",
                format!("Previous response with id '{id}' not found."),
            )
        });
    }
    let mut messages = Vec::new();
    if let Some(text) = body["instructions"].as_str() {
        messages.push(json!({"role": "system", "content": text}));
    }
    let mut tools = list_tools(&body["tools"]);
    match &body["input"] {
        Value::String(text) => messages.push(json!({"role": "user", "content": text})),
        Value::Array(items) => {
            rewrite_items(items, &mut messages);
            let entries = items
                .iter()
                .filter(|item| item["type"] == "additional_tools");
            tools.extend(entries.flat_map(|entry| list_tools(&entry["tools"])));
        }
        _ => {
            let message = "Missing required parameter: 'input'.";
            return Err(SimulatedRefusal::for_parameter("input", message));
        }
    }
    let mut chat = json!({"messages": messages, "stream": body["stream"],
        "max_completion_tokens": body["max_output_tokens"]});
    if !tools.is_empty() {
        chat["tools"] = tools.into();
        chat["tool_choice"] = rewrite_tool_choice(&body["tool_choice"]);
    }
    let format = &body["text"]["format"];
    if format["type"] == "json_schema" {
        chat["response_format"] =
            json!({"type": "json_schema", "json_schema": {"schema": format["schema"]}});
    }
    Ok(chat)
}

/// A call without an output, and an output without a call before it, stay unpaired.
fn rewrite_items(items: &[Value], out: &mut Vec<Value>) {
    let mut rest = items;
    while let Some(first) = rest.first() {
        let in_answer = rest.iter().take_while(|item| is_answer(item)).count();
        if in_answer == 0 {
            let mut calls = out.iter().map(|message| &message["tool_call_id"]);
            if !is_output(first) || !calls.any(|id| *id == first["call_id"]) {
                out.extend(rewrite_input(first));
            }
            rest = &rest[1..];
            continue;
        }
        let (answer, later) = rest.split_at(in_answer);
        out.push(rewrite_answer(answer));
        for call in answer.iter().filter(|item| is_call(item)) {
            let is_answer = |item: &&Value| is_output(item) && item["call_id"] == call["call_id"];
            out.extend(later.iter().find(is_answer).map(rewrite_output));
        }
        rest = later;
    }
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or("message")
}

fn is_call(item: &Value) -> bool {
    kind(item).ends_with("_call") && item["call_id"].is_string()
}

fn is_output(item: &Value) -> bool {
    kind(item).ends_with("_output") && item["call_id"].is_string()
}

fn is_answer(item: &Value) -> bool {
    is_call(item)
        || kind(item) == "reasoning"
        || kind(item) == "message" && item["role"] == "assistant"
}

/// An item that no model made. Tools are none of the conversation.
fn rewrite_input(item: &Value) -> Option<Value> {
    match kind(item) {
        "message" => {
            Some(json!({"role": item["role"], "content": rewrite_parts(&item["content"])}))
        }
        "additional_tools" => None,
        _ if is_output(item) => Some(rewrite_output(item)),
        _ => Some(json!({"role": "user", "content": item.to_string()})),
    }
}

fn rewrite_output(item: &Value) -> Value {
    json!({"role": "tool", "tool_call_id": item["call_id"], "content": rewrite_parts(&item["output"])})
}

fn rewrite_answer(items: &[Value]) -> Value {
    let of_kind = |name: &'static str| items.iter().filter(move |item| kind(item) == name);
    let said: Vec<Value> = of_kind("message")
        .flat_map(|item| rewrite_parts(&item["content"]))
        .collect();
    let mut message = json!({"role": "assistant", "content": said});
    let thoughts: String = of_kind("reasoning").map(Value::to_string).collect();
    if !thoughts.is_empty() {
        message["reasoning_content"] = thoughts.into();
    }
    let calls = items.iter().filter(|item| is_call(item)).map(|call| {
        let arguments = match call["arguments"].as_str() {
            Some(arguments) => arguments.to_owned(),
            None => call.to_string(),
        };
        json!({"id": call["call_id"], "type": "function",
            "function": {"name": call["name"].as_str().unwrap_or(kind(call)), "arguments": arguments}})
    });
    let calls: Vec<Value> = calls.collect();
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// The parts of a content. What the agent does not read counts as text.
fn rewrite_parts(content: &Value) -> Vec<Value> {
    let Value::Array(parts) = content else {
        let text = content.as_str().unwrap_or_default();
        return vec![json!({"type": "text", "text": text})];
    };
    let parts = parts.iter().map(|part| match part["type"].as_str() {
        Some("input_text" | "output_text") => json!({"type": "text", "text": part["text"]}),
        Some("input_image") => {
            json!({"type": "image_url", "image_url": {"url": part["image_url"]}})
        }
        _ => json!({"type": "text", "text": part.to_string()}),
    });
    parts.collect()
}

/// A tool that is no function stays as it is: it is counted, and the agent does not call it.
fn list_tools(tools: &Value) -> Vec<Value> {
    let tools = tools.as_array().into_iter().flatten();
    tools
        .flat_map(|tool| match tool["type"].as_str() {
            Some("namespace") => list_tools(&tool["tools"]),
            Some("function") => vec![
                json!({"type": "function", "function": {"name": tool["name"],
                "description": tool["description"], "parameters": tool["parameters"]}}),
            ],
            _ => vec![tool.clone()],
        })
        .collect()
}

fn rewrite_tool_choice(choice: &Value) -> Value {
    match (choice.as_str(), choice["type"].as_str()) {
        (Some(word), _) => word.into(),
        (None, Some("function")) => {
            json!({"type": "function", "function": {"name": choice["name"]}})
        }
        _ => "auto".into(),
    }
}
