//! A request as the agent reads it, which is a chat completion, and why it is refused.
//!
//! Calls and results are paired by position, never by a map of ids: clients use ids again. Legacy
//! `function` messages are not paired at all, as at OpenAI.

use http::StatusCode;
use serde_json::{Value, json};

use super::{SimulatedApi, find_model, messages_request, model_rules, responses_request};

const ROLES: &str = "system, assistant, user, function, tool, developer";

/// Clients branch on `code` and `param`; the message is for people.
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

    pub(super) fn to_body(&self) -> Value {
        json!({"error": {"message": self.message, "type": "invalid_request_error",
            "param": self.param, "code": self.code}})
    }

    /// The error in Anthropic's shape.
    pub(super) fn to_messages_body(&self, request_id: &str) -> Value {
        let kind = match self.status {
            StatusCode::NOT_FOUND => "not_found_error",
            _ => "invalid_request_error",
        };
        json!({"type": "error", "error": {"type": kind, "message": self.message},
            "request_id": request_id})
    }
}

/// A valid request, as a chat completion.
#[derive(Debug)]
pub(super) struct SimulatedRequest {
    body: Value,
    pub(super) model: &'static str,
    /// In tokens.
    pub(super) window: u32,
    /// Messages caches only what has a marker.
    pub(super) is_cached: bool,
}

impl SimulatedRequest {
    /// Parameters of a wrong type count as absent.
    ///
    /// # Errors
    /// The first reason why the API would refuse the request.
    pub(super) fn from_body(api: SimulatedApi, body: Value) -> Result<Self, SimulatedRefusal> {
        if !body.is_object() {
            let message = "We could not parse the JSON body of your request.";
            return Err(SimulatedRefusal::new(message));
        }
        let missing = || SimulatedRefusal::new("you must provide a model parameter");
        let (model, window) = find_model(body["model"].as_str().ok_or_else(missing)?)?;
        if let Some(rules) = model_rules::find_rules(&body) {
            model_rules::check_model_rules(api, rules, &body)?;
        }
        let (body, is_cached) = match api {
            SimulatedApi::Chat => (body, true),
            SimulatedApi::Messages => messages_request::rewrite_request(&body)?,
            SimulatedApi::Responses => (responses_request::rewrite_request(&body)?, true),
        };
        check_messages(&body["messages"])?;
        Ok(Self {
            body,
            model,
            window,
            is_cached,
        })
    }

    pub(super) fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The offered functions.
    pub(super) fn tools(&self) -> impl Iterator<Item = &Value> + Clone {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool.get("function"))
    }

    /// Which of them may be called: a word, or an object that names one.
    pub(super) fn tool_choice(&self) -> &Value {
        &self.body["tool_choice"]
    }

    /// Counted beside the messages: tools, legacy functions, the response format.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &Value> {
        let names = ["tools", "functions", "response_format"].into_iter();
        names.filter_map(|name| self.body.get(name).filter(|schema| !schema.is_null()))
    }

    /// The schema for the answer's text.
    pub(super) fn answer_schema(&self) -> Option<Value> {
        let format = &self.body["response_format"];
        match format["type"].as_str()? {
            "json_schema" => Some(format["json_schema"]["schema"].clone()),
            "json_object" => Some(json!({"type": "object", "required": ["answer"]})),
            _ => None,
        }
    }

    /// The answer cap in tokens.
    pub(super) fn answer_limit(&self) -> Option<u32> {
        let mut names = ["max_completion_tokens", "max_tokens"].into_iter();
        let limit = names.find_map(|name| self.body[name].as_u64())?;
        Some(u32::try_from(limit).unwrap_or(u32::MAX))
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.body["stream"] == true
    }

    pub(super) fn includes_usage(&self) -> bool {
        self.body["stream_options"]["include_usage"] == true
    }
}

/// Empty for a message without a role.
pub(super) fn message_role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

/// Every call has its result, and every result a call before it.
fn check_messages(messages: &Value) -> Result<(), SimulatedRefusal> {
    let messages = messages.as_array().filter(|messages| !messages.is_empty());
    let messages = messages.ok_or_else(|| invalid_type("messages", "an array of objects"))?;
    let mut open_calls: Vec<&Value> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        check_message(message, &format!("messages[{index}]"))?;
        if message_role(message) == "tool" {
            let id = &message["tool_call_id"];
            let Some(call) = open_calls.iter().position(|open| *open == id) else {
                return Err(SimulatedRefusal::for_parameter(
                    format!("messages.[{index}].role"),
                    "Invalid parameter: messages with role 'tool' must be a response to a \
                     preceding message with 'tool_calls'.",
                ));
            };
            open_calls.remove(call);
        } else {
            check_results(&open_calls, index)?;
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            open_calls = calls.map(|call| &call["id"]).collect();
        }
    }
    check_results(&open_calls, messages.len())
}

fn check_message(message: &Value, path: &str) -> Result<(), SimulatedRefusal> {
    let role = message_role(message);
    if !ROLES.split(", ").any(|known| known == role) {
        let message = format!("Invalid value: '{role}'. Supported values are: {ROLES}.");
        let param = format!("{path}.role");
        return Err(SimulatedRefusal::for_parameter(param, message));
    }
    // Agents write an answer of calls alone with null, or with an empty list.
    let others = ["tool_calls", "function_call", "refusal", "audio"];
    let may_be_empty = role == "assistant" && others.iter().any(|name| !message[name].is_null());
    let is_valid = match &message["content"] {
        Value::String(_) => true,
        Value::Array(parts) if parts.is_empty() => may_be_empty,
        Value::Array(parts) => parts.iter().all(Value::is_object),
        content => content.is_null() && (may_be_empty || role == "function"),
    };
    let expected = "one of a string or array of objects";
    let error = || invalid_type(&format!("{path}.content"), expected);
    is_valid.then_some(()).ok_or_else(error)
}

fn invalid_type(param: &str, expected: &str) -> SimulatedRefusal {
    let message = format!("Invalid type for '{param}': expected {expected}.");
    SimulatedRefusal {
        code: Some("invalid_type"),
        ..SimulatedRefusal::for_parameter(param, message)
    }
}

/// Every call has its result before the next message of another role.
fn check_results(open_calls: &[&Value], index: usize) -> Result<(), SimulatedRefusal> {
    if open_calls.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = open_calls.iter().filter_map(|id| id.as_str()).collect();
    let message = format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding \
         to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        ids.join(", ")
    );
    let param = format!("messages.[{index}].role");
    Err(SimulatedRefusal::for_parameter(param, message))
}
