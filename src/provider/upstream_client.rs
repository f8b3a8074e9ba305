//! The one HTTP client of a provider: pool, timeouts, TLS.
//!
//! It follows no redirects, goes through the proxy that its settings choose, decompresses nothing, and sets no limit
//! on a whole answer. A request that fails on a stale pooled connection before its answer began is sent
//! once more on a fresh one; there is no other retry here.
//! CANCEL: dropping the future or the answer's body closes the connection (or resets the stream).

mod connection_reuse;
mod query_parameters;
mod timeouts;

use std::{error::Error, io, time::Duration};

use http::{Response, header::UPGRADE};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use tower::{layer::layer_fn, util::MapResponse};

pub use self::timeouts::IdleTimeoutBody;
use self::{
    connection_reuse::AnsweredConnections,
    timeouts::{ProgressBody, UploadProgress},
};
use super::{OutgoingRequest, Payload, UpstreamError, begin_client_for};
use crate::{
    config::{Outgoing, ProviderConfig, secret::Secret},
    error::{IdleTimeoutError, TimeoutStage, format_error_chain},
    wire::Body,
};

/// Connections kept open without a request, and for how long.
const MAX_IDLE: usize = 64;
const IDLE_FOR: Duration = Duration::from_secs(90);

/// The interval of keep-alive pings on a silent HTTP/2 connection.
const PING_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct UpstreamClient {
    base_url: String,
    config: ProviderConfig,
    pooled: reqwest::Client,
    /// Never reuses a connection. Only speaks HTTP/1.1, which websockets can upgrade.
    fresh: reqwest::Client,
    answered: AnsweredConnections,
    is_proxied: bool,
}

/// Stands for the model's name in a base URL.
pub(super) const MODEL_PLACEHOLDER: &str = "{model}";

/// The characters that are percent-encoded where a model's name becomes a segment of a path.
const SEGMENT_ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// An attempt without an answer.
struct FailedAttempt {
    /// `None`: the first byte did not come in time.
    error: Option<reqwest::Error>,
    /// The connection had delivered an answer before.
    reused: bool,
}

impl UpstreamClient {
    /// # Errors
    /// The TLS roots of this machine are needed and cannot be read.
    pub(super) fn new(
        base_url: &str,
        config: &ProviderConfig,
        outgoing: &Outgoing,
    ) -> io::Result<Self> {
        let route = config.find_route(outgoing);
        let is_proxied = route.as_ref().is_some_and(|route| route.proxy.is_some());
        let begin = || begin_client_for(outgoing, route.as_ref());
        let answered = AnsweredConnections::new();
        let build = |builder: reqwest::ClientBuilder| {
            // To read the roots takes milliseconds. Without a redirect, no request goes elsewhere.
            let builder = match base_url.starts_with("http://") && !is_proxied {
                true => builder.tls_certs_only([]),
                false => builder,
            };
            let answered = answered.clone();
            let note_opened =
                layer_fn(move |connector| MapResponse::new(connector, answered.note_opened()));
            builder
                .connect_timeout(config.connect_timeout)
                .connector_layer(note_opened)
                .build()
                .map_err(|error| io::Error::other(error.without_url()))
        };
        let pooled = begin()
            .pool_max_idle_per_host(MAX_IDLE)
            .pool_idle_timeout(IDLE_FOR)
            .http2_keep_alive_interval(PING_EVERY);
        let fresh = begin().http1_only().pool_max_idle_per_host(0);
        Ok(Self {
            base_url: base_url.to_owned(),
            config: config.clone(),
            pooled: build(pooled)?,
            fresh: build(fresh)?,
            answered,
            is_proxied,
        })
    }

