//! What came of asking a provider, and what a refusal says; among it whether just the usage of a
//! stream is refused, which the proxy asks for where the client did not.
//!
//! Some providers refuse every request with `stream_options` (Mistral's own API and some gateways of
//! models answer 422, Databricks 400). Nothing has reached the client by then, so the request goes
//! out once more without it, and the provider remembers it of the model. Never done where the client
//! itself asked: then the refusal is its answer. An error about anything else passes as it came.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header::CONTENT_TYPE};
use serde_json::Value;

use crate::{
    error::Failure,
    format::error_body::ErrorBody,
    provider::UpstreamError,
    relay::{self, BadAnswer, BufferedAnswer},
    wire::{Body, whole_body},
};

/// Bytes of an error that are looked into; such refusals are short.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// What a refusal names.
const WORDS: [&str; 2] = ["stream_options", "include_usage"];

/// The answer of a provider to one request, which may have been sent several times.
pub struct ProviderReply {
    pub answer: Response<Body>,
    /// The request asked for the usage of a stream where the client did not.
    pub asked_usage: bool,
    pub attempts: u32,
    /// From the first byte sent to the head of the answer.
    pub took: Duration,
    /// The conversation is too long for this place, whatever is done.
    pub too_long: bool,
}

/// The calls to providers before an answer began.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallCount {
    pub calls: u32,
    /// From the first byte sent to the head of the answer, summed up.
    pub took: Duration,
}

/// Why there is no answer to relay.
#[derive(Debug)]
pub enum SendError {
    /// None began: the request may be sent again.
    Unsent(UpstreamError),
    /// One began that told of the provider's own failure, and broke.
    Failing(BadAnswer),
    /// One began, and broke.
    Broken(BadAnswer),
}

impl From<UpstreamError> for SendError {
    fn from(unsent: UpstreamError) -> Self {
        Self::Unsent(unsent)
    }
}

impl From<BadAnswer> for SendError {
    fn from(bad: BadAnswer) -> Self {
        Self::Broken(bad)
    }
}

impl From<SendError> for Failure {
    fn from(lost: SendError) -> Self {
        match lost {
            SendError::Unsent(unsent) => unsent.into(),
            SendError::Failing(bad) | SendError::Broken(bad) => bad.into(),
        }
    }
}

/// Whether an answer is a stream: by what it says of itself; where it says nothing, by what was asked for.
pub fn is_stream(answer: &Response<Body>, asked: bool) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    let kind = kind.map_or(&b""[..], |kind| kind.as_bytes());
    let kind = kind.trim_ascii_start().to_ascii_lowercase();
    answer.status().is_success()
        && (kind.starts_with(b"text/event-stream")
            || (asked && !kind.starts_with(b"application/json")))
}

/// A short answer as it came, and what it says; `None` for one that is long, or cannot be read.
///
/// # Errors
/// It broke off, or is a success and not JSON.
pub async fn read_short(
    answer: Response<Body>,
    provider: &str,
) -> Result<(Response<Body>, Option<Bytes>), BadAnswer> {
    let mut left = MAX_ERROR_BYTES;
    let room = |bytes| {
        left = left.saturating_sub(bytes);
        left > 0
    };
    Ok(match relay::buffer_answer(answer, provider, room).await? {
        BufferedAnswer::Complete { head, body, .. } => {
            let text = relay::unpack_answer(&head.headers, &body);
            (Response::from_parts(head, whole_body(body)), text)
        }
        BufferedAnswer::Overlong(answer) => (answer, None),
    })
}

/// What an error says; `None` where it is too long, broke off, or cannot be read.
pub async fn read_fault(answer: Response<Body>, provider: &str) -> Option<ErrorBody> {
    let (_, text) = read_short(answer, provider).await.ok()?;
    ErrorBody::parse_body(&text?)
}

/// Whether an error, in any shape, refuses to be asked for the usage of a stream.
pub(super) fn refuses_usage(status: StatusCode, body: &[u8]) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
    ) && match serde_json::from_slice(body) {
        Ok(error) => names_usage(&error),
        Err(_) => contains_words(&String::from_utf8_lossy(body)),
    }
}

fn names_usage(error: &Value) -> bool {
    match error {
        Value::String(text) => contains_words(text),
        Value::Array(list) => list.iter().any(names_usage),
        // Validators repeat here what they were sent.
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
    fn refusals_are_told_from_other_errors() {
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
