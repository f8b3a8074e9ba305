//! The one HTTP client of a provider: pool, timeouts, TLS.
//!
//! It follows no redirects, goes through the proxy that its settings choose, decompresses nothing, and sets no limit
//! on a whole answer. A request that fails on a stale pooled connection before its answer began is sent
//! once more on a fresh one; there is no other retry here.
//! CANCEL: dropping the future or the answer's body closes the connection (or resets the stream).

mod answer_body;
mod connector;
mod pool;
mod query_parameters;
mod timeouts;

use std::{error::Error, io, sync::Arc};

use http::{HeaderMap, Method, Request, Response, Uri, header::UPGRADE};
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

pub use self::timeouts::IdleTimeoutBody;
use self::{
    answer_body::AnswerBody,
    connector::{ConnectError, ServerConnector},
    pool::{ConnectionPool, ConnectionUse, FailureCause, UnansweredRequest},
    timeouts::{UploadProgress, watch_body},
};
use super::{OutgoingRequest, Payload, UpstreamError};
use crate::{
    config::{Outgoing, ProviderConfig, secret::Secret},
    error::{IdleTimeoutError, TimeoutStage, format_error_chain},
    wire::Body,
};

#[derive(Debug)]
pub(super) struct UpstreamClient {
    base_url: String,
    config: ProviderConfig,
    pool: Arc<ConnectionPool>,
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

/// What is sent but for its body; it can be sent again.
#[derive(Clone)]
struct ResendableHead {
    method: Method,
    address: Uri,
    headers: HeaderMap,
}

/// Why a request got no answer.
enum AttemptError {
    /// The first byte did not come in time.
    Stalled,
    Failed(UnansweredRequest),
}

impl UpstreamClient {
    /// # Errors
    /// The TLS roots of this machine are needed and cannot be read, or the base URL is none.
    pub(super) fn new(
        base_url: &str,
        config: &ProviderConfig,
        outgoing: &Outgoing,
    ) -> io::Result<Self> {
        let route = config.find_route(outgoing);
        let is_proxied = route.as_ref().is_some_and(|route| route.proxy.is_some());
        let server = find_server(base_url)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the base URL is none"))?;
        let connector =
            ServerConnector::new(server, route.as_ref(), outgoing, config.connect_timeout)?;
        Ok(Self {
            base_url: base_url.to_owned(),
            config: config.clone(),
            pool: ConnectionPool::new(connector),
            is_proxied,
        })
    }

    /// Sends a request and waits for the head of its answer. The provider may switch protocols only
    /// where the request has an `Upgrade` header.
    pub(super) async fn send_with_resend(
        &self,
        provider: &str,
        outgoing: OutgoingRequest,
    ) -> Result<Response<Body>, UpstreamError> {
        // Lets requests that came together be planned first, so that their writes come in one burst and wake the peer once.
        tokio::task::yield_now().await;
        let head = ResendableHead {
            address: self.find_address(provider, &outgoing)?,
            method: outgoing.method,
            headers: outgoing.headers,
        };
        let upgrades = head.headers.contains_key(UPGRADE);
        let connection_use = match outgoing.body {
            _ if upgrades => ConnectionUse::Upgrading,
            // A pooled connection may be closed as the request leaves, and this one is not sent again.
            Payload::Once(_) => ConnectionUse::Fresh,
            _ => ConnectionUse::Pooled,
        };
        let again = match &outgoing.body {
            _ if connection_use != ConnectionUse::Pooled => None,
            Payload::Empty => Some((head.clone(), Payload::Empty)),
            Payload::Whole(rope) => Some((head.clone(), Payload::Whole(rope.clone()))),
            Payload::Once(_) | Payload::Stream(_) => None,
        };
        let mut sent = self
            .send_within_time(head, outgoing.body, connection_use)
            .await;
        if let Err(AttemptError::Failed(failed)) = &sent
            && failed.is_stale_connection()
            && let Some((head, body)) = again
        {
            tracing::debug!(
                provider,
                "pooled connection was closed; retry on a fresh one"
            );
            sent = self
                .send_within_time(head, body, ConnectionUse::Fresh)
                .await;
        }
        let mut answer = sent.map_err(|failed| self.explain_failure(provider, failed))?;
        if answer.status().is_informational() && !upgrades {
            // No answer follows.
            tracing::warn!(provider, status = %answer.status(), "unrequested protocol switch");
            let provider = provider.to_owned();
            return Err(UpstreamError::Garbage { provider });
        }
        query_parameters::strip_injected_query(&mut answer, self.configured_query());
        Ok(answer.map(|body| {
            let stalled =
                |limit| io::Error::new(io::ErrorKind::TimedOut, IdleTimeoutError { limit });
            IdleTimeoutBody::new(body, self.config.idle_timeout, io::Error::other, stalled)
                .boxed_unsync()
        }))
    }

