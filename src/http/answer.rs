//! Every response that we make ourselves; the only place that picks a status code.
//!
//! Errors have OpenAI's shape, and name themselves in `x-plimsoll-error`, so that a client can
//! tell them from the provider's.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};

use crate::{
    error::Failure,
    format::error_body::ErrorBody,
    wire::{Body, content_coding, whole_body},
};

/// The code of an error of ours.
pub const ERROR_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-error");

/// An error of ours.
pub fn failure_response(failure: &Failure) -> Response<Body> {
    let mut answer = json_response(failure_status(failure), failure_to_fault(failure).to_json());
    let headers = answer.headers_mut();
    headers.insert(ERROR_HEADER, HeaderValue::from_static(failure.code()));
    match failure {
        Failure::Busy | Failure::TooManyRequests | Failure::TooManyListeners { .. } => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        Failure::UnsupportedEncoding(_) => {
            headers.insert(
                ACCEPT_ENCODING,
                HeaderValue::from_static(content_coding::READABLE_CODINGS),
            );
        }
        Failure::WrongMethod { allow } => {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        Failure::KeyMissing | Failure::KeyWrong => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        _ => {}
    }
    answer
}

fn failure_to_fault(failure: &Failure) -> ErrorBody {
    ErrorBody {
        message: failure.message(),
        kind: Some(error_kind(failure_status(failure)).to_owned()),
        param: failure.param().map(str::to_owned),
        code: Some(failure.code().to_owned()),
    }
}

/// An error of ours as the last event of a stream whose head is out.
pub fn failure_event(failure: &Failure) -> Bytes {
    fault_event(&failure_to_fault(failure))
}

pub fn fault_event(fault: &ErrorBody) -> Bytes {
    [b"data: ", &fault.to_json()[..], b"\n\n"].concat().into()
}

pub fn events_response(events: impl Into<Bytes>) -> Response<Body> {
    event_stream_response(whole_body(events))
}

/// A stream of events.
pub fn event_stream_response(body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    let kind = HeaderValue::from_static("text/event-stream");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
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
        | Failure::QueryUnknown { .. }
        | Failure::ModelMissing { .. } => StatusCode::BAD_REQUEST,
        Failure::KeyMissing | Failure::KeyWrong => StatusCode::UNAUTHORIZED,
        Failure::Foreign { .. }
        | Failure::ForeignPage
        | Failure::PathNotAllowed
        | Failure::SessionReadOnly
        | Failure::AdminOnly => StatusCode::FORBIDDEN,
        Failure::ModelNotFound(_)
        | Failure::ProviderNotFound(_)
        | Failure::PathNotFound
        | Failure::SessionNotFound => StatusCode::NOT_FOUND,
        Failure::WrongMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
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

/// OpenAI's word for the kind of error.
fn error_kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "requests",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

/// A JSON answer.
pub fn json_response(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut answer = Response::new(whole_body(body));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Whether a client reads trailers.
pub fn accepts_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(http::header::TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}
