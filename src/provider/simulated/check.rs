//! Is this conversation one that OpenAI would take? Refused in its words if not.
//!
//! Pairs calls and answers by position, never by a map of ids: clients use ids again. Legacy
//! `function` messages are not paired at all, as at OpenAI.

use serde_json::{Map, Value};

use super::refusal::Refusal;

const ROLES: &[&str] = &[
    "system",
    "assistant",
    "user",
    "function",
    "tool",
    "developer",
];
const PARTS: &[&str] = &[
    "text",
    "image_url",
    "input_audio",
    "refusal",
    "audio",
    "file",
];

/// The messages of a valid conversation.
///
/// # Errors
///
/// The first rule that the conversation breaks.
pub(super) fn messages(body: &Map<String, Value>) -> Result<&[Value], Refusal> {
    let messages = array(member(body, "messages", "")?, "messages")?;
    for (at, one) in messages.iter().enumerate() {
        check_message(one, at)?;
    }
    check_pairs(messages)?;
    Ok(messages)
}

/// The role of a message, where it has one.
pub(super) fn role(message: &Value) -> &str {
    message
        .get("role")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The ids a message asks to be answered, in their order.
fn call_ids(message: &Value) -> Vec<&str> {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    let ids = calls.into_iter().flatten().map(|call| &call["id"]);
    ids.filter_map(Value::as_str).collect()
}

fn check_message(value: &Value, at: usize) -> Result<(), Refusal> {
    let path = format!("messages[{at}]");
    let fields = object(value, &path)?;
    let role = string(fields, "role", &path)?;
    match role {
        "assistant" => return check_assistant(fields, at, &path),
        "tool" => drop(string(fields, "tool_call_id", &path)?),
        "function" => {
            string(fields, "name", &path)?;
            if fields.get("content") == Some(&Value::Null) {
                return Ok(());
            }
        }
        role if !ROLES.contains(&role) => {
            return Err(Refusal::unsupported(&format!("{path}.role"), role, ROLES));
        }
        _ => {}
    }
    check_content(fields, role, at, &path)
}

fn check_assistant(fields: &Map<String, Value>, at: usize, path: &str) -> Result<(), Refusal> {
    let set = |name: &str| fields.get(name).filter(|value| !value.is_null());
    if let Some(calls) = set("tool_calls") {
        check_calls(calls, &format!("{path}.tool_calls"))?;
    }
    if let Some(call) = set("function_call") {
        check_named_call(call, &format!("{path}.function_call"))?;
    }
    let spoken = ["tool_calls", "function_call", "refusal", "audio"];
    let spoken = spoken.iter().any(|name| set(name).is_some());
    match set("content") {
        None if spoken => Ok(()),
        None => Err(null_content(at)),
        // Agents write nothing to say beside a call as an empty list, too.
        Some(Value::Array(parts)) if parts.is_empty() && spoken => Ok(()),
        Some(_) => check_content(fields, "assistant", at, path),
    }
}

fn check_calls(value: &Value, path: &str) -> Result<(), Refusal> {
    for (at, call) in array(value, path)?.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let fields = object(call, &path)?;
        string(fields, "id", &path)?;
        match string(fields, "type", &path)? {
            "function" => {
                let function = member(fields, "function", &path)?;
                check_named_call(function, &format!("{path}.function"))?;
            }
            "custom" => drop(member(fields, "custom", &path)?),
            other => {
                let path = format!("{path}.type");
                return Err(Refusal::unsupported(&path, other, &["function", "custom"]));
            }
        }
    }
    Ok(())
}

fn check_named_call(value: &Value, path: &str) -> Result<(), Refusal> {
    let fields = object(value, path)?;
    string(fields, "name", path)?;
    string(fields, "arguments", path).map(drop)
}

fn check_content(
    fields: &Map<String, Value>,
    role: &str,
    at: usize,
    path: &str,
) -> Result<(), Refusal> {
    let path = format!("{path}.content");
    match fields.get("content") {
        None => Err(Refusal::missing(&path)),
        Some(Value::Null) => Err(null_content(at)),
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) if parts.is_empty() => Err(Refusal::empty_array(&path)),
        Some(Value::Array(parts)) => parts
            .iter()
            .enumerate()
            .try_for_each(|(nth, one)| check_part(one, role, at, &format!("{path}[{nth}]"))),
        Some(other) => Err(Refusal::wrong_type(
            &path,
            "one of a string or array of objects",
            other,
        )),
    }
}

fn check_part(value: &Value, role: &str, at: usize, path: &str) -> Result<(), Refusal> {
    let fields = object(value, path)?;
    let kind = string(fields, "type", path)?;
    if !PARTS.contains(&kind) {
        return Err(Refusal::unsupported(&format!("{path}.type"), kind, PARTS));
    }
    match kind {
        "text" | "refusal" => string(fields, kind, path).map(drop),
        "image_url" if role != "user" => Err(Refusal::of(
            &format!("messages[{at}]"),
            Some("invalid_value"),
            format!(
                "Invalid 'messages[{at}]'. Image URLs are only allowed for messages with role \
                 'user', but this message with role '{role}' contains an image URL."
            ),
        )),
        "image_url" => {
            let inner = format!("{path}.image_url");
            let image = object(member(fields, kind, path)?, &inner)?;
            string(image, "url", &inner).map(drop)
        }
        other => member(fields, other, path).map(drop),
    }
}

/// Every tool message answers the assistant message right before its siblings, and every call is
/// answered before anything else is said.
fn check_pairs(messages: &[Value]) -> Result<(), Refusal> {
    let mut waiting: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if role(message) == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(found) = waiting.iter().position(|open| *open == id) else {
                return Err(orphan(at));
            };
            waiting.remove(found);
        } else {
            check_answered(&waiting, at)?;
            waiting = call_ids(message);
        }
    }
    check_answered(&waiting, messages.len())
}

fn orphan(at: usize) -> Refusal {
    Refusal::of(
        &format!("messages.[{at}].role"),
        None,
        "Invalid parameter: messages with role 'tool' must be a response to a preceding message \
         with 'tool_calls'."
            .to_owned(),
    )
}

fn check_answered(waiting: &[&str], at: usize) -> Result<(), Refusal> {
    if waiting.is_empty() {
        return Ok(());
    }
    Err(Refusal::of(
        &format!("messages.[{at}].role"),
        None,
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            waiting.join(", ")
        ),
    ))
}

fn null_content(at: usize) -> Refusal {
    Refusal::of(
        &format!("messages.[{at}].content"),
        None,
        "Invalid value for 'content': expected a string, got null.".to_owned(),
    )
}

/// A list that must hold something.
pub(super) fn array<'a>(value: &'a Value, path: &str) -> Result<&'a [Value], Refusal> {
    match value {
        Value::Array(list) if list.is_empty() => Err(Refusal::empty_array(path)),
        Value::Array(list) => Ok(list),
        other => Err(Refusal::wrong_type(path, "an array of objects", other)),
    }
}

pub(super) fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, Refusal> {
    let object = value.as_object();
    object.ok_or_else(|| Refusal::wrong_type(path, "an object", value))
}

/// A member that must be there.
pub(super) fn member<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
    path: &str,
) -> Result<&'a Value, Refusal> {
    fields
        .get(name)
        .ok_or_else(|| Refusal::missing(&joined(path, name)))
}

/// A member that must be there and be a string.
pub(super) fn string<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
    path: &str,
) -> Result<&'a str, Refusal> {
    match member(fields, name, path)? {
        Value::String(text) => Ok(text),
        other => Err(Refusal::wrong_type(&joined(path, name), "a string", other)),
    }
}

fn joined(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests;
