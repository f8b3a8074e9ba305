//! What goes on to a provider beside the body: path, query and headers, without what is not for it.

use http::{HeaderMap, HeaderName, Method, Response, request::Parts};

use super::{App, traced_send};
use crate::{
    config::Auth,
    conversation::edit::Rope,
    http::{admission, body},
    provider::{Outgoing, Payload, Provider, Target, Unsent, headers},
    telemetry::{Operation, trace::Trace},
    wire::Body,
};

/// Names a provider for one request.
const CHOSEN: HeaderName = HeaderName::from_static("x-plimsoll-provider");

/// Where keys stand in a query: at Azure, at its gateways, and at Google.
const KEYS: [&str; 4] = ["api-key", "api_key", "subscription-key", "key"];

/// A query with its `?`, without the client's key where that may not go on.
pub fn without_key(app: &App, provider: &Provider, query: &str) -> String {
    if matches!(provider.config.auth, Auth::Client) && !app.clients.have_keys() {
        return format!("?{query}");
    }
    let is_key = |pair: &&str| {
        let key = form_urlencoded::parse(pair.as_bytes()).next();
        key.is_some_and(|(key, _)| KEYS.iter().any(|name| key.eq_ignore_ascii_case(name)))
    };
    let kept: Vec<_> = query.split('&').filter(|pair| !is_key(pair)).collect();
    format!("?{}", kept.join("&"))
}

/// The provider that a request names beside its model.
pub fn chosen(headers: &HeaderMap) -> Option<&str> {
    headers.get(CHOSEN)?.to_str().ok()
}

/// Path and headers of a chat completion at one provider.
pub struct ChatHead {
    path: String,
    pub headers: HeaderMap,
}

impl ChatHead {
    /// For a request whose body goes on without its content encoding.
    pub fn new(app: &App, parts: &Parts, provider: &Provider) -> Self {
        let mut headers = outgoing_headers(app, parts, provider, true);
        body::without_encoding(&mut headers);
        let query = parts.uri.query();
        let query = query.map_or_else(String::new, |query| without_key(app, provider, query));
        Self {
            path: format!("/chat/completions{query}"),
            headers,
        }
    }

    /// Sends a chat completion, and waits for the head of its answer.
    ///
    /// # Errors
    /// No answer began.
    pub async fn send(
        &self,
        trace: &Trace,
        target: &Target,
        body: Rope,
    ) -> Result<Response<Body>, Unsent> {
        let outgoing = Outgoing {
            method: Method::POST,
            path: self.path.clone(),
            headers: self.headers.clone(),
            body: Payload::Whole(body),
            model: Some(target.model.clone()),
        };
        traced_send::send(trace, &target.provider, Some(Operation::Chat), outgoing).await
    }
}

/// The headers that go on to a provider.
pub fn outgoing_headers(
    app: &App,
    parts: &Parts,
    provider: &Provider,
    identity: bool,
) -> HeaderMap {
    let auth = &provider.config.auth;
    let have_keys = app.clients.have_keys();
    let mut out = headers::to_provider(&parts.headers, &provider.config, have_keys, identity);
    if have_keys || !matches!(auth, Auth::Client) {
        admission::without_keys(&mut out);
    }
    out
}

/// The answer with the headers that go on to the client.
pub fn cleaned(mut answer: Response<Body>) -> Response<Body> {
    *answer.headers_mut() = headers::to_client(answer.headers());
    answer
}
