//! The result of a request to a provider, and whether a refusal is only about the usage of a stream, which the proxy
//! asks for where the client did not.
//!
//! Some providers refuse every request with `stream_options` (Mistral's API and some model gateways answer 422,
//! Databricks 400). Nothing has reached the client by then, so the request is sent once more without it, and the
//! model's refusal is remembered. Where the client itself asked, the refusal is its answer.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header::CONTENT_TYPE};
use serde_json::Value;

use super::refusal::is_bad_request;
use crate::{
    config::profile::AnswerFilling,
    conversation::Format,
    error::Failure,
    format::{block_binding::MismatchField, error_body::ErrorBody},
    provider::UpstreamError,
    relay::{self, BadAnswer, BufferedAnswer},
    wire::{Body, whole_body},
};

/// Bytes of an error that is read; refusals are short.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Fields that a refusal to report usage names.
const WORDS: [&str; 2] = ["stream_options", "include_usage"];

/// The answer of a provider to one request, which may have been sent several times.
pub struct ProviderReply {
    pub answer: Response<Body>,
    /// What the request had.
    pub sent: Extras,
    pub attempts: u32,
    /// From the first byte sent to the head of the answer.
    pub took: Duration,
    /// The conversation is too long for this candidate, however it is fitted.
    pub too_long: bool,
}

/// What the proxy adds to a request for a provider, whatever the plan is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// It asks for the usage of a stream where the client does not.
    pub usage: bool,
    /// Cache markers where the client sets none.
    pub markers: bool,
    /// It asks for thinking to be dropped that does not fit what stands before it.
    pub drop_by: Option<MismatchField>,
    /// The model does not think, although the client asks for it.
    pub thinking_off: bool,
    /// Which answers get members that they lack; in what was sent, [`AnswerFilling::Nothing`] where none did.
    pub filling: AnswerFilling,
}

/// The calls to providers before an answer began.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallCount {
    pub calls: u32,
    /// From the first byte sent to the head of the answer, summed up.
    pub took: Duration,
}

/// Why there is no answer to relay.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum SendError {
    /// No answer began: the request may be sent again.
    Unsent(#[from] UpstreamError),
    /// A 5xx began, and broke off.
    Failing(BadAnswer),
    /// Another answer began, and broke off.
    Broken(#[from] BadAnswer),
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Unsent(error) => error.into(),
            SendError::Failing(bad) | SendError::Broken(bad) => bad.into(),
        }
    }
}

/// Whether an answer is a stream: by its content type, else by whether the request `asked` for one.
pub fn is_stream(answer: &Response<Body>, asked: bool) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    let kind = kind.map_or(&b""[..], |kind| kind.as_bytes());
    let kind = kind.trim_ascii_start().to_ascii_lowercase();
    answer.status().is_success()
        && (kind.starts_with(b"text/event-stream")
            || (asked && !kind.starts_with(b"application/json")))
}

/// A short answer as it came, and its text; `None` where it is long, or cannot be read.
///
/// # Errors
/// It broke off, or is a success and not JSON.
pub async fn read_short(
    format: Format,
    answer: Response<Body>,
    provider: &str,
) -> Result<(Response<Body>, Option<Bytes>), BadAnswer> {
    let mut left = MAX_ERROR_BYTES;
    let room = |bytes| {
        left = left.saturating_sub(bytes);
        left > 0
    };
    Ok(
        match relay::buffer_answer(format, answer, provider, room).await? {
            BufferedAnswer::Complete { head, body, .. } => {
                let text = relay::unpack_answer(&head.headers, &body);
                (Response::from_parts(head, whole_body(body)), text)
            }
            BufferedAnswer::Overlong(answer) => (answer, None),
        },
    )
}

/// The error in an answer; `None` where it is too long, broke off, or cannot be read.
pub async fn read_fault(
    format: Format,
    answer: Response<Body>,
    provider: &str,
) -> Option<ErrorBody> {
    let (_, text) = read_short(format, answer, provider).await.ok()?;
    ErrorBody::parse_body(&text?)
}

/// Whether an error, in any shape, refuses to report the usage of a stream.
pub(super) fn refuses_usage(status: StatusCode, body: &[u8]) -> bool {
    is_bad_request(status)
        && match serde_json::from_slice(body) {
            Ok(error) => names_usage(&error),
            Err(_) => contains_words(&String::from_utf8_lossy(body)),
        }
}

fn names_usage(error: &Value) -> bool {
    match error {
        Value::String(text) => contains_words(text),
        Value::Array(list) => list.iter().any(names_usage),
        // Validators repeat the request's fields under `input`.
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name != "input" && names_usage(value)),
        _ => false,
    }
}

fn contains_words(text: &str) -> bool {
    WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::refuses_usage;

    #[test]
    fn refusals_of_usage_differ_from_other_errors() {
        let check = |body: &'static str, refused: bool| {
            assert_eq!(
                refuses_usage(StatusCode::BAD_REQUEST, body.as_bytes()),
                refused,
                "{body}"
            );
        };
        check(
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"include_usage":true}}]}"#,
            true,
        );
        check(
            r#"{"error_code":"BAD_REQUEST","message":"json: unknown field \"stream_options\""}"#,
            true,
        );
        check(
            r#"{"error":{"message":"Unknown parameter","param":"stream_options.include_usage"}}"#,
            true,
        );
        check("Unrecognized request argument: include_usage", true);
        check(
            r#"{"detail":[{"loc":["body","messages"],"msg":"Field required","input":{"stream_options":{"include_usage":true},"x":["stream_options"]}}]}"#,
            false,
        );
        check(
            r#"{"error":{"message":"context_length_exceeded","param":"messages"}}"#,
            false,
        );
        check("", false);
    }
}
