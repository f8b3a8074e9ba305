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
    let value = body
        .get("messages")
        .ok_or_else(|| Refusal::missing("messages"))?;
    let Value::Array(messages) = value else {
        return Err(Refusal::wrong_type(
            "messages",
            "an array of objects",
            value,
        ));
    };
    if messages.is_empty() {
        return Err(Refusal::empty_array("messages"));
    }
    for (at, one) in messages.iter().enumerate() {
        message(one, at)?;
    }
    pairs(messages)?;
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

fn message(value: &Value, at: usize) -> Result<(), Refusal> {
    let path = format!("messages[{at}]");
    let Value::Object(fields) = value else {
        return Err(Refusal::wrong_type(&path, "an object", value));
    };
    let role = string(fields, "role", &path)?;
    if !ROLES.contains(&role) {
        return Err(Refusal::unsupported(&format!("{path}.role"), role, ROLES));
    }
    match role {
        "assistant" => assistant(fields, at, &path),
        "tool" => {
            string(fields, "tool_call_id", &path)?;
            content(fields, role, at, &path)
        }
        "function" => {
            string(fields, "name", &path)?;
            match fields.get("content") {
                Some(Value::Null) => Ok(()),
                _ => content(fields, role, at, &path),
            }
        }
        _ => content(fields, role, at, &path),
    }
}

fn assistant(fields: &Map<String, Value>, at: usize, path: &str) -> Result<(), Refusal> {
    let set = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    if let Some(calls) = fields.get("tool_calls").filter(|calls| !calls.is_null()) {
        tool_calls(calls, &format!("{path}.tool_calls"))?;
    }
    if let Some(call) = fields.get("function_call").filter(|call| !call.is_null()) {
        named_call(call, &format!("{path}.function_call"))?;
    }
    let spoken = ["tool_calls", "function_call", "refusal", "audio"]
        .iter()
        .any(|name| set(name));
    match fields.get("content") {
        None | Some(Value::Null) if !spoken => Err(null_content(at)),
        None | Some(Value::Null) => Ok(()),
        // Agents write nothing to say beside a call as an empty list, too.
        Some(Value::Array(parts)) if parts.is_empty() && spoken => Ok(()),
        Some(_) => content(fields, "assistant", at, path),
    }
}

fn tool_calls(value: &Value, path: &str) -> Result<(), Refusal> {
    let Value::Array(calls) = value else {
        return Err(Refusal::wrong_type(path, "an array of objects", value));
    };
    if calls.is_empty() {
        return Err(Refusal::empty_array(path));
    }
    for (at, call) in calls.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let Value::Object(fields) = call else {
            return Err(Refusal::wrong_type(&path, "an object", call));
        };
        string(fields, "id", &path)?;
        match string(fields, "type", &path)? {
            "function" => named_call(
                member(fields, "function", &path)?,
                &format!("{path}.function"),
            )?,
            "custom" => {
                member(fields, "custom", &path)?;
            }
            other => {
                let path = format!("{path}.type");
                return Err(Refusal::unsupported(&path, other, &["function", "custom"]));
            }
        }
    }
    Ok(())
}

fn named_call(value: &Value, path: &str) -> Result<(), Refusal> {
    let Value::Object(fields) = value else {
        return Err(Refusal::wrong_type(path, "an object", value));
    };
    string(fields, "name", path)?;
    string(fields, "arguments", path)?;
    Ok(())
}

fn content(fields: &Map<String, Value>, role: &str, at: usize, path: &str) -> Result<(), Refusal> {
    let path = format!("{path}.content");
    match fields.get("content") {
        None => Err(Refusal::missing(&path)),
        Some(Value::Null) => Err(null_content(at)),
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) if parts.is_empty() => Err(Refusal::empty_array(&path)),
        Some(Value::Array(parts)) => parts
            .iter()
            .enumerate()
            .try_for_each(|(nth, one)| part(one, role, at, &format!("{path}[{nth}]"))),
        Some(other) => Err(Refusal::wrong_type(
            &path,
            "one of a string or array of objects",
            other,
        )),
    }
}

fn part(value: &Value, role: &str, at: usize, path: &str) -> Result<(), Refusal> {
    let Value::Object(fields) = value else {
        return Err(Refusal::wrong_type(path, "an object", value));
    };
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
            let image = member(fields, kind, path)?;
            let path = format!("{path}.image_url");
            match image {
                Value::Object(image) => string(image, "url", &path).map(drop),
                other => Err(Refusal::wrong_type(&path, "an object", other)),
            }
        }
        other => member(fields, other, path).map(drop),
    }
}

/// Every tool message answers the assistant message right before its siblings, and every call is
/// answered before anything else is said.
fn pairs(messages: &[Value]) -> Result<(), Refusal> {
    let mut waiting: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if role(message) == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(found) = waiting.iter().position(|open| *open == id) else {
                return Err(orphan(at));
            };
            waiting.remove(found);
        } else {
            all_answered(&waiting, at)?;
            waiting = call_ids(message);
        }
    }
    all_answered(&waiting, messages.len())
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

fn all_answered(waiting: &[&str], at: usize) -> Result<(), Refusal> {
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
