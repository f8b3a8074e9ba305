//! A refusal in OpenAI's words: the body of a 4xx answer.

use http::StatusCode;
use serde_json::{Value, json};

/// One refused request. `code` and `param` are what clients branch on; the sentence is for people.
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
    pub(super) fn of(param: &str, code: Option<&'static str>, message: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            message,
            param: Some(param.to_owned()),
            code,
        }
    }

    /// A 4xx about the request as a whole.
    pub(super) fn plain(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    pub(super) fn missing(param: &str) -> Self {
        let message = format!("Missing required parameter: '{param}'.");
        Self::of(param, Some("missing_required_parameter"), message)
    }

    pub(super) fn wrong_type(param: &str, expected: &str, got: &Value) -> Self {
        let message = format!(
            "Invalid type for '{param}': expected {expected}, but got {} instead.",
            type_name(got)
        );
        Self::of(param, Some("invalid_type"), message)
    }

    pub(super) fn empty_array(param: &str) -> Self {
        let message = format!(
            "Invalid '{param}': empty array. Expected an array with minimum length 1, but got an \
             empty array instead."
        );
        Self::of(param, Some("empty_array"), message)
    }

    /// A value outside a closed list; `supported` has at least two entries.
    pub(super) fn unsupported(param: &str, value: &str, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|name| format!("'{name}'")).collect();
        let list = match quoted.split_last() {
            Some((last, [first])) => format!("{first} and {last}"),
            Some((last, others)) => format!("{}, and {last}", others.join(", ")),
            None => String::new(),
        };
        let message = format!("Invalid value: '{value}'. Supported values are: {list}.");
        Self::of(param, Some("invalid_value"), message)
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": "invalid_request_error",
            "param": self.param,
            "code": self.code,
        }})
    }
}

/// How OpenAI's messages name the type of a value.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_sentences() {
        let two = Refusal::unsupported("p", "x", &["a", "b"]);
        assert_eq!(
            two.message,
            "Invalid value: 'x'. Supported values are: 'a' and 'b'."
        );
        let three = Refusal::unsupported("p", "x", &["a", "b", "c"]);
        assert!(three.message.ends_with("'a', 'b', and 'c'."));
    }

    #[test]
    fn the_body_has_all_four_members() {
        let body = Refusal::missing("messages").body();
        assert_eq!(body["error"]["param"], "messages");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["code"], "missing_required_parameter");
        let plain = Refusal::plain(StatusCode::NOT_FOUND, "no").body();
        assert!(plain["error"]["code"].is_null() && plain["error"]["param"].is_null());
    }
}
