//! What is there for whoever watches the process: `/readyz` and `/metrics`.

use std::time::Instant;

use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use serde_json::{Map, Value, json};

use super::api::Who;
use crate::{
    error::Failure,
    http::answer::json,
    provider::breaker::State,
    proxy::App,
    wire::{Body, whole},
};

/// Alive.
pub fn healthy() -> Response<Body> {
    json(StatusCode::OK, r#"{"status":"ok"}"#)
}

/// Ready for more, or on the way out; and which of the providers are passed over now. That is no
/// reason to send requests elsewhere, where the same provider would be passed over.
pub fn ready(app: &App) -> Response<Body> {
    let (status, word) = match app.draining() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        false => (StatusCode::OK, "ready"),
    };
    let shown = |(name, state): (&str, State)| (name.to_owned(), json!({"breaker": state.word()}));
    let providers: Map<String, Value> = breakers(app).map(shown).collect();
    let body = json!({"status": word, "providers": providers});
    json(status, body.to_string())
}

/// What is counted, for Prometheus.
///
/// SECURITY: it tells of all clients together. So where clients have keys, it needs one that opens
/// every model, or the administrator's.
///
/// # Errors
/// The request has no such key.
pub fn metrics(app: &App, parts: &Parts) -> Result<Response<Body>, Failure> {
    if !Who::of(app, &parts.headers)?.watches() {
        return Err(Failure::PathNotAllowed);
    }
    let numbered = breakers(app).map(|(name, state)| {
        let number = match state {
            State::Closed => 0,
            State::HalfOpen => 1,
            State::Open => 2,
        };
        (name, number)
    });
    let text = app.metrics.text(numbered, app.flight.taken());
    let mut answer = Response::new(whole(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(answer)
}

fn breakers(app: &App) -> impl Iterator<Item = (&str, State)> {
    let now = Instant::now();
    let providers = app.registry.providers();
    providers.map(move |provider| (&*provider.name, provider.breaker.state(now)))
}
