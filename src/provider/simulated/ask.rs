//! What a request asks for besides its conversation: model, tools, limits, format, stream.

use http::StatusCode;
use serde_json::{Map, Value};

use super::{
    Model,
    check::{self, member, string},
    model,
    refusal::Refusal,
    tool::{self, Choice, Tool},
};

/// A valid request, borrowed from its body.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) model: Model,
    pub(super) messages: &'a [Value],
    pub(super) tools: Vec<Tool<'a>>,
    /// All that is counted beside the messages: tools, legacy functions, the response format.
    pub(super) schemas: Vec<&'a Value>,
    pub(super) choice: Choice<'a>,
    pub(super) parallel: bool,
    /// Answers wanted: 1 to 128.
    pub(super) n: u32,
    /// Tokens each answer may have.
    pub(super) limit: Option<u32>,
    pub(super) stop: Vec<&'a str>,
    pub(super) format: Format<'a>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// `seed`, as sent; 0 where there is none.
    pub(super) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Format<'a> {
    Text,
    Object,
    /// The JSON schema that the answer fits.
    Schema(&'a Value),
}

impl<'a> Ask<'a> {
    /// # Errors
    ///
    /// The first thing OpenAI would refuse about the request.
    pub(super) fn of(body: &'a Value) -> Result<Self, Refusal> {
        let Value::Object(fields) = body else {
            return Err(Refusal::plain(StatusCode::BAD_REQUEST, NOT_JSON));
        };
        let model = model_of(fields)?;
        let messages = check::messages(fields)?;
        let mut tools = tool::tools(fields)?;
        let legacy = tool::functions(fields)?;
        let choice = if legacy.is_empty() {
            tool::tool_choice(fields, &tools)?
        } else {
            tool::function_call(fields, &legacy)?
        };
        tools.extend(legacy);
        let stream = boolean(fields, "stream")?.unwrap_or(false);
        number_between(fields, "temperature", 0.0, 2.0)?;
        number_between(fields, "top_p", 0.0, 1.0)?;
        let schemas = ["tools", "functions", "response_format"];
        Ok(Self {
            model,
            messages,
            tools,
            schemas: schemas
                .iter()
                .filter_map(|name| set(fields, name))
                .collect(),
            choice,
            parallel: boolean(fields, "parallel_tool_calls")?.unwrap_or(true),
            n: integer(fields, "n", 1, 128)?.unwrap_or(1),
            limit: limit(fields)?,
            stop: stop(fields)?,
            format: format(fields, messages)?,
            stream,
            include_usage: include_usage(fields, stream)?,
            seed: set(fields, "seed").and_then(Value::as_u64).unwrap_or(0),
        })
    }
}

/// What OpenAI says about a body that is no JSON object.
pub(super) const NOT_JSON: &str = "We could not parse the JSON body of your request. The API \
    expects a JSON payload, but what was sent was not valid JSON.";

/// A member that is there and not null: OpenAI treats null as absent.
pub(super) fn set<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn model_of(fields: &Map<String, Value>) -> Result<Model, Refusal> {
    let name = match set(fields, "model") {
        None => {
            let message = "you must provide a model parameter";
            return Err(Refusal::plain(StatusCode::BAD_REQUEST, message));
        }
        Some(Value::String(name)) => name,
        Some(other) => return Err(Refusal::wrong_type("model", "a string", other)),
    };
    model(name).ok_or_else(|| unknown_model(name))
}

/// The refusal of a model nobody has.
pub(super) fn unknown_model(name: &str) -> Refusal {
    Refusal {
        status: StatusCode::NOT_FOUND,
        message: format!("The model `{name}` does not exist or you do not have access to it."),
        param: None,
        code: Some("model_not_found"),
    }
}

fn boolean(fields: &Map<String, Value>, name: &str) -> Result<Option<bool>, Refusal> {
    match set(fields, name) {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(other) => Err(Refusal::wrong_type(name, "a boolean", other)),
    }
}

