//! Every response that the proxy makes itself.
//!
//! Errors have the shape of the client's format; `x-plimsoll-error` has their code, which tells them from the provider's.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, RETRY_AFTER, TE, WWW_AUTHENTICATE},
};

use crate::{
    conversation::Format,
    error::Failure,
    format::{SentEvents, error_body::ErrorBody},
    wire::{Body, content_coding, split_header_list, whole_body},
};

/// The code of an error of the proxy.
pub const ERROR_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-error");

/// Tells the SDKs of OpenAI and Anthropic, and Claude Code, whether to send the same request again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A failure as the answer to a request. `asks`: the request is one of a conversation.
pub fn failure_response(format: Format, asks: bool, failure: &Failure) -> Response<Body> {
    let status = failure_status(format, asks, failure);
    let body = format.error_body(&failure_to_fault(format, status, failure));
    let mut answer = json_response(status, body);
    let never_mends = status.is_client_error()
        && ![StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    let retry = never_mends.then_some((SHOULD_RETRY, "false"));
    let hint = match failure {
        Failure::Busy | Failure::TooManyRequests | Failure::TooManyListeners { .. } => {
            Some((RETRY_AFTER, "1"))
        }
        Failure::UnsupportedEncoding(_) => {
            Some((ACCEPT_ENCODING, content_coding::READABLE_CODINGS))
        }
        Failure::WrongMethod { allow } => Some((ALLOW, *allow)),
        Failure::KeyMissing | Failure::KeyWrong | Failure::KeyShort => {
            Some((WWW_AUTHENTICATE, "Bearer"))
        }
        _ => None,
    };
    let code = (ERROR_HEADER, failure.code());
    for (name, value) in [code].into_iter().chain(retry).chain(hint) {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    answer
}

fn failure_status(format: Format, asks: bool, failure: &Failure) -> StatusCode {
    match failure {
        Failure::ModelNotFound(_) | Failure::ProviderNotFound(_) if asks => {
            format.missing_model_status()
        }
        _ => failure.status(),
    }
}

fn failure_to_fault(format: Format, status: StatusCode, failure: &Failure) -> ErrorBody {
    ErrorBody {
        message: failure.to_string(),
        kind: Some(format.error_kind(status).to_owned()),
        param: failure.param().map(str::to_owned),
        code: Some(failure.code().to_owned()),
    }
}

/// A failure as the last event of a stream whose head the client has. `model`: as the client names it.
pub fn failure_event(format: Format, model: &str, failure: &Failure) -> Bytes {
    let failure = failure.clone().without_cause();
    let sent = SentEvents::none_of(model);
    format.error_event(&failure_to_fault(format, failure.status(), &failure), &sent)
}

pub fn events_response(events: impl Into<Bytes>) -> Response<Body> {
    event_stream_response(whole_body(events))
}

pub fn event_stream_response(body: Body) -> Response<Body> {
    build_response(StatusCode::OK, "text/event-stream", body)
}

pub fn json_response(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    build_response(status, "application/json", whole_body(body))
}

fn build_response(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}

/// Whether a client reads trailers.
pub fn accepts_trailers(headers: &HeaderMap) -> bool {
    let mut codings = split_header_list(headers, &TE);
    codings.any(|coding| coding.eq_ignore_ascii_case("trailers"))
}
