//! Reads a request of Anthropic's Messages, and refuses it where Anthropic would.
//!
//! The scripted agent reads chat completions, so a valid request is rewritten to one: a result becomes a tool
//! message, the top-level `system` the first message, a `system` entry in the midst a user message.

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    find_model,
    request::{SimulatedRefusal, message_role},
};

/// Blocks that may have `cache_control`, the automatic one of the request included.
const MAX_MARKERS: usize = 4;

/// A valid request as a chat completion, and what only Messages says.
pub(super) struct MessagesRequest {
    pub(super) chat: Value,
    /// Absent only in a request to count tokens.
    pub(super) max_tokens: Option<u32>,
    /// Without a marker nothing is cached.
    pub(super) has_markers: bool,
}

impl MessagesRequest {
    /// # Errors
    /// The first reason why Anthropic would refuse the request.
    pub(super) fn from_body(body: &Value) -> Result<Self, SimulatedRefusal> {
        if !body.is_object() {
            let message = "The request body is not valid JSON: expected an object";
            return Err(SimulatedRefusal::new(message));
        }
        let model = body["model"].as_str();
        let model = model.ok_or_else(|| SimulatedRefusal::new("model: Field required"))?;
        find_model(model).map_err(|refusal| SimulatedRefusal {
            message: format!("model: {model}"),
            ..refusal
        })?;
        let markers = count_markers(body);
        if markers > MAX_MARKERS {
            return Err(SimulatedRefusal::new(format!(
                "A maximum of {MAX_MARKERS} blocks with cache_control may be provided. Found {markers}."
            )));
        }
        let mut messages = Vec::new();
        if !body["system"].is_null() {
            let content = rewrite_content(&read_blocks(&body["system"], "system")?);
            messages.push(json!({"role": "system", "content": content}));
        }
        rewrite_messages(&body["messages"], &mut messages)?;
        let mut chat = json!({"model": model, "messages": messages,
            "tool_choice": rewrite_tool_choice(&body["tool_choice"])});
        if let Some(tools) = body["tools"].as_array().filter(|tools| !tools.is_empty()) {
            chat["tools"] = tools.iter().map(rewrite_tool).collect();
        }
        let format = &body["output_config"]["format"];
        if format["type"] == "json_schema" {
            chat["response_format"] =
                json!({"type": "json_schema", "json_schema": {"schema": format["schema"]}});
        }
        let limit = body["max_tokens"].as_u64();
        Ok(Self {
            chat,
            max_tokens: limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
            has_markers: markers > 0,
        })
    }
}

/// The error body of a refusal, in Anthropic's shape.
pub(super) fn write_refusal(refusal: &SimulatedRefusal, request_id: &str) -> Value {
    let kind = match refusal.status {
        StatusCode::NOT_FOUND => "not_found_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": refusal.message},
        "request_id": request_id})
}

fn count_markers(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.iter().map(count_markers).sum(),
        Value::Object(members) => {
            let own = usize::from(members.get("cache_control").is_some_and(Value::is_object));
            // Arguments and schemas may have a member of that name.
            let others = members
                .iter()
                .filter(|(key, _)| !["input", "input_schema", "output_config"].contains(&&***key));
            own + others
                .map(|(_, member)| count_markers(member))
                .sum::<usize>()
        }
        _ => 0,
    }
}

/// The blocks of a content; a string is one block of text. `path` names it in a refusal.
fn read_blocks(content: &Value, path: &str) -> Result<Vec<Value>, SimulatedRefusal> {
    let blocks = match content {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks.clone(),
        _ => {
            let message = format!("{path}: Input should be a valid string or a list of blocks");
            return Err(SimulatedRefusal::new(message));
        }
    };
    let is_empty = |block: &Value| block["type"] == "text" && block["text"] == "";
    match blocks.iter().any(is_empty) {
        true => Err(SimulatedRefusal::new(format!(
            "{path}: text content blocks must be non-empty"
        ))),
        false => Ok(blocks),
    }
}