fn integer(
    fields: &Map<String, Value>,
    name: &str,
    least: u32,
    most: u32,
) -> Result<Option<u32>, Refusal> {
    let Some(value) = set(fields, name) else {
        return Ok(None);
    };
    let Some(number) = value.as_i64() else {
        return Err(Refusal::wrong_type(name, "an integer", value));
    };
    let bound = |side: &str, sign: &str, bound: u32| {
        Refusal::of(
            name,
            Some(match side {
                "below minimum" => "integer_below_min_value",
                _ => "integer_above_max_value",
            }),
            format!(
                "Invalid '{name}': integer {side} value. Expected a value {sign} {bound}, but got \
                 {number} instead."
            ),
        )
    };
    match u32::try_from(number) {
        Ok(number) if number >= least && number <= most => Ok(Some(number)),
        _ if number < i64::from(least) => Err(bound("below minimum", ">=", least)),
        _ => Err(bound("above maximum", "<=", most)),
    }
}

fn number_between(
    fields: &Map<String, Value>,
    name: &str,
    least: f64,
    most: f64,
) -> Result<(), Refusal> {
    let Some(value) = set(fields, name) else {
        return Ok(());
    };
    let Some(number) = value.as_f64() else {
        return Err(Refusal::wrong_type(name, "a decimal", value));
    };
    let (code, side, sign, bound) = if number < least {
        ("decimal_below_min_value", "below minimum", ">=", least)
    } else if number > most {
        ("decimal_above_max_value", "above maximum", "<=", most)
    } else {
        return Ok(());
    };
    let message = format!(
        "Invalid '{name}': decimal {side} value. Expected a value {sign} {bound}, but got {number} \
         instead."
    );
    Err(Refusal::of(name, Some(code), message))
}

fn limit(fields: &Map<String, Value>) -> Result<Option<u32>, Refusal> {
    let old = integer(fields, "max_tokens", 1, u32::MAX)?;
    let new = integer(fields, "max_completion_tokens", 1, u32::MAX)?;
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

fn stop(fields: &Map<String, Value>) -> Result<Vec<&str>, Refusal> {
    let stop = match set(fields, "stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(list)) if list.len() <= 4 => list
            .iter()
            .map(|one| {
                one.as_str()
                    .ok_or_else(|| Refusal::wrong_type("stop", "a string", one))
            })
            .collect::<Result<_, _>>()?,
        Some(Value::Array(list)) => {
            let message = format!(
                "Invalid 'stop': array too long. Expected an array with maximum length 4, but got \
                 an array with length {} instead.",
                list.len()
            );
            return Err(Refusal::of("stop", Some("array_above_max_length"), message));
        }
        Some(other) => {
            return Err(Refusal::wrong_type(
                "stop",
                "one of a string or array of strings",
                other,
            ));
        }
    };
    Ok(stop.into_iter().filter(|word| !word.is_empty()).collect())
}

fn format<'a>(fields: &'a Map<String, Value>, messages: &[Value]) -> Result<Format<'a>, Refusal> {
    let value = match set(fields, "response_format") {
        None => return Ok(Format::Text),
        Some(Value::Object(value)) => value,
        Some(other) => return Err(Refusal::wrong_type("response_format", "an object", other)),
    };
    match string(value, "type", "response_format")? {
        "text" => Ok(Format::Text),
        "json_object" if messages.iter().any(says_json) => Ok(Format::Object),
        "json_object" => Err(Refusal::of(
            "messages",
            None,
            "'messages' must contain the word 'json' in some form, to use 'response_format' of \
             type 'json_object'."
                .to_owned(),
        )),
        "json_schema" => {
            let path = "response_format.json_schema";
            let Value::Object(inner) = member(value, "json_schema", "response_format")? else {
                return Err(Refusal::wrong_type(path, "an object", &Value::Null));
            };
            string(inner, "name", path)?;
            Ok(inner.get("schema").map_or(Format::Object, Format::Schema))
        }
        other => Err(Refusal::unsupported(
            "response_format.type",
            other,
            &["json_object", "json_schema", "text"],
        )),
    }
}

fn says_json(message: &Value) -> bool {
    let said = message["content"].to_string();
    said.as_bytes()
        .windows(4)
        .any(|word| word.eq_ignore_ascii_case(b"json"))
}

fn include_usage(fields: &Map<String, Value>, stream: bool) -> Result<bool, Refusal> {
    match set(fields, "stream_options") {
        None => Ok(false),
        Some(_) if !stream => Err(Refusal::of(
            "stream_options",
            None,
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.".to_owned(),
        )),
        Some(Value::Object(options)) => Ok(boolean(options, "include_usage")?.unwrap_or(false)),
        Some(other) => Err(Refusal::wrong_type("stream_options", "an object", other)),
    }
}

#[cfg(test)]
mod tests;
