//! The one HTTP client of a provider: pool, timeouts, TLS.
//!
//! Follows no redirects, uses no proxy of the environment, decompresses nothing, and sets no limit
//! on a whole answer. A request that dies on a pooled connection before its answer began is sent
//! once more on a fresh one, and that is the only second try there is here.
//! CANCEL: dropping the future or the answer's body closes the connection (or resets the stream).

use std::{error::Error, io, time::Duration};

use http::{Response, header::UPGRADE};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use reqwest::{Url, redirect, retry};
use tower::{layer::layer_fn, util::MapResponse};

use super::{
    OutgoingRequest, Payload, UpstreamError,
    connection_reuse::AnsweredConnections,
    query_parameters,
    timeouts::{IdleTimeoutBody, ProgressBody, UploadProgress},
    upstream::build_address,
};
use crate::{
    config::{ProviderConfig, secret::Secret},
    error::{IdleTimeoutError, TimeoutStage, format_error_chain},
    wire::Body,
};

/// Connections kept open without a request, and for how long.
const MAX_IDLE: usize = 64;
const IDLE_FOR: Duration = Duration::from_secs(90);

/// How often a silent HTTP/2 connection is asked whether anybody is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct UpstreamClient {
    base_url: String,
    config: ProviderConfig,
    pooled: reqwest::Client,
    /// Never reuses a connection. In HTTP/1.1, which alone can be left, as websockets do.
    fresh: reqwest::Client,
    answered: AnsweredConnections,
}

/// One attempt that brought no answer.
struct FailedAttempt {
    /// `None`: the first byte did not come in time.
    error: Option<reqwest::Error>,
    /// The connection had brought an answer before.
    reused: bool,
}

impl UpstreamClient {
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub(super) fn new(base_url: &str, config: &ProviderConfig) -> io::Result<Self> {
        // Installed by whoever comes first; a second one is refused, which is as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let answered = AnsweredConnections::new();
        let build = |builder: reqwest::ClientBuilder| {
            let answered = answered.clone();
            let note_opened =
                layer_fn(move |connector| MapResponse::new(connector, answered.note_opened()));
            builder
                .connect_timeout(config.connect_timeout)
                .tcp_nodelay(true)
                .redirect(redirect::Policy::none())
                .retry(retry::never())
                .referer(false)
                .no_proxy()
                .connector_layer(note_opened)
                .build()
                .map_err(|error| io::Error::other(error.without_url()))
        };
        let pooled = reqwest::Client::builder()
            .pool_max_idle_per_host(MAX_IDLE)
            .pool_idle_timeout(IDLE_FOR)
            .http2_keep_alive_interval(PING_EVERY);
        let fresh = reqwest::Client::builder()
            .http1_only()
            .pool_max_idle_per_host(0);
        Ok(Self {
            base_url: base_url.to_owned(),
            config: config.clone(),
            pooled: build(pooled)?,
            fresh: build(fresh)?,
            answered,
        })
    }

    /// Sends a request and waits for the head of its answer. Only one that asks to leave HTTP, by `Upgrade`
    /// among its headers, may be answered by leaving it.
    pub(super) async fn send_request(
        &self,
        provider: &str,
        outgoing: OutgoingRequest,
    ) -> Result<Response<Body>, UpstreamError> {
        let url = self.find_url(provider, &outgoing)?;
        let leaves_http = outgoing.headers.contains_key(UPGRADE);
        let client = match leaves_http {
            true => &self.fresh,
            false => &self.pooled,
        };
        let mut head = reqwest::Request::new(outgoing.method, url);
        *head.headers_mut() = outgoing.headers;
        let again = match &outgoing.body {
            Payload::Empty => head.try_clone().zip(Some(Payload::Empty)),
            Payload::Whole(rope) => head.try_clone().zip(Some(Payload::Whole(rope.clone()))),
            Payload::Stream(_) => None,
        };
        let mut sent = self.attempt_request(client, head, outgoing.body).await;
        if let Err(lost) = &sent
            && lost.is_stale_connection()
            && let Some((head, body)) = again
        {
            tracing::debug!(provider, "a pooled connection was closed; sending again");
            sent = self.attempt_request(&self.fresh, head, body).await;
        }
        let answer = sent.map_err(|lost| self.explain_failure(provider, lost))?;
        if answer.status().is_informational() && !leaves_http {
            // No answer follows.
            tracing::warn!(provider, status = %answer.status(), "a provider left HTTP unasked");
            return Err(UpstreamError::Garbage {
                provider: provider.to_owned(),
            });
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

    /// What stands behind the query of every request.
    fn configured_query(&self) -> Option<&str> {
        self.config.query.as_ref().map(Secret::reveal)
    }

    /// # Errors
    /// The base URL needs a model, and the request has none that fits; or it makes no URL.
    fn find_url(&self, provider: &str, outgoing: &OutgoingRequest) -> Result<Url, UpstreamError> {
        let path = query_parameters::append_query(&outgoing.path, self.configured_query());
        let address = build_address(&self.base_url, &path, outgoing.model.as_deref());
        let address = address.ok_or_else(|| UpstreamError::NoModel {
            provider: provider.to_owned(),
        })?;
        Url::parse(&address).map_err(|_| UpstreamError::Unreachable {
            provider: provider.to_owned(),
        })
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
        let failure = error
            .as_ref()
            .and_then(|error| find_cause::<legacy::Error>(error));
        Err(FailedAttempt {
            reused: failure.is_some_and(|failure| self.answered.is_reused_connection(failure)),
            error,
        })
    }

    fn explain_failure(&self, provider: &str, lost: FailedAttempt) -> UpstreamError {
        let provider = provider.to_owned();
        let Some(error) = lost.error else {
            tracing::warn!(provider, "a provider did not answer in time");
            return UpstreamError::Timeout {
                provider,
                wait: TimeoutStage::FirstByte,
                limit: self.config.first_byte_timeout,
            };
        };
        if let Some(client) = find_cause::<UpstreamError>(&error) {
            return client.clone();
        }
        tracing::warn!(provider, error = %format_error_chain(&error), "a provider gave no answer");
        if find_cause::<hyper::Error>(&error).is_some_and(hyper::Error::is_parse) {
            UpstreamError::Garbage { provider }
        } else if error.is_connect() && error.is_timeout() {
            UpstreamError::Timeout {
                provider,
                wait: TimeoutStage::Connect,
                limit: self.config.connect_timeout,
            }
        } else {
            UpstreamError::Unreachable { provider }
        }
    }
}

impl FailedAttempt {
    /// A pooled connection was closed under the request, and nobody answered it. The library does not
    /// tell a head that broke off in its middle from none.
    fn is_stale_connection(&self) -> bool {
        let Some(error) = &self.error else {
            return false;
        };
        let closed = find_cause::<hyper::Error>(error).is_some_and(|error| {
            error.is_incomplete_message() || error.is_closed() || error.is_canceled()
        }) || find_cause::<io::Error>(error).is_some_and(|error| {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
            matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
            )
        });
        self.reused && closed
    }
}

/// The body with its exact length where that is known: many servers refuse chunked requests.
fn make_body(body: Payload, progress: &UploadProgress) -> Option<reqwest::Body> {
    let progress = progress.clone();
    Some(match body {
        Payload::Empty => return None,
        Payload::Whole(body) => reqwest::Body::wrap(ProgressBody { body, progress }),
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
