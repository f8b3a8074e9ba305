//! Reads a request of Anthropic's Messages, and refuses it where Anthropic would.
//!
//! The scripted agent reads chat completions, so a valid request is rewritten to one: a result becomes a tool
//! message, the top-level `system` the first message, a `system` entry in the midst a user message.

use serde_json::{Value, json};

use super::request::{SimulatedRefusal, message_role};

/// Blocks that may have `cache_control`, the automatic one of the request included.
const MAX_MARKERS: usize = 4;

/// The request as a chat completion, and whether it has a cache marker. Calls and results are not paired yet.
///
/// # Errors
/// The first other reason why Anthropic would refuse the request.
pub(super) fn rewrite_request(body: &Value) -> Result<(Value, bool), SimulatedRefusal> {
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
    let mut chat = json!({"messages": messages, "max_tokens": body["max_tokens"],
        "stream": body["stream"], "tool_choice": rewrite_tool_choice(&body["tool_choice"])});
    let tools = list_offered_tools(body);
    if !tools.is_empty() {
        chat["tools"] = tools.into_iter().map(rewrite_tool).collect();
    }
    let format = &body["output_config"]["format"];
    if format["type"] == "json_schema" {
        chat["response_format"] =
            json!({"type": "json_schema", "json_schema": {"schema": format["schema"]}});
    }
    Ok((chat, markers > 0))
}

/// The listed tools but for deferred ones, and those that entries of the system add by name or with a definition.
fn list_offered_tools(body: &Value) -> Vec<&Value> {
    let listed = body["tools"].as_array().into_iter().flatten();
    let (deferred, mut offered): (Vec<_>, Vec<_>) =
        listed.partition(|tool| tool["defer_loading"] == true);
    let entries = body["messages"].as_array().into_iter().flatten();
    let blocks = entries.flat_map(|entry| entry["content"].as_array().into_iter().flatten());
    for added in blocks.filter(|block| adds_tool(block)) {
        let tool = &added["tool"];
        match tool["type"].as_str() {
            Some("tool_definition") => offered.push(&tool["definition"]),
            _ => offered.extend(deferred.iter().filter(|it| it["name"] == tool["name"])),
        }
    }
    offered
}

pub(super) fn adds_tool(block: &Value) -> bool {
    block["type"] == "tool_addition"
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

fn rewrite_messages(messages: &Value, out: &mut Vec<Value>) -> Result<(), SimulatedRefusal> {
    let messages = messages.as_array().filter(|messages| !messages.is_empty());
    let too_few = || SimulatedRefusal::new("messages: at least one message is required");
    let messages = messages.ok_or_else(too_few)?;
    for (index, message) in messages.iter().enumerate() {
        let refuse = |what: &str| Err(SimulatedRefusal::new(format!("messages.{index}{what}")));
        let blocks = read_blocks(&message["content"], &format!("messages.{index}.content"))?;
        let role = message_role(message);
        if blocks.is_empty() && (role != "assistant" || index + 1 < messages.len()) {
            return refuse(": all messages but a last answer must have non-empty content");
        }
        let is_result = |block: &&Value| block["type"] == "tool_result";
        let first = match role {
            "user" => blocks.iter().take_while(is_result).count(),
            _ => 0,
        };
        let (results, others) = blocks.split_at(first);
        if others.iter().any(|block| is_result(&block)) {
            return refuse(": `tool_result` blocks must be first in a message of the user");
        }
        for result in results {
            out.push(
                json!({"role": "tool", "tool_call_id": result["tool_use_id"],
                "content": rewrite_content(&read_blocks_of_result(result)?)}),
            );
        }
        match role {
            "user" if others.is_empty() => {}
            "assistant" => out.push(rewrite_answer(others)),
            "system" if !is_system_place(messages, index) => {
                return refuse(": a system message is not allowed here");
            }
            "system" if blocks.iter().all(adds_tool) => {}
            "user" | "system" => {
                out.push(json!({"role": "user", "content": rewrite_content(others)}));
            }
            _ => return refuse(".role: Input should be 'user' or 'assistant'"),
        }
    }
    Ok(())
}

fn read_blocks_of_result(result: &Value) -> Result<Vec<Value>, SimulatedRefusal> {
    match &result["content"] {
        Value::Null => Ok(Vec::new()),
        // Unlike elsewhere, a result may be an empty text.
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        content => read_blocks(content, "tool_result"),
    }
}

/// A `system` message follows what the user says, and is followed by an answer or by nothing.
fn is_system_place(messages: &[Value], index: usize) -> bool {
    let before = index.checked_sub(1).map(|at| message_role(&messages[at]));
    let after = messages.get(index + 1).map(message_role);
    matches!(before, Some("user" | "system"))
        && matches!(after, None | Some("assistant" | "system"))
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
    let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
    let calls: Vec<Value> = calls
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