/// Calls and results are paired by position: ids may come again in a later answer.
fn rewrite_messages(messages: &Value, out: &mut Vec<Value>) -> Result<(), SimulatedRefusal> {
    let messages = messages.as_array().filter(|messages| !messages.is_empty());
    let too_few = || SimulatedRefusal::new("messages: at least one message is required");
    let messages = messages.ok_or_else(too_few)?;
    let mut open_calls: Vec<Value> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let path = format!("messages.{index}");
        let blocks = read_blocks(&message["content"], &format!("{path}.content"))?;
        let is_result = |block: &&Value| block["type"] == "tool_result";
        let role = message_role(message);
        let first = match role {
            "user" => blocks.iter().take_while(is_result).count(),
            _ => 0,
        };
        let (results, others) = blocks.split_at(first);
        for result in results {
            let id = &result["tool_use_id"];
            let call = open_calls.iter().position(|open| open == id);
            open_calls.remove(call.ok_or_else(|| refuse_result(&path, id))?);
            out.push(json!({"role": "tool", "tool_call_id": id,
                "content": rewrite_content(&read_blocks_of_result(result)?)}));
        }
        check_answered(&open_calls, index)?;
        open_calls.clear();
        if let Some(result) = others.iter().find(is_result) {
            return Err(refuse_result(&path, &result["tool_use_id"]));
        }
        match role {
            "user" if others.is_empty() && !results.is_empty() => {}
            _ if blocks.is_empty() && (role != "assistant" || index + 1 < messages.len()) => {
                return Err(SimulatedRefusal::new(format!(
                    "{path}: all messages must have non-empty content except for the optional final \
                     assistant message"
                )));
            }
            "assistant" => {
                open_calls = calls_of(others).map(|call| call["id"].clone()).collect();
                out.push(rewrite_answer(others));
            }
            "system" => {
                check_system_place(messages, index)?;
                out.push(json!({"role": "user", "content": rewrite_content(others)}));
            }
            "user" => out.push(json!({"role": "user", "content": rewrite_content(others)})),
            _ => {
                let message = format!("{path}.role: Input should be 'user' or 'assistant'");
                return Err(SimulatedRefusal::new(message));
            }
        }
    }
    check_answered(&open_calls, messages.len())
}

fn read_blocks_of_result(result: &Value) -> Result<Vec<Value>, SimulatedRefusal> {
    match &result["content"] {
        Value::Null => Ok(Vec::new()),
        // Unlike elsewhere, a result may be an empty text.
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        content => read_blocks(content, "tool_result"),
    }
}

fn calls_of(blocks: &[Value]) -> impl Iterator<Item = &Value> {
    blocks.iter().filter(|block| block["type"] == "tool_use")
}

fn refuse_result(path: &str, id: &Value) -> SimulatedRefusal {
    let id = id.as_str().unwrap_or_default();
    SimulatedRefusal::new(format!(
        "{path}.content: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` \
         block must have a corresponding `tool_use` block in the previous message."
    ))
}

/// Every call has its result at the beginning of the next message.
fn check_answered(open_calls: &[Value], index: usize) -> Result<(), SimulatedRefusal> {
    if open_calls.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = open_calls.iter().filter_map(Value::as_str).collect();
    Err(SimulatedRefusal::new(format!(
        "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each \
         `tool_use` block must have a corresponding `tool_result` block in the next message.",
        index.saturating_sub(1),
        ids.join(", ")
    )))
}

/// A `system` message follows what the user says, and is followed by an answer or by nothing.
fn check_system_place(messages: &[Value], index: usize) -> Result<(), SimulatedRefusal> {
    let before = index.checked_sub(1).map(|at| message_role(&messages[at]));
    let after = messages.get(index + 1).map(message_role);
    let is_valid = matches!(before, Some("user" | "system"))
        && matches!(after, None | Some("assistant" | "system"));
    let message = format!("messages.{index}: a system message is not allowed here");
    is_valid
        .then_some(())
        .ok_or_else(|| SimulatedRefusal::new(message))
}

/// The content of a chat message. What the agent does not read counts as text.
fn rewrite_content(blocks: &[Value]) -> Value {
    if blocks.is_empty() {
        return "".into();
    }
    let parts = blocks.iter().map(|block| match block["type"].as_str() {
        Some("text") => json!({"type": "text", "text": block["text"]}),
        Some("image") => json!({"type": "image_url", "image_url": block["source"]}),
        _ => json!({"type": "text", "text": block.to_string()}),
    });
    parts.collect()
}

fn rewrite_answer(blocks: &[Value]) -> Value {
    let thinks =
        |block: &&Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
    let is_said = |block: &&Value| !thinks(block) && block["type"] != "tool_use";
    let said: Vec<Value> = blocks.iter().filter(is_said).cloned().collect();
    let mut message = json!({"role": "assistant", "content": rewrite_content(&said)});
    let thoughts: Vec<&Value> = blocks.iter().filter(thinks).collect();
    if !thoughts.is_empty() {
        let text = |block: &&Value| {
            block["thinking"]
                .as_str()
                .or(block["data"].as_str())
                .map(str::to_owned)
        };
        message["reasoning_content"] = thoughts.iter().filter_map(text).collect();
    }
    let calls: Vec<Value> = calls_of(blocks)
        .map(|call| {
            json!({"id": call["id"], "type": "function",
                "function": {"name": call["name"], "arguments": call["input"].to_string()}})
        })
        .collect();
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// A tool that the server runs stays as it is: it is counted, and the agent does not call it.
fn rewrite_tool(tool: &Value) -> Value {
    match tool.get("input_schema") {
        Some(schema) => json!({"type": "function", "function": {"name": tool["name"],
            "description": tool["description"], "parameters": schema}}),
        None => tool.clone(),
    }
}

fn rewrite_tool_choice(choice: &Value) -> Value {
    match choice["type"].as_str() {
        Some("any") => "required".into(),
        Some("none") => "none".into(),
        Some("tool") => json!({"type": "function", "function": {"name": choice["name"]}}),
        _ => "auto".into(),
    }
}
