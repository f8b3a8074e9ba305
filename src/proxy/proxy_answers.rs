//! Answers that the proxy makes in place of a provider's: an overflow that no refit could avoid, the end of a tool
//! loop, and refusals after the head of a stream is out.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};

use super::provider_reply::read_fault;
use crate::{
    conversation::Format,
    error::Failure,
    format::{SentEvents, usage::Usage},
    http::answer::{ERROR_HEADER, events_response, failure_event, json_response},
    provider::{Window, overflow::Overflow},
    wire::Body,
};

/// An overflow in the words that the client's own recovery looks for.
pub(super) fn overflow_response(
    format: Format,
    overflow: &Overflow,
    window: Window,
) -> Response<Body> {
    let window = overflow.window.or(window.claimed_tokens());
    let fault = format.overflow_error(window, overflow.prompt_tokens);
    let mut answer = json_response(StatusCode::BAD_REQUEST, format.error_body(&fault));
    if let Ok(code) = HeaderValue::try_from(fault.code.unwrap_or_default()) {
        answer.headers_mut().insert(ERROR_HEADER, code);
    }
    answer
}

/// An answer without content: the model called only proxy-executed tools. Without it the client would wait.
pub(super) fn empty_response(
    format: Format,
    streams: bool,
    model: &str,
    usage: Option<Usage>,
) -> Response<Body> {
    let body = format.empty_answer(streams, model, usage);
    match streams {
        true => events_response(body),
        false => json_response(StatusCode::OK, body),
    }
}

/// The last event of a stream whose head is out: the provider's refusal in its words, where it has any.
pub(super) async fn refusal_event(
    format: Format,
    refusal: Response<Body>,
    provider: &str,
) -> Bytes {
    let refused = !refusal.status().is_success();
    match read_fault(format, refusal, provider).await {
        Some(fault) if refused => format.error_event(&fault, &SentEvents::default()),
        _ => failure_event(
            format,
            &Failure::ProviderBadAnswer {
                provider: provider.to_owned(),
                what: "it is not a stream",
            },
        ),
    }
}

/// A refusal as the last event of a stream whose head is out. `None` where it has no readable error.
pub(super) async fn refusal_stream(
    format: Format,
    refusal: Response<Body>,
    provider: &str,
) -> Option<Response<Body>> {
    if refusal.status().is_success() {
        return None;
    }
    let status = refusal.status().as_u16();
    let fault = read_fault(format, refusal, provider).await?;
    tracing::warn!(
        status,
        "tool loop: {provider} answered {status}; its error ends the stream"
    );
    Some(events_response(
        format.error_event(&fault, &SentEvents::default()),
    ))
}
