//! What is sent on: every path of a provider's API that is not guarded goes through untouched.
//!
//! Bodies stream both ways and are never held, so neither their size nor their encoding matters.

use http::{HeaderMap, HeaderName, Response, request::Parts};
use hyper::body::Incoming;

use super::{App, admit::Client, body};
use crate::{
    error::Failure,
    provider::{Outgoing, Provider, headers},
    telemetry::record::Record,
    wire::Body,
};

/// Names a provider for one request.
const CHOSEN: HeaderName = HeaderName::from_static("x-plimsoll-provider");

/// Everything else of a provider's API: untouched both ways.
pub async fn forward(
    app: &App,
    parts: &Parts,
    body: Incoming,
    client: &Client,
    (provider, path): (Option<&str>, &str),
    record: &mut Record,
) -> Result<Response<Body>, Failure> {
    let limit = app.config.server.max_body_bytes;
    let provider = match serving(app, parts, client, provider) {
        Ok(provider) => provider,
        Err(failure) => {
            return Err(body::turn_away(&parts.headers, body, limit, failure).await);
        }
    };
    record.provider(&provider.name);
    let outgoing = Outgoing {
        method: parts.method.clone(),
        path: with_query(path, parts),
        headers: outgoing_headers(app, parts, provider, false),
        body: body::pass_on(body, app.config.server.body_timeout),
        model: None,
    };
    let answer = provider.send(outgoing).await?;
    Ok(cleaned(answer))
}

/// Who gets a request of which only the path is known.
fn serving<'a>(
    app: &'a App,
    parts: &Parts,
    client: &Client,
    provider: Option<&str>,
) -> Result<&'a Provider, Failure> {
    // The models in these bodies are not looked at, so a key for some models opens none.
    if !client.unlimited() {
        return Err(Failure::PathNotAllowed);
    }
    Ok(match provider.or_else(|| chosen(&parts.headers)) {
        Some(name) => app.registry.named(name)?,
        None => app.registry.fallback()?,
    })
}

/// The provider that a request names beside its model.
pub fn chosen(headers: &HeaderMap) -> Option<&str> {
    headers.get(CHOSEN)?.to_str().ok()
}

/// A path at a provider, with the query of the request.
pub fn with_query(path: &str, parts: &Parts) -> String {
    match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// The headers that go on to a provider.
pub fn outgoing_headers(
    app: &App,
    parts: &Parts,
    provider: &Provider,
    identity: bool,
) -> HeaderMap {
    headers::to_provider(
        &parts.headers,
        &provider.config.auth,
        app.clients.have_keys(),
        identity,
    )
}

/// The answer with the headers that go on to the client.
pub fn cleaned(mut answer: Response<Body>) -> Response<Body> {
    *answer.headers_mut() = headers::to_client(answer.headers());
    answer
}
