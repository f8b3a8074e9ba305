//! What is there for whoever watches the process: `/readyz` and `/metrics`.

use std::time::Instant;

use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use serde_json::{Map, Value, json};

use super::api::Requester;
use crate::{
    error::Failure,
    http::answer::json_response,
    provider::breaker::BreakerState,
    proxy::App,
    wire::{Body, whole_body},
};

/// Alive.
pub fn answer_health() -> Response<Body> {
    json_response(StatusCode::OK, r#"{"status":"ok"}"#)
}

/// Ready for more, or on the way out; and which of the providers are passed over now. That is no
/// reason to send requests elsewhere, where the same provider would be passed over.
pub fn answer_readiness(app: &App) -> Response<Body> {
    let (status, word) = match app.is_draining() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        false => (StatusCode::OK, "ready"),
    };
    let shown = |(name, state): (&str, BreakerState)| {
        (name.to_owned(), json!({"breaker": state.state_name()}))
    };
    let providers: Map<String, Value> = list_breakers(app).map(shown).collect();
    let body = json!({"status": word, "providers": providers});
    json_response(status, body.to_string())
}

/// What is counted, for Prometheus.
///
/// SECURITY: it tells of all clients together. So where clients have keys, it needs one that opens
/// every model, or the administrator's.
///
/// # Errors
/// The request has no such key.
pub fn answer_metrics(app: &App, parts: &Parts) -> Result<Response<Body>, Failure> {
    if !Requester::from_headers(app, &parts.headers)?.can_read_metrics() {
        return Err(Failure::PathNotAllowed);
    }
    let numbered = list_breakers(app).map(|(name, state)| {
        let number = match state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        (name, number)
    });
    let text = app
        .metrics
        .render_text(numbered, app.inflight_bytes.amount_taken());
    let mut answer = Response::new(whole_body(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(answer)
}

fn list_breakers(app: &App) -> impl Iterator<Item = (&str, BreakerState)> {
    let now = Instant::now();
    let providers = app.registry.providers();
    providers.map(move |provider| (&*provider.name, provider.breaker.state_at(now)))
}