    /// Sends a request and waits for the head of its answer. The provider may switch protocols only
    /// where the request has an `Upgrade` header.
    pub(super) async fn send_request(
        &self,
        provider: &str,
        outgoing: OutgoingRequest,
    ) -> Result<Response<Body>, UpstreamError> {
        let url = self.find_url(provider, &outgoing)?;
        let upgrades = outgoing.headers.contains_key(UPGRADE);
        // A pooled connection may be closed as the request leaves, and this one is not sent again.
        let is_once = matches!(outgoing.body, Payload::Once(_));
        let client = match upgrades || is_once {
            true => &self.fresh,
            false => &self.pooled,
        };
        let mut head = reqwest::Request::new(outgoing.method, url);
        *head.headers_mut() = outgoing.headers;
        let again = match &outgoing.body {
            Payload::Empty => head.try_clone().zip(Some(Payload::Empty)),
            Payload::Whole(rope) => head.try_clone().zip(Some(Payload::Whole(rope.clone()))),
            Payload::Once(_) | Payload::Stream(_) => None,
        };
        let mut sent = self.attempt_request(client, head, outgoing.body).await;
        if let Err(failed) = &sent
            && failed.is_stale_connection()
            && let Some((head, body)) = again
        {
            tracing::debug!(
                provider,
                "pooled connection was closed; retry on a fresh one"
            );
            sent = self.attempt_request(&self.fresh, head, body).await;
        }
        let answer = sent.map_err(|failed| self.explain_failure(provider, failed))?;
        if answer.status().is_informational() && !upgrades {
            // No answer follows.
            tracing::warn!(provider, status = %answer.status(), "unrequested protocol switch");
            let provider = provider.to_owned();
            return Err(UpstreamError::Garbage { provider });
        }
        let mut answer = Response::from(answer);
        query_parameters::strip_injected_query(&mut answer, self.configured_query());
        Ok(answer.map(|body: reqwest::Body| {
            // The URL can hold a key.
            let broken = |error: reqwest::Error| io::Error::other(error.without_url());
            let stalled =
                |limit| io::Error::new(io::ErrorKind::TimedOut, IdleTimeoutError { limit });
            IdleTimeoutBody::new(body, self.config.idle_timeout, broken, stalled).boxed_unsync()
        }))
    }

    /// Added to the query of every request.
    fn configured_query(&self) -> Option<&str> {
        self.config.query.as_ref().map(Secret::reveal)
    }

    /// # Errors
    /// The base URL needs a model, and the request has none that fits; or it makes no URL.
    fn find_url(&self, provider: &str, outgoing: &OutgoingRequest) -> Result<Url, UpstreamError> {
        let path = query_parameters::append_query(&outgoing.path, self.configured_query());
        let provider = provider.to_owned();
        match build_address(&self.base_url, &path, outgoing.model.as_deref()) {
            None => Err(UpstreamError::NoModel { provider }),
            Some(address) => Url::parse(&address).map_err(|_| UpstreamError::Unreachable {
                provider,
                cause: String::new(),
                connected: false,
            }),
        }
    }

    async fn attempt_request(
        &self,
        client: &reqwest::Client,
        mut request: reqwest::Request,
        body: Payload,
    ) -> Result<reqwest::Response, FailedAttempt> {
        let progress = UploadProgress::new();
        *request.body_mut() = make_body(body, &progress);
        let error = tokio::select! {
            answer = self.answered.run_request(client.execute(request)) => match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => Some(error.without_url()),
            },
            () = progress.wait_for_stall(self.config.first_byte_timeout) => None,
        };
        let cause = error
            .as_ref()
            .and_then(|error| find_cause::<legacy::Error>(error));
        let reused = cause.is_some_and(|cause| self.answered.is_reused_connection(cause));
        Err(FailedAttempt { error, reused })
    }

    fn explain_failure(&self, provider: &str, failed: FailedAttempt) -> UpstreamError {
        let provider = provider.to_owned();
        let Some(error) = failed.error else {
            tracing::warn!(provider, "provider timed out: no first byte");
            return UpstreamError::Timeout {
                provider,
                wait: TimeoutStage::FirstByte,
                limit: self.config.first_byte_timeout,
            };
        };
        if let Some(client) = find_cause::<UpstreamError>(&error) {
            return client.clone();
        }
        tracing::warn!(provider, error = %format_error_chain(&error), "provider gave no answer");
        if find_cause::<hyper::Error>(&error).is_some_and(hyper::Error::is_parse) {
            UpstreamError::Garbage { provider }
        } else if error.is_connect() && error.is_timeout() {
            UpstreamError::Timeout {
                provider,
                wait: TimeoutStage::Connect,
                limit: self.config.connect_timeout,
            }
        } else {
            UpstreamError::Unreachable {
                provider,
                cause: self.describe_cause(&error),
                connected: !error.is_connect(),
            }
        }
    }

    /// `: `, the address of the server without a path, whether a proxy is before it, and the innermost cause.
    fn describe_cause(&self, error: &reqwest::Error) -> String {
        let mut cause: &dyn Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let address = Url::parse(&self.base_url).map(|url| url.origin().ascii_serialization());
        let by = if self.is_proxied {
            " through a proxy"
        } else {
            ""
        };
        let remedy = match format!("{cause:?}").contains("UnknownIssuer") {
            true => "; if it is signed by a CA of your own, name that in server.ca_file",
            false => "",
        };
        format!(": {}{by}: {cause}{remedy}", address.unwrap_or_default())
    }
}

