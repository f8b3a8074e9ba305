//! The result of a request to a provider, and the parts of an answer that are read before it is relayed.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header::CONTENT_TYPE};

use super::edit_body::Extras;
use crate::{
    conversation::Format,
    error::Failure,
    format::error_body::ErrorBody,
    provider::UpstreamError,
    relay::{self, BadAnswer, BufferedAnswer},
    wire::{Body, whole_body},
};

/// Most bytes of an error that are read; refusals are short.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The answer of a provider to one request, which may have been sent several times.
pub struct ProviderReply {
    pub answer: Response<Body>,
    /// The extras that the request had.
    pub sent: Extras,
    /// The conversation is too long for this candidate, however it is fitted.
    pub too_long: bool,
    /// The status of an error that the provider reports inside a success, before any content.
    pub inner: Option<StatusCode>,
}

impl ProviderReply {
    /// The status that retries, fallbacks and the breaker go by.
    pub fn status(&self) -> StatusCode {
        self.inner.unwrap_or_else(|| self.answer.status())
    }
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
    /// A 5xx began and broke off, or a success is no valid answer although another candidate may give one. The request may
    /// be sent again.
    Failing(BadAnswer),
    /// Another answer began, and broke off or is no valid answer. The request is not sent again.
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

/// Reads a short answer. Returns it as it came, and its text; the text is `None` if the answer is long, or cannot be read.
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

/// Reads the error in an answer; `None` if the answer is too long, broke off, or cannot be read.
pub async fn read_fault(
    format: Format,
    answer: Response<Body>,
    provider: &str,
) -> Option<ErrorBody> {
    let (_, text) = read_short(format, answer, provider).await.ok()?;
    ErrorBody::parse_body(&text?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn an_answer_is_a_stream_by_its_type_else_by_what_was_asked() {
        // In each row: where no stream was asked for, and where one was.
        for (status, kind, unasked, asked) in [
            (200, "text/event-stream", true, true),
            (200, " Text/Event-Stream; charset=utf-8", true, true),
            (200, "application/json", false, false),
            (200, "Application/JSON; charset=utf-8", false, false),
            (200, "text/plain", false, true),
            (200, "", false, true),
            (400, "text/event-stream", false, false),
            (502, "", false, false),
        ] {
            let answer = Response::builder().status(status).header(CONTENT_TYPE, kind);
            let answer = answer.body(whole_body("")).unwrap();
            assert_eq!(is_stream(&answer, false), unasked, "{status} {kind}");
            assert_eq!(is_stream(&answer, true), asked, "{status} {kind}, asked");
        }
    }
}
