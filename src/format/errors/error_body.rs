//! The OpenAI error body `{"error":{"message","type","param","code"}}`, of providers and the proxy.
//!
//! The reader accepts every shape seen at providers: a number as code, a bare string as error, the
//! object without the wrapper.

use bytes::Bytes;
use memchr::memmem;
use serde::Serialize;
use serde_json::Value;

/// One error, as OpenAI names its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    pub message: String,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub param: Option<String>,
    /// A number becomes text, so that `400` and `"400"` are the same.
    pub code: Option<String>,
}

#[derive(Serialize)]
struct WrappedError<'a> {
    error: &'a ErrorBody,
}

impl ErrorBody {
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&WrappedError { error: self })
            .expect("strings and options of strings always serialise")
    }

    /// The error as an event of a stream.
    pub(in crate::format) fn to_event(&self) -> Bytes {
        [b"data: ", &self.to_json()[..], b"\n\n"].concat().into()
    }

    /// Reads an error body, or the data of an error event; `None` if it is neither.
    pub fn parse_body(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let error = match &body {
            // Some servers wrap the object in a list.
            Value::Array(list) => list.first()?.get("error")?,
            body => {
                let failed = || body.get("response")?.get("error");
                body.get("error").or_else(failed).unwrap_or(body)
            }
        };
        if let Value::String(message) = error {
            return Some(Self {
                message: message.clone(),
                ..Self::default()
            });
        }
        Some(Self {
            message: error.get("message")?.as_str()?.to_owned(),
            kind: text_or_number(error.get("type")),
            param: text_or_number(error.get("param")),
            code: text_or_number(error.get("code")),
        })
    }

    /// Whether the error of a 404 is about the model (Anthropic: `model: claude-none`), and not about the path.
    pub fn is_unknown_model(&self) -> bool {
        self.code.as_deref() == Some("model_not_found")
            || self.message.to_ascii_lowercase().contains("model")
    }
}

fn text_or_number(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Whether a success is surely a chat answer without an error, by its bytes: it has choices, and none of the words that an
/// error needs. False for answers of other formats, which are read in full.
pub fn is_plain_chat_answer(body: &[u8]) -> bool {
    let find = |word: &str| memmem::find(body, word.as_bytes());
    let has_choices = find("\"choices\"").is_some_and(|at| {
        let behind = body[at..].iter().skip("\"choices\"".len());
        let mut marks = behind.filter(|byte| !byte.is_ascii_whitespace());
        [b':', b'[', b'{']
            .iter()
            .all(|mark| marks.next() == Some(mark))
    });
    // An escape may spell a name in another way.
    let needed = ["error", "\"code\"", "response.failed", "\\u"];
    has_choices && needed.into_iter().all(|word| find(word).is_none())
}

#[cfg(test)]
mod tests {
    use super::{ErrorBody, is_plain_chat_answer};

    #[test]
    fn an_answer_without_an_error_is_told_by_its_bytes() {
        for plain in [
            r#"{"id":"c","choices":[{"message":{"content":"Aye."}}]}"#,
            "{\"choices\" : [ {\n\"message\":{}}]}",
        ] {
            assert!(is_plain_chat_answer(plain.as_bytes()), "{plain}");
        }
        for other in [
            "",
            r#"{"choices":[]}"#,
            r#"{"choices":null}"#,
            r#"{"content":"\"choices\":[{"}"#,
            r#"{"choices":[{}],"error":{"message":"no"}}"#,
            r#"{"choices":[{}],"\u0065rror":{"message":"no"}}"#,
            r#"{"choices":[{}],"code":1,"message":"no"}"#,
            r#"{"choices":[{}],"type":"error"}"#,
            r#"{"choices":[{}],"type":"response.failed"}"#,
        ] {
            assert!(!is_plain_chat_answer(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn errors_are_read_in_every_shape() {
        let check = |body: &str, message: &str, code: Option<&str>| {
            let fault = ErrorBody::parse_body(body.as_bytes()).unwrap();
            assert_eq!(fault.message, message, "{body}");
            assert_eq!(fault.code.as_deref(), code, "{body}");
        };
        check(
            r#"{"error":{"message":"m","type":"t","param":null,"code":"c"}}"#,
            "m",
            Some("c"),
        );
        check(r#"{"error":{"message":"m","code":400}}"#, "m", Some("400"));
        check(r#"{"error":"m"}"#, "m", None);
        check(
            r#"{"object":"error","message":"m","code":1}"#,
            "m",
            Some("1"),
        );
        check(r#"[{"error":{"message":"m"}}]"#, "m", None);
        check(
            r#"{"type":"response.failed","response":{"error":{"message":"m","code":"c"}}}"#,
            "m",
            Some("c"),
        );
        assert_eq!(ErrorBody::parse_body(b"<html>"), None);
        assert_eq!(ErrorBody::parse_body(b"{}"), None);
    }

    #[test]
    fn an_unknown_model_differs_from_an_unknown_path() {
        let check = |body: &str, is_model: bool| {
            let fault = ErrorBody::parse_body(body.as_bytes()).unwrap();
            assert_eq!(fault.is_unknown_model(), is_model, "{body}");
        };
        check(
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-none"}}"#,
            true,
        );
        check(
            r#"{"object":"error","message":"The Model `m` does not exist.","type":"NotFoundError","code":404}"#,
            true,
        );
        check(
            r#"{"error":{"message":"`m` does not exist","code":"model_not_found"}}"#,
            true,
        );
        check(
            r#"{"type":"error","error":{"type":"not_found_error","message":"Not Found"}}"#,
            false,
        );
        check(
            r#"{"error":{"message":"Invalid URL (POST /v1/messages/count_tokens)","code":"404"}}"#,
            false,
        );
    }

    #[test]
    fn a_written_error_is_read_back() {
        let fault = ErrorBody {
            message: "a \"quoted\" line".into(),
            kind: Some("invalid_request_error".into()),
            param: Some("model".into()),
            code: Some("model_not_found".into()),
        };
        assert_eq!(ErrorBody::parse_body(&fault.to_json()), Some(fault));
    }
}