impl FailedAttempt {
    /// A pooled connection was closed before an answer came. The library does not tell a head that
    /// broke off in its middle from none.
    fn is_stale_connection(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        const CLOSED: [io::ErrorKind; 4] = [
            BrokenPipe,
            ConnectionAborted,
            ConnectionReset,
            UnexpectedEof,
        ];
        let Some(error) = self.error.as_ref().filter(|_| self.reused) else {
            return false;
        };
        find_cause::<hyper::Error>(error).is_some_and(|error| {
            error.is_incomplete_message() || error.is_closed() || error.is_canceled()
        }) || find_cause::<io::Error>(error).is_some_and(|error| CLOSED.contains(&error.kind()))
    }
}

/// Keeps the exact length where it is known: many servers refuse chunked requests.
fn make_body(body: Payload, progress: &UploadProgress) -> Option<reqwest::Body> {
    let progress = progress.clone();
    Some(match body {
        Payload::Empty => return None,
        Payload::Whole(body) | Payload::Once(body) => {
            reqwest::Body::wrap(ProgressBody { body, progress })
        }
        Payload::Stream(body) => reqwest::Body::wrap(ProgressBody { body, progress }),
    })
}

/// The first cause of that type.
fn find_cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The address of a path (with its query) below a base URL; the model replaces `{model}`. `None`: the
/// base URL needs a model, and the request has none that fits.
///
/// SECURITY: a name cannot leave its segment of the path: separators are encoded. A name of dots alone
/// is refused, since servers read it as a dot segment in any encoding.
fn build_address(base_url: &str, path: &str, model: Option<&str>) -> Option<String> {
    if !base_url.contains(MODEL_PLACEHOLDER) {
        return Some(format!("{base_url}{path}"));
    }
    let model = model.filter(|model| !model.chars().all(|c| c == '.'))?;
    let model = utf8_percent_encode(model, SEGMENT_ENCODE_SET).to_string();
    Some(base_url.replace(MODEL_PLACEHOLDER, &model) + path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::Url;

    use super::build_address;

    const AZURE: &str = "https://mine.openai.azure.com/openai/deployments/{model}";

    #[test]
    fn the_model_is_put_into_the_address() {
        let check = |base_url: &str, model: Option<&str>, expected: Option<&str>| {
            let found = build_address(base_url, "/chat/completions?a=b", model);
            assert_eq!(found.as_deref(), expected, "{base_url} {model:?}");
        };
        let plain = "https://api.openai.com/v1";
        let full = Some("https://api.openai.com/v1/chat/completions?a=b");
        check(plain, Some("gpt-4o"), full);
        check(plain, None, full);
        let start = "https://mine.openai.azure.com/openai/deployments";
        let full = format!("{start}/gpt-4.1_x~y/chat/completions?a=b");
        check(AZURE, Some("gpt-4.1_x~y"), Some(&full));
        let full = format!("{start}/a%2Fb%3Fc%23d%25%20%C3%A9/chat/completions?a=b");
        check(AZURE, Some("a/b?c#d% é"), Some(&full));
        for none in [None, Some(""), Some("."), Some("..")] {
            check(AZURE, none, None);
        }
    }

    proptest! {
        #[test]
        fn a_model_never_leaves_its_segment(model in ".*") {
            if let Some(address) = build_address(AZURE, "/x", Some(&model)) {
                let url = Url::parse(&address).unwrap();
                let path: Vec<_> = url.path().split('/').collect();
                prop_assert_eq!(path.len(), 5, "{}", url);
                prop_assert_eq!(&path[..3], ["", "openai", "deployments"]);
                prop_assert_eq!(path[4], "x");
                prop_assert_eq!(url.host_str(), Some("mine.openai.azure.com"));
                prop_assert!(url.query().is_none() && url.fragment().is_none());
            }
        }
    }
}