    /// Added to the query of every request.
    fn configured_query(&self) -> Option<&str> {
        self.config.query.as_ref().map(Secret::reveal)
    }

    /// # Errors
    /// The base URL needs a model, and the request has none that fits; or it makes no address.
    fn find_address(
        &self,
        provider: &str,
        outgoing: &OutgoingRequest,
    ) -> Result<Uri, UpstreamError> {
        let path = query_parameters::append_query(&outgoing.path, self.configured_query());
        let provider = provider.to_owned();
        let Some(address) = build_address(&self.base_url, &path, outgoing.model.as_deref()) else {
            return Err(UpstreamError::NoModel { provider });
        };
        // SECURITY: resolves dot segments, so that the path is what the server makes of it.
        let address = Url::parse(&address).ok();
        let address = address.and_then(|address| Uri::try_from(address.as_str()).ok());
        address.ok_or(UpstreamError::Unreachable {
            provider,
            cause: String::new(),
            connected: false,
        })
    }

    /// Sends a request once, and waits for the head of its answer while its body goes on.
    async fn send_within_time(
        &self,
        head: ResendableHead,
        body: Payload,
        connection_use: ConnectionUse,
    ) -> Result<Response<AnswerBody>, AttemptError> {
        let progress = UploadProgress::new();
        let mut request = Request::new(watch_body(body, &progress));
        *request.method_mut() = head.method;
        *request.uri_mut() = head.address;
        *request.headers_mut() = head.headers;
        tokio::select! {
            answer = self.pool.send_pooled(request, connection_use, &progress) => answer.map_err(AttemptError::Failed),
            () = progress.wait_for_stall(self.config.first_byte_timeout) => Err(AttemptError::Stalled),
        }
    }

    fn explain_failure(&self, provider: &str, failed: AttemptError) -> UpstreamError {
        let provider = provider.to_owned();
        let timeout = |wait, limit| UpstreamError::Timeout {
            provider: provider.clone(),
            wait,
            limit,
        };
        let AttemptError::Failed(failed) = failed else {
            tracing::warn!(provider, "provider timed out: no first byte");
            return timeout(TimeoutStage::FirstByte, self.config.first_byte_timeout);
        };
        let (error, connected): (&(dyn Error + 'static), bool) = match &failed.cause {
            FailureCause::Connect(ConnectError::TooSlow) => {
                tracing::warn!(provider, "provider timed out: no connection");
                return timeout(TimeoutStage::Connect, self.config.connect_timeout);
            }
            FailureCause::Connect(ConnectError::Failed(error)) => (&**error, false),
            FailureCause::Http(error) => (error, true),
        };
        if let Some(client) = find_cause::<UpstreamError>(error) {
            return client.clone();
        }
        tracing::warn!(provider, error = %format_error_chain(error), "provider gave no answer");
        if find_cause::<hyper::Error>(error).is_some_and(hyper::Error::is_parse) {
            UpstreamError::Garbage { provider }
        } else {
            UpstreamError::Unreachable {
                provider,
                cause: self.describe_cause(error),
                connected,
            }
        }
    }

    /// `: `, the address of the server without a path, whether a proxy is before it, and the innermost cause.
    fn describe_cause(&self, error: &dyn Error) -> String {
        let mut cause = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let address = Url::parse(&self.base_url).map(|url| url.origin().ascii_serialization());
        let by = if self.is_proxied {
            " through a proxy"
        } else {
            ""
        };
        let remedy = if format!("{cause:?}").contains("UnknownIssuer") {
            "; if it is signed by a CA of your own, name that in server.ca_file"
        } else {
            ""
        };
        format!(": {}{by}: {cause}{remedy}", address.unwrap_or_default())
    }
}

impl UnansweredRequest {
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
        let FailureCause::Http(error) = &self.cause else {
            return false;
        };
        let is_closed = || {
            let error = find_cause::<io::Error>(error);
            error.is_some_and(|error| CLOSED.contains(&error.kind()))
        };
        self.reused
            && (error.is_incomplete_message()
                || error.is_closed()
                || error.is_canceled()
                || is_closed())
    }
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

/// Scheme, host and port of a base URL.
fn find_server(base_url: &str) -> Option<Uri> {
    let address = Url::parse(&base_url.replace(MODEL_PLACEHOLDER, "model")).ok()?;
    address.origin().ascii_serialization().parse().ok()
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
