//! The count of a request's tokens (`/v1/messages/count_tokens`, `/v1/responses/input_tokens`), where the provider does
//! not answer it or does not speak the format: the guard's estimate of the body as it came.
//!
//! Clients fill their own meter with the count, so an estimate serves them better than an error. Nothing is stored.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;

use super::ForwardTarget;
use crate::{
    config::tokens::find_token_rule,
    conversation::Format,
    format::error_body::ErrorBody,
    guard::estimate::{Weights, estimate_request},
    http::answer::json_response,
    provider::thinking_refusal::detect_thinking_refusal,
    proxy::{App, dispatch::provider_reply::read_short},
    wire::Body,
};

/// Marks a count that no provider made.
const COUNT_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-count");

/// Whether the status of an answer may say that the provider does not count, or not this conversation.
pub(super) fn may_need_estimate(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
    )
}

/// The provider's error, if it says that there is no such model, or what is wrong with the request: an estimate would hide
/// that. A refusal of thinking is no such error: the client's body has thinking that the guard would leave out.
pub(super) async fn keep_error(
    format: Format,
    answer: Response<Body>,
    provider: &str,
) -> Option<Response<Body>> {
    let status = answer.status();
    if matches!(
        status,
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
    ) {
        return None;
    }
    let short = read_short(format, answer, provider).await;
    let (answer, text) = short.ok()?;
    let text = text.unwrap_or_default();
    let keeps = match status {
        StatusCode::NOT_FOUND => {
            ErrorBody::parse_body(&text).is_some_and(|error| error.is_unknown_model())
        }
        // Gateways answer with 500 or 502 too.
        _ => detect_thinking_refusal(status, &text).is_none(),
    };
    keeps.then_some(answer)
}

/// The estimate as an answer; `None` where the body is no conversation.
pub(super) fn answer_estimate(
    app: &App,
    format: Format,
    target: &ForwardTarget,
    body: Bytes,
) -> Option<Response<Body>> {
    let conversation = format.index_body(body).ok()?;
    let model = target.model.as_deref().unwrap_or_default();
    let (provider, profile) = (&target.provider, target.provider.config.profile);
    let weights = Weights::new(
        find_token_rule(model, profile),
        profile,
        app.config.guard.chars_per_token,
    );
    let raw = estimate_request(&conversation, &weights);
    let calibration = app.ratios.initial_calibration(&provider.name, model);
    let count = calibration.to_expected_tokens(raw);
    let count = match format {
        Format::Responses => json!({"object": "response.input_tokens", "input_tokens": count}),
        Format::Messages | Format::Chat => json!({"input_tokens": count}),
        #[cfg(test)]
        Format::Toy => json!({"input_tokens": count}),
    };
    let mut answer = json_response(StatusCode::OK, count.to_string());
    let value = HeaderValue::from_static("estimate");
    answer.headers_mut().insert(COUNT_HEADER, value);
    Some(answer)
}
