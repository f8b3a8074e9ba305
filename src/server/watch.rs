//! What is there for whoever watches the process: `/readyz` and `/metrics`.

use std::time::Instant;

use http::{Response, request::Parts};
use hyper::body::Incoming;

use super::{App, answer, api::is_admin, body};
use crate::{error::Failure, provider::breaker::State, telemetry::metrics::Now, wire::Body};

/// Whether more requests may come, and what the breakers are at.
pub fn ready(app: &App) -> Response<Body> {
    answer::ready(app.draining(), breakers(app))
}

/// What is counted.
///
/// SECURITY: it tells of all clients together. So where clients have keys, it needs one that opens
/// every model, or the administrator's.
///
/// # Errors
/// The request has no such key.
pub async fn metrics(app: &App, parts: &Parts, body: Incoming) -> Result<Response<Body>, Failure> {
    let allowed = if is_admin(app, &parts.headers) {
        Ok(())
    } else {
        match app.clients.recognise(&parts.headers) {
            Ok(client) if client.unlimited() => Ok(()),
            Ok(_) => Err(Failure::PathNotAllowed),
            Err(failure) => Err(failure),
        }
    };
    if let Err(failure) = allowed {
        let limit = app.config.server.max_body_bytes;
        return Err(body::turn_away(&parts.headers, body, limit, failure).await);
    }
    let numbered = breakers(app).map(|(name, state)| {
        let number = match state {
            State::Closed => 0,
            State::HalfOpen => 1,
            State::Open => 2,
        };
        (name, number)
    });
    let now = Now {
        bytes_in_flight: app.flight.taken(),
    };
    Ok(answer::metrics(app.metrics.text(numbered, now)))
}

fn breakers(app: &App) -> impl Iterator<Item = (&str, State)> {
    let now = Instant::now();
    let providers = app.registry.providers();
    providers.map(move |provider| (&*provider.name, provider.breaker.state(now)))
}
