//! Every response that the proxy makes itself; the only place that picks a status code.
//!
//! Errors have the shape of the client's format; `x-plimsoll-error` has their code, which tells them from the provider's.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};

use crate::{
    conversation::Format,
    error::Failure,
    format::{SentEvents, error_body::ErrorBody},
    wire::{Body, content_coding, whole_body},
};

/// The code of an error of the proxy.
pub const ERROR_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-error");

/// Tells the SDKs of OpenAI and Anthropic, and Claude Code, whether to send the same request again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A failure as the answer to a request.
pub fn failure_response(format: Format, failure: &Failure) -> Response<Body> {
    let status = failure_status(failure);
    let body = format.error_body(&failure_to_fault(format, failure));
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

fn failure_to_fault(format: Format, failure: &Failure) -> ErrorBody {
    ErrorBody {
        message: failure.to_string(),
        kind: Some(format.error_kind(failure_status(failure)).to_owned()),
        param: failure.param().map(str::to_owned),
        code: Some(failure.code().to_owned()),
    }
}

/// A failure as the last event of a stream whose head the client has.
pub fn failure_event(format: Format, failure: &Failure) -> Bytes {
    format.error_event(&failure_to_fault(format, failure), &SentEvents::default())
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

const fn failure_status(failure: &Failure) -> StatusCode {
    match failure {
        Failure::NotJson(_)
        | Failure::BodyBroken
        | Failure::BodyDamaged
        | Failure::DotSegments
        | Failure::SwitchMissing
        | Failure::SwitchValue
        | Failure::SwitchUnknown { .. }
        | Failure::QueryValue { .. }
        | Failure::QueryWord { .. }
        | Failure::QueryUnknown { .. }
        | Failure::FormatNotSpoken { .. }
        | Failure::ModelMissing { .. } => StatusCode::BAD_REQUEST,
        Failure::KeyMissing | Failure::KeyWrong | Failure::KeyShort => StatusCode::UNAUTHORIZED,
        Failure::ForeignHost
        | Failure::ForeignOrigin
        | Failure::ForeignPage
        | Failure::PathNotAllowed
        | Failure::SessionReadOnly
        | Failure::AdminOnly => StatusCode::FORBIDDEN,
        Failure::ModelNotFound(_)
        | Failure::ProviderNotFound(_)
        | Failure::PathNotFound
        | Failure::PathMeant(_)
        | Failure::SessionNotFound => StatusCode::NOT_FOUND,
        Failure::WrongMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
        Failure::WebsocketRefused => StatusCode::UPGRADE_REQUIRED,
        Failure::BodySlow { .. } => StatusCode::REQUEST_TIMEOUT,
        Failure::BodyTooLarge { .. }
        | Failure::BodyUnwanted { .. }
        | Failure::SwitchTooLarge { .. }
        | Failure::BodyBomb => StatusCode::PAYLOAD_TOO_LARGE,
        Failure::UnsupportedEncoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Failure::TooManyRequests | Failure::TooManyListeners { .. } => {
            StatusCode::TOO_MANY_REQUESTS
        }
        Failure::ProviderUnreachable { .. } | Failure::ProviderBadAnswer { .. } => {
            StatusCode::BAD_GATEWAY
        }
        Failure::Busy | Failure::StoreDown => StatusCode::SERVICE_UNAVAILABLE,
        Failure::ProviderTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
    }
}

/// Whether a client reads trailers.
pub fn accepts_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(http::header::TE).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}
