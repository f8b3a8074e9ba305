//! Every response that we make ourselves; the only place that picks a status code.
//!
//! Errors have OpenAI's shape, and name themselves in `x-plimsoll-error`, so that a client can
//! tell them from the provider's.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, ETAG, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde_json::{Map, Value, json};

use super::{ask_usage, route::Misrouted};
use crate::{
    config::GuardConfig,
    dashboard::{self, Page},
    error::Failure,
    health::limits::limits,
    provider::{
        Offered, Registry, Target, Window,
        breaker::State,
        overflow::{self, Overflow},
    },
    wire::{Body, coding, fault::Fault, usage::Usage, whole},
};

/// The code of an error of ours.
pub const ERROR: HeaderName = HeaderName::from_static("x-plimsoll-error");

/// An error of ours.
pub fn failure(failure: &Failure) -> Response<Body> {
    let mut answer = json(status(failure), fault(failure).to_json());
    let headers = answer.headers_mut();
    headers.insert(ERROR, HeaderValue::from_static(failure.code()));
    match failure {
        Failure::Busy | Failure::TooManyRequests | Failure::TooManyListeners { .. } => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        Failure::Encoded(_) => {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(coding::READ));
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

fn fault(failure: &Failure) -> Fault {
    Fault {
        message: failure.message(),
        kind: Some(kind(status(failure)).to_owned()),
        param: failure.param().map(str::to_owned),
        code: Some(failure.code().to_owned()),
    }
}

/// An overflow that could not be healed, in the words on which every client's own recovery keys.
pub fn too_long(overflow: &Overflow, window: Window) -> Response<Body> {
    let fault = overflow::classic(overflow.window.or(window.known()), overflow.prompt_tokens);
    let code = fault.code.clone().unwrap_or_default();
    let mut answer = json(StatusCode::BAD_REQUEST, fault.to_json());
    if let Ok(code) = HeaderValue::try_from(code) {
        answer.headers_mut().insert(ERROR, code);
    }
    answer
}

/// The end of an answer of which nothing is left for the client: the model called only tools of
/// ours, round after round. Without an end the client would have an error, or wait for ever.
pub fn nothing_more(streams: bool, model: &str, usage: Option<Usage>) -> Response<Body> {
    let envelope = |object: &str| json!({"id": "chatcmpl-plimsoll", "object": object, "created": 0, "model": model});
    let usage = usage.map(|usage| {
        let tokens = usage.prompt_tokens;
        json!({"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens})
    });
    if !streams {
        let mut body = envelope("chat.completion");
        let message = json!({"role": "assistant", "content": ""});
        body["choices"] = json!([{"index": 0, "message": message, "finish_reason": "stop"}]);
        if let Some(usage) = usage {
            body["usage"] = usage;
        }
        return json(StatusCode::OK, body.to_string().into_bytes());
    }
    let mut last = envelope("chat.completion.chunk");
    last["choices"] = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
    // Not in a chunk without choices: on that a client may fail that never asked for one.
    if let Some(usage) = usage {
        last["usage"] = usage;
    }
    stream(format!("data: {last}\n\ndata: [DONE]\n\n"))
}

/// An error of ours as the last event of a stream whose head is out.
pub fn failure_event(failure: &Failure) -> Bytes {
    event(&fault(failure))
}

/// What came in the place of a stream whose head is out, as its last event: a refusal in its own
/// words, where it has any.
pub async fn refusal_event(refusal: Response<Body>, provider: &str) -> Bytes {
    let refused = !refusal.status().is_success();
    match ask_usage::read_fault(refusal, provider).await {
        Some(fault) if refused => event(&fault),
        _ => failure_event(&Failure::ProviderBadAnswer {
            provider: provider.to_owned(),
            what: "it is no stream",
        }),
    }
}

fn event(fault: &Fault) -> Bytes {
    [b"data: ", &fault.to_json()[..], b"\n\n"].concat().into()
}

/// A refusal as the last event of a stream, since the client has the head of another answer by
/// now. `None` where it says nothing that a client can read.
pub async fn as_event(refusal: Response<Body>, provider: &str) -> Option<Response<Body>> {
    if refusal.status().is_success() {
        return None;
    }
    let status = refusal.status().as_u16();
    let fault = ask_usage::read_fault(refusal, provider).await?;
    tracing::warn!(
        status,
        "a provider refused a round; its words end the stream"
    );
    let json = String::from_utf8(fault.to_json()).ok()?;
    Some(stream(format!("data: {json}\n\n")))
}

fn stream(events: String) -> Response<Body> {
    event_stream(whole(events))
}

/// A stream of events.
pub fn event_stream(body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    let kind = HeaderValue::from_static("text/event-stream");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

const fn status(failure: &Failure) -> StatusCode {
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
        Failure::Encoded(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
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
fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "requests",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

impl From<Misrouted> for Failure {
    fn from(misrouted: Misrouted) -> Self {
        match misrouted {
            Misrouted::NoPath => Self::PathNotFound,
            Misrouted::WrongMethod { allow } => Self::WrongMethod { allow },
            Misrouted::DotSegments => Self::DotSegments,
        }
    }
}

/// A JSON answer.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut answer = Response::new(whole(body));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Alive.
pub fn healthy() -> Response<Body> {
    json(StatusCode::OK, r#"{"status":"ok"}"#)
}

/// Ready for more, or on the way out; and which of the providers are passed over now. That is no
/// reason to send requests elsewhere, where the same provider would be passed over.
pub fn ready<'a>(
    draining: bool,
    providers: impl Iterator<Item = (&'a str, State)>,
) -> Response<Body> {
    let (status, word) = if draining {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ready")
    };
    let shown = |(name, state): (&str, State)| (name.to_owned(), json!({"breaker": state.word()}));
    let providers: Map<String, Value> = providers.map(shown).collect();
    let body = json!({"status": word, "providers": providers});
    json(status, body.to_string())
}

/// What is counted, for Prometheus.
pub fn metrics(text: String) -> Response<Body> {
    let mut answer = Response::new(whole(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// A file of the dashboard, or where it is.
pub fn page(page: Page) -> Response<Body> {
    let (status, bytes) = match page {
        Page::File(file) => (StatusCode::OK, file.bytes),
        Page::Same(_) => (StatusCode::NOT_MODIFIED, &b""[..]),
        Page::Moved => (StatusCode::PERMANENT_REDIRECT, &b""[..]),
    };
    let mut answer = Response::new(whole(bytes));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.extend(dashboard::HEADERS);
    match page {
        Page::File(file) => {
            headers.insert(CONTENT_TYPE, file.kind.clone());
            headers.insert(ETAG, file.tag.clone());
        }
        Page::Same(file) => {
            headers.insert(ETAG, file.tag.clone());
        }
        Page::Moved => {
            headers.insert(LOCATION, dashboard::PLACE);
        }
    }
    answer
}

/// OpenAI's list of models: those that `allowed` lets through, with what is known of their windows.
pub fn models(
    registry: &Registry,
    guard: &GuardConfig,
    allowed: impl Fn(&Offered) -> bool,
) -> Response<Body> {
    let offered = registry.offered_by_all_names();
    let offered = offered.iter().filter(|one| allowed(one));
    let data: Vec<Value> = offered.map(|one| listed(one, guard)).collect();
    let list = json!({"object": "list", "data": data});
    json(StatusCode::OK, list.to_string())
}

/// One model of that list.
pub fn model(offered: &Offered, guard: &GuardConfig) -> Response<Body> {
    json(StatusCode::OK, listed(offered, guard).to_string())
}

/// What is assumed stands for nothing that a client could rely on, and is left unknown.
fn listed(offered: &Offered, guard: &GuardConfig) -> Value {
    let Target {
        provider,
        window,
        settings,
        ..
    } = &offered.target;
    let inside = provider.config.profile.answer_inside_window;
    let limits = limits(window.known(), window.input, inside, guard, settings, None);
    json!({
        "id": offered.id,
        "object": "model",
        "created": 0,
        "owned_by": &*provider.name,
        "context_length": window.known(),
        "window_from": window.source.key(),
        "max_input_tokens": window.input,
        "optimal_max_tokens": limits.optimal_max_tokens,
        "critical_max_tokens": limits.critical_max_tokens,
    })
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
