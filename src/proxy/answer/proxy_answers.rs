//! Answers that the proxy makes in place of a provider's: the end of a tool loop, and refusals after the head of a stream
//! is out.

use bytes::Bytes;
use http::{Response, StatusCode};

use crate::{
    conversation::Format,
    format::{SentEvents, usage::Usage},
    http::answer::{events_response, json_response},
    proxy::dispatch::provider_reply::read_fault,
    wire::Body,
};

/// Makes an answer without content, for a model that called only proxy-executed tools. Without it the client would wait.
pub(super) fn empty_response(
    format: Format,
    streams: bool,
    model: &str,
    usage: Option<Usage>,
) -> Response<Body> {
    let body = format.empty_answer(streams, model, usage);
    if streams {
        events_response(body)
    } else {
        json_response(StatusCode::OK, body)
    }
}

/// Writes a provider's refusal as the last event of a stream whose head was sent. `model`: as the client names it. Returns
/// `None` if the answer is a success or has no readable error.
pub(super) async fn refusal_event(
    format: Format,
    model: &str,
    refusal: Response<Body>,
    provider: &str,
) -> Option<Bytes> {
    if refusal.status().is_success() {
        return None;
    }
    let fault = read_fault(format, refusal, provider).await?;
    Some(format.error_event(&fault, &SentEvents::none_of(model)))
}
