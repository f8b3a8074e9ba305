//! What a request asks for, and whether OpenAI would take it.
//!
//! Calls and answers are paired by position, never by a map of ids: clients use ids again. Legacy
//! `function` messages are not paired at all, as at OpenAI.

use http::StatusCode;
use serde_json::{Value, json};

use super::find_model;

const ROLES: &[&str] = &[
    "system",
    "assistant",
    "user",
    "function",
    "tool",
    "developer",
];

/// A refused request. `code` and `param` are what clients branch on; the sentence is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    pub(super) param: Option<String>,
    pub(super) code: Option<&'static str>,
}

impl Refusal {
    /// A 400 about one parameter.
    pub(super) fn of(param: &str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.to_owned()),
            ..Self::of_request(StatusCode::BAD_REQUEST, message)
        }
    }

    /// A 4xx about the request as a whole.
    pub(super) fn of_request(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    fn invalid(param: &str, expected: &str) -> Self {
        let message = format!("Invalid type for '{param}': expected {expected}.");
        Self {
            code: Some("invalid_type"),
            ..Self::of(param, message)
        }
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": "invalid_request_error",
            "param": self.param, "code": self.code}})
    }
}

/// A valid request, borrowed from its body.
#[derive(Debug)]
pub(super) struct ChatRequest<'a> {
    pub(super) model: &'static str,
    /// Of the model, in tokens.
    pub(super) window: u32,
    pub(super) messages: &'a [Value],
    /// The functions that are offered as tools.
    pub(super) tools: Vec<&'a Value>,
    pub(super) choice: Choice<'a>,
    /// All that is counted beside the messages: tools, legacy functions, the response format.
    pub(super) schemas: Vec<&'a Value>,
    /// What the answer's text must fit.
    pub(super) schema: Option<Value>,
    /// Tokens that the answer may have.
    pub(super) limit: Option<u32>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

/// Which tools the model may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    None,
    Auto,
    Required,
    Named(&'a str),
}

impl<'a> ChatRequest<'a> {
    /// Parameters of a wrong type count as absent.
    ///
    /// # Errors
    /// The first thing that OpenAI would refuse about the conversation and what goes with it.
    pub(super) fn read(body: &'a Value) -> Result<Self, Refusal> {
        if !body.is_object() {
            return Err(Refusal::of_request(
                StatusCode::BAD_REQUEST,
                "We could not parse the JSON body of your request.",
            ));
        }
        let name = body["model"].as_str().ok_or_else(|| {
            Refusal::of_request(
                StatusCode::BAD_REQUEST,
                "you must provide a model parameter",
            )
        })?;
        let (model, window) = find_model(name)?;
        let tools = body["tools"].as_array().into_iter().flatten();
        let schemas = ["tools", "functions", "response_format"];
        let schemas = schemas.iter().filter_map(|name| body.get(name));
        let limits = ["max_completion_tokens", "max_tokens"];
        let mut limits = limits.iter().filter_map(|name| body[name].as_u64());
        let format = &body["response_format"];
        Ok(Self {
            model,
            window,
            messages: check_messages(&body["messages"])?,
            tools: tools.filter_map(|tool| tool.get("function")).collect(),
            choice: match &body["tool_choice"] {
                Value::String(word) if word == "none" => Choice::None,
                Value::String(word) if word == "required" => Choice::Required,
                choice => choice["function"]["name"]
                    .as_str()
                    .map_or(Choice::Auto, Choice::Named),
            },
            schemas: schemas.filter(|schema| !schema.is_null()).collect(),
            schema: match format["type"].as_str() {
                Some("json_schema") => Some(format["json_schema"]["schema"].clone()),
                Some("json_object") => Some(json!({"type": "object", "required": ["answer"]})),
                _ => None,
            },
            limit: limits
                .next()
                .map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
            stream: body["stream"] == true,
            include_usage: body["stream_options"]["include_usage"] == true,
        })
    }
}

/// The role of a message, where it has one.
pub(super) fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

/// The messages of a valid conversation.
fn check_messages(messages: &Value) -> Result<&[Value], Refusal> {
    let messages = messages.as_array().filter(|messages| !messages.is_empty());
    let messages = messages.ok_or_else(|| Refusal::invalid("messages", "an array of objects"))?;
    let mut waiting: Vec<&Value> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        check_message(message, &format!("messages[{at}]"))?;
        if role(message) == "tool" {
            let answered = waiting
                .iter()
                .position(|id| **id == message["tool_call_id"]);
            let answered = answered.ok_or_else(|| {
                Refusal::of(
                    &format!("messages.[{at}].role"),
                    "Invalid parameter: messages with role 'tool' must be a response to a \
                     preceding message with 'tool_calls'.",
                )
            })?;
            waiting.remove(answered);
        } else {
            check_answered(&waiting, at)?;
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            waiting = calls.map(|call| &call["id"]).collect();
        }
    }
    check_answered(&waiting, messages.len())?;
    Ok(messages)
}

fn check_message(message: &Value, path: &str) -> Result<(), Refusal> {
    let role = role(message);
    if !ROLES.contains(&role) {
        let message = format!(
            "Invalid value: '{role}'. Supported values are: {}.",
            ROLES.join(", ")
        );
        return Err(Refusal::of(&format!("{path}.role"), message));
    }
    let spoken = ["tool_calls", "function_call", "refusal", "audio"];
    let spoken = role == "assistant" && spoken.iter().any(|name| !message[name].is_null());
    let content = &message["content"];
    match content {
        Value::String(_) => Ok(()),
        // Agents write nothing to say beside a call as an empty list, too.
        Value::Array(parts) if parts.iter().all(Value::is_object) => match parts.is_empty() {
            true if !spoken => Err(Refusal::invalid(&format!("{path}.content"), "a part")),
            _ => Ok(()),
        },
        Value::Null if spoken || role == "function" => Ok(()),
        _ => Err(Refusal::invalid(
            &format!("{path}.content"),
            "one of a string or array of objects",
        )),
    }
}

/// Every call is answered before anything else is said.
fn check_answered(waiting: &[&Value], at: usize) -> Result<(), Refusal> {
    if waiting.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = waiting.iter().filter_map(|id| id.as_str()).collect();
    Err(Refusal::of(
        &format!("messages.[{at}].role"),
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            ids.join(", ")
        ),
    ))
}
