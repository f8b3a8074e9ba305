//! What a request asks for besides its conversation: model, tools, limits, format, stream.

use http::StatusCode;
use serde_json::{Map, Value};

use super::{
    Model,
    check::{self, array, member, object, string},
    find_model,
    refusal::Refusal,
};

/// What OpenAI says about a body that is no JSON object.
pub(super) const NOT_JSON: &str = "We could not parse the JSON body of your request. The API \
    expects a JSON payload, but what was sent was not valid JSON.";

type Fields = Map<String, Value>;

/// A valid request, borrowed from its body.
#[derive(Debug)]
pub(super) struct ChatRequest<'a> {
    pub(super) model: Model,
    pub(super) messages: &'a [Value],
    /// The functions of `tools`; other kinds of tools are counted and never called.
    pub(super) tools: Vec<Tool<'a>>,
    /// All that is counted beside the messages: tools, legacy functions, the response format.
    pub(super) schemas: Vec<&'a Value>,
    pub(super) choice: Choice<'a>,
    pub(super) parallel: bool,
    /// Answers wanted: 1 to 128.
    pub(super) n: u32,
    /// Tokens that each answer may have.
    pub(super) limit: Option<u32>,
    pub(super) format: Format<'a>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tool<'a> {
    pub(super) name: &'a str,
    pub(super) parameters: &'a Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    None,
    Auto,
    Required,
    Named(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Format<'a> {
    Text,
    Object,
    /// The JSON schema that the answer fits.
    Schema(&'a Value),
}

impl<'a> ChatRequest<'a> {
    /// Parameters of a wrong type count as absent.
    ///
    /// # Errors
    /// The first thing that OpenAI would refuse about the conversation and what goes with it.
    pub(super) fn parse(body: &'a Value) -> Result<Self, Refusal> {
        let Value::Object(fields) = body else {
            return Err(Refusal::plain(StatusCode::BAD_REQUEST, NOT_JSON));
        };
        let model = parse_model(fields)?;
        let messages = check::messages(fields)?;
        let tools = parse_tools(fields)?;
        let flag = |name: &str| fields.get(name).and_then(Value::as_bool);
        let stream = flag("stream").unwrap_or(false);
        let schemas = ["tools", "functions", "response_format"];
        Ok(Self {
            model,
            messages,
            choice: parse_choice(fields, &tools)?,
            tools,
            schemas: schemas.iter().filter_map(|it| set(fields, it)).collect(),
            parallel: flag("parallel_tool_calls").unwrap_or(true),
            n: integer(fields, "n", 128)?.unwrap_or(1),
            limit: parse_limit(fields)?,
            format: parse_format(fields, messages)?,
            stream,
            include_usage: parse_include_usage(fields, stream)?,
        })
    }
}

/// A member that is there and not null: OpenAI treats null as absent.
fn set<'a>(fields: &'a Fields, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn parse_model(fields: &Fields) -> Result<Model, Refusal> {
    match set(fields, "model") {
        None => Err(Refusal::plain(
            StatusCode::BAD_REQUEST,
            "you must provide a model parameter",
        )),
        Some(Value::String(name)) => find_model(name),
        Some(other) => Err(Refusal::wrong_type("model", "a string", other)),
    }
}

/// A number from 1 to `most`.
fn integer(fields: &Fields, name: &str, most: u32) -> Result<Option<u32>, Refusal> {
    let Some(number) = fields.get(name).and_then(Value::as_i64) else {
        return Ok(None);
    };
    let (code, words) = match u32::try_from(number.max(0)) {
        Ok(0) => (
            "integer_below_min_value",
            "below minimum value. Expected a value >= 1",
        ),
        Ok(number) if number <= most => return Ok(Some(number)),
        _ => (
            "integer_above_max_value",
            &*format!("above maximum value. Expected a value <= {most}"),
        ),
    };
    let message = format!("Invalid '{name}': integer {words}, but got {number} instead.");
    Err(Refusal::of(name, Some(code), message))
}

fn parse_limit(fields: &Fields) -> Result<Option<u32>, Refusal> {
    let old = integer(fields, "max_tokens", u32::MAX)?;
    let new = integer(fields, "max_completion_tokens", u32::MAX)?;
    if old.is_some() && new.is_some() {
        return Err(Refusal::of(
            "max_tokens",
            Some("invalid_parameter_combination"),
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
                .to_owned(),
        ));
    }
    Ok(new.or(old))
}

fn parse_tools(fields: &Fields) -> Result<Vec<Tool<'_>>, Refusal> {
    let Some(list) = set(fields, "tools") else {
        return Ok(Vec::new());
    };
    let mut tools = Vec::new();
    for (at, value) in array(list, "tools")?.iter().enumerate() {
        let path = format!("tools[{at}]");
        let tool = object(value, &path)?;
        let kind = string(tool, "type", &path)?;
        if !["function", "custom"].contains(&kind) {
            let path = format!("{path}.type");
            return Err(Refusal::unsupported(&path, kind, &["function", "custom"]));
        }
        let inner = format!("{path}.{kind}");
        let described = object(member(tool, kind, &path)?, &inner)?;
        let name = string(described, "name", &inner)?;
        let parameters = described.get("parameters").unwrap_or(&Value::Null);
        if kind == "function" {
            tools.push(Tool { name, parameters });
        }
    }
    Ok(tools)
}

fn parse_choice<'a>(fields: &'a Fields, tools: &[Tool<'_>]) -> Result<Choice<'a>, Refusal> {
    for name in ["tool_choice", "parallel_tool_calls"] {
        if set(fields, "tools").is_none() && set(fields, name).is_some_and(|it| it != "none") {
            let message = format!(
                "Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified."
            );
            return Err(Refusal::of(name, None, message));
        }
    }
    let name = match set(fields, "tool_choice") {
        None => return Ok(Choice::Auto),
        Some(Value::String(word)) => {
            return Ok(match word.as_str() {
                "none" => Choice::None,
                "required" => Choice::Required,
                _ => Choice::Auto,
            });
        }
        Some(choice) => choice["function"]["name"].as_str().unwrap_or_default(),
    };
    if tools.iter().any(|tool| tool.name == name) {
        return Ok(Choice::Named(name));
    }
    let message = format!(
        "Invalid value for 'tool_choice': function '{name}' was not found in the 'tools' parameter."
    );
    Err(Refusal::of("tool_choice", None, message))
}

fn parse_format<'a>(fields: &'a Fields, messages: &[Value]) -> Result<Format<'a>, Refusal> {
    let Some(format) = set(fields, "response_format") else {
        return Ok(Format::Text);
    };
    match format["type"].as_str() {
        Some("json_schema") => Ok(Format::Schema(&format["json_schema"]["schema"])),
        Some("json_object") if messages.iter().any(says_json) => Ok(Format::Object),
        Some("json_object") => Err(Refusal::of(
            "messages",
            None,
            "'messages' must contain the word 'json' in some form, to use 'response_format' of \
             type 'json_object'."
                .to_owned(),
        )),
        _ => Ok(Format::Text),
    }
}

fn says_json(message: &Value) -> bool {
    let said = message["content"].to_string();
    said.to_ascii_lowercase().contains("json")
}

fn parse_include_usage(fields: &Fields, stream: bool) -> Result<bool, Refusal> {
    match set(fields, "stream_options") {
        None => Ok(false),
        Some(_) if !stream => Err(Refusal::of(
            "stream_options",
            None,
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.".to_owned(),
        )),
        Some(options) => Ok(options["include_usage"] == true),
    }
}

#[cfg(test)]
mod tests;
