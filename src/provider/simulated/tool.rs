//! Which functions a request offers, and which of them may be called.

use serde_json::{Map, Value};

use super::{
    ask::set,
    check::{member, string},
    refusal::Refusal,
};

/// One function that may be called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tool<'a> {
    pub(super) name: &'a str,
    pub(super) parameters: &'a Value,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    /// Takes free text instead of JSON arguments.
    Custom,
    /// From the legacy `functions`; called by `function_call`.
    Legacy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    None,
    Auto,
    Required,
    Named(&'a str),
}

fn list<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a Vec<Value>>, Refusal> {
    match set(fields, name) {
        None => Ok(None),
        Some(Value::Array(list)) if list.is_empty() => Err(Refusal::empty_array(name)),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(Refusal::wrong_type(name, "an array of objects", other)),
    }
}

pub(super) fn tools<'a>(fields: &'a Map<String, Value>) -> Result<Vec<Tool<'a>>, Refusal> {
    let list = list(fields, "tools")?.into_iter().flatten().enumerate();
    list.map(|(at, value)| {
        let path = format!("tools[{at}]");
        let Value::Object(tool) = value else {
            return Err(Refusal::wrong_type(&path, "an object", value));
        };
        match string(tool, "type", &path)? {
            "function" => described(member(tool, "function", &path)?, &path, Kind::Function),
            "custom" => described(member(tool, "custom", &path)?, &path, Kind::Custom),
            other => Err(Refusal::unsupported(
                &format!("{path}.type"),
                other,
                &["function", "custom"],
            )),
        }
    })
    .collect()
}

pub(super) fn functions<'a>(fields: &'a Map<String, Value>) -> Result<Vec<Tool<'a>>, Refusal> {
    let list = list(fields, "functions")?.into_iter().flatten().enumerate();
    list.map(|(at, value)| described(value, &format!("functions[{at}]"), Kind::Legacy))
        .collect()
}

fn described<'a>(value: &'a Value, path: &str, kind: Kind) -> Result<Tool<'a>, Refusal> {
    let path = match kind {
        Kind::Function => format!("{path}.function"),
        Kind::Custom => format!("{path}.custom"),
        Kind::Legacy => path.to_owned(),
    };
    let Value::Object(fields) = value else {
        return Err(Refusal::wrong_type(&path, "an object", value));
    };
    let name = string(fields, "name", &path)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(Refusal::of(
            &format!("{path}.name"),
            Some("invalid_value"),
            format!(
                "Invalid '{path}.name': string does not match pattern. Expected a string that \
                 matches the pattern '^[a-zA-Z0-9_-]{{1,64}}$'."
            ),
        ));
    }
    let parameters = fields.get("parameters").unwrap_or(&Value::Null);
    if !parameters.is_null() && !parameters.is_object() {
        let path = format!("{path}.parameters");
        return Err(Refusal::wrong_type(&path, "an object", parameters));
    }
    Ok(Tool {
        name,
        parameters,
        kind,
    })
}

pub(super) fn tool_choice<'a>(
    fields: &'a Map<String, Value>,
    tools: &[Tool<'_>],
) -> Result<Choice<'a>, Refusal> {
    for name in ["tool_choice", "parallel_tool_calls"] {
        if tools.is_empty() && set(fields, name).is_some_and(|value| value != "none") {
            return Err(Refusal::of(
                name,
                None,
                format!(
                    "Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified."
                ),
            ));
        }
    }
    match set(fields, "tool_choice") {
        None => Ok(Choice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "none" => Ok(Choice::None),
            "auto" => Ok(Choice::Auto),
            "required" => Ok(Choice::Required),
            other => Err(Refusal::unsupported(
                "tool_choice",
                other,
                &["none", "auto", "required"],
            )),
        },
        Some(Value::Object(choice)) => {
            let kind = string(choice, "type", "tool_choice")?;
            let Value::Object(inner) = member(choice, kind, "tool_choice")? else {
                return Err(Refusal::wrong_type(
                    "tool_choice",
                    "an object",
                    &Value::Null,
                ));
            };
            named(
                string(inner, "name", "tool_choice.function")?,
                tools,
                "tool_choice",
                "tools",
            )
        }
        Some(other) => Err(Refusal::wrong_type(
            "tool_choice",
            "one of a string or object",
            other,
        )),
    }
}

pub(super) fn function_call<'a>(
    fields: &'a Map<String, Value>,
    functions: &[Tool<'_>],
) -> Result<Choice<'a>, Refusal> {
    match set(fields, "function_call") {
        None => Ok(Choice::Auto),
        Some(Value::String(word)) if word == "auto" => Ok(Choice::Auto),
        Some(Value::String(word)) if word == "none" => Ok(Choice::None),
        Some(Value::String(other)) => Err(Refusal::unsupported(
            "function_call",
            other,
            &["none", "auto"],
        )),
        Some(Value::Object(choice)) => {
            let name = string(choice, "name", "function_call")?;
            named(name, functions, "function_call", "functions")
        }
        Some(other) => Err(Refusal::wrong_type(
            "function_call",
            "one of a string or object",
            other,
        )),
    }
}

fn named<'a>(
    name: &'a str,
    tools: &[Tool<'_>],
    param: &str,
    list: &str,
) -> Result<Choice<'a>, Refusal> {
    if tools.iter().any(|tool| tool.name == name) {
        return Ok(Choice::Named(name));
    }
    let message = format!(
        "Invalid value for '{param}': function '{name}' was not found in the '{list}' parameter."
    );
    Err(Refusal::of(param, None, message))
}
