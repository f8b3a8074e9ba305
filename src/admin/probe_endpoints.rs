//! Endpoints for probes and monitoring: `/healthz`, `/readyz` and `/metrics`.

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

/// Liveness.
pub fn answer_health() -> Response<Body> {
    json_response(StatusCode::OK, r#"{"status":"ok"}"#)
}

/// Readiness: `ready`, or 503 and `draining`. The breakers of providers are shown but do not count,
/// since other replicas would pass over the same providers.
pub fn answer_readiness(app: &App) -> Response<Body> {
    let (status, word) = if app.stopping.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ready")
    };
    let providers: Map<String, Value> = list_breakers(app)
        .map(|(name, state)| (name.to_owned(), json!({"breaker": state.state_name()})))
        .collect();
    let body = json!({"status": word, "providers": providers});
    json_response(status, body.to_string())
}

/// Metrics for Prometheus.
///
/// SECURITY: they cover all clients. If clients have keys, the request needs one with `clients.NAME.metrics`, or the
/// administrator's.
pub fn answer_metrics(app: &App, parts: &Parts) -> Result<Response<Body>, Failure> {
    if !Requester::from_parts(app, parts)?.can_read_metrics() {
        return Err(Failure::MetricsNotAllowed);
    }
    let numbered = list_breakers(app).map(|(name, state)| {
        let number = match state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        (name, number)
    });
    let inflight_bytes = app.inflight_bytes.amount_taken();
    let text = app.metrics.render_text(numbered, inflight_bytes);
    let mut answer = Response::new(whole_body(text));
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(answer)
}

fn list_breakers(app: &App) -> impl Iterator<Item = (&str, BreakerState)> {
    let now = Instant::now();
    let providers = app.registry.providers();
    providers.map(move |provider| (&*provider.name, provider.breaker.state_at(now)))
}
