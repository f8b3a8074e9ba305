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
#[derive(Debug)]
pub(super) struct SimulatedRefusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    pub(super) param: Option<String>,
    pub(super) code: Option<&'static str>,
}

impl SimulatedRefusal {
    /// A 400 about the request as a whole.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    /// A 400 about one parameter.
    pub(super) fn for_parameter(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::new(message)
        }
    }

    /// The body of the answer.
    pub(super) fn to_body(&self) -> Value {
        json!({"error": {"message": self.message, "type": "invalid_request_error",
            "param": self.param, "code": self.code}})
    }
}

/// A valid request, borrowed from its body.
#[derive(Debug)]
pub(super) struct SimulatedRequest<'a> {
    body: &'a Value,
    pub(super) model: &'static str,
    /// Of the model, in tokens.
    pub(super) window: u32,
    pub(super) messages: &'a [Value],
}

impl<'a> SimulatedRequest<'a> {
    /// Parameters of a wrong type count as absent.
    ///
    /// # Errors
    /// The first thing that OpenAI would refuse about the conversation and what goes with it.
    pub(super) fn from_body(body: &'a Value) -> Result<Self, SimulatedRefusal> {
        if !body.is_object() {
            let message = "We could not parse the JSON body of your request.";
            return Err(SimulatedRefusal::new(message));
        }
        let name = body["model"].as_str();
        let name =
            name.ok_or_else(|| SimulatedRefusal::new("you must provide a model parameter"))?;
        let (model, window) = find_model(name)?;
        Ok(Self {
            body,
            model,
            window,
            messages: check_messages(&body["messages"])?,
        })
    }

    /// The functions that are offered as tools.
    pub(super) fn tools(&self) -> impl Iterator<Item = &'a Value> + Clone + use<'a> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool.get("function"))
    }

    /// Which of them may be called: a word, or an object that names one.
    pub(super) fn tool_choice(&self) -> &'a Value {
        &self.body["tool_choice"]
    }

    /// All that is counted beside the messages: tools, legacy functions, the response format.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let body = self.body;
        let schemas = ["tools", "functions", "response_format"].into_iter();
        schemas
            .map(|name| &body[name])
            .filter(|schema| !schema.is_null())
    }

    /// What the answer's text must fit.
    pub(super) fn answer_schema(&self) -> Option<Value> {
        let format = &self.body["response_format"];
        match format["type"].as_str()? {
            "json_schema" => Some(format["json_schema"]["schema"].clone()),
            "json_object" => Some(json!({"type": "object", "required": ["answer"]})),
            _ => None,
        }
    }

    /// Tokens that the answer may have.
    pub(super) fn answer_limit(&self) -> Option<u32> {
        let limits = ["max_completion_tokens", "max_tokens"].into_iter();
        let limit = limits.filter_map(|name| self.body[name].as_u64()).next()?;
        Some(u32::try_from(limit).unwrap_or(u32::MAX))
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.body["stream"] == true
    }

    pub(super) fn includes_usage(&self) -> bool {
        self.body["stream_options"]["include_usage"] == true
    }
}

/// The role of a message, where it has one.
pub(super) fn message_role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

/// The messages of a valid conversation.
fn check_messages(messages: &Value) -> Result<&[Value], SimulatedRefusal> {
    let messages = messages.as_array().filter(|messages| !messages.is_empty());
    let messages = messages.ok_or_else(|| invalid_type("messages", "an array of objects"))?;
    let mut waiting: Vec<&Value> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        check_message(message, &format!("messages[{at}]"))?;
        if message_role(message) == "tool" {
            let answered = waiting
                .iter()
                .position(|id| **id == message["tool_call_id"]);
            let answered = answered.ok_or_else(|| {
                SimulatedRefusal::for_parameter(
                    format!("messages.[{at}].role"),
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

fn check_message(message: &Value, path: &str) -> Result<(), SimulatedRefusal> {
    let role = message_role(message);
    if !ROLES.contains(&role) {
        let message = format!(
            "Invalid value: '{role}'. Supported values are: {}.",
            ROLES.join(", ")
        );
        return Err(SimulatedRefusal::for_parameter(
            format!("{path}.role"),
            message,
        ));
    }
    let spoken = ["tool_calls", "function_call", "refusal", "audio"];
    let spoken = role == "assistant" && spoken.iter().any(|name| !message[name].is_null());
    let is_sound = match &message["content"] {
        Value::String(_) => true,
        // Agents write nothing to say beside a call as an empty list, too.
        Value::Array(parts) => parts.iter().all(Value::is_object) && (spoken || !parts.is_empty()),
        content => content.is_null() && (spoken || role == "function"),
    };
    match is_sound {
        true => Ok(()),
        false => Err(invalid_type(
            &format!("{path}.content"),
            "one of a string or array of objects",
        )),
    }
}

fn invalid_type(param: &str, expected: &str) -> SimulatedRefusal {
    let message = format!("Invalid type for '{param}': expected {expected}.");
    SimulatedRefusal {
        code: Some("invalid_type"),
        ..SimulatedRefusal::for_parameter(param, message)
    }
}

/// Every call is answered before anything else is said.
fn check_answered(waiting: &[&Value], at: usize) -> Result<(), SimulatedRefusal> {
    if waiting.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = waiting.iter().filter_map(|id| id.as_str()).collect();
    Err(SimulatedRefusal::for_parameter(
        format!("messages.[{at}].role"),
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            ids.join(", ")
        ),
    ))
}
