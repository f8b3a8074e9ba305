//! The connections to one server, which are used again.
//!
//! The task of a request drives its own HTTP/1 connection, so that a part of an answer wakes one task and no other. A
//! connection without a request is looked at when it is taken, and once a second: one that the server closed goes.

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Waker},
    time::Duration,
};

use http::{
    HeaderValue, Request, Response, Uri, Version,
    header::{HOST, PROXY_AUTHORIZATION},
};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
    rt::Executor,
};
use hyper_util::{
    client::legacy::connect::Connection as _,
    rt::{TokioExecutor, TokioTimer},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    answer_body::AnswerBody,
    connector::{ConnectError, ServerConnector, ServerStream},
    timeouts::{UploadProgress, UpstreamBody},
};

/// Most connections that are kept open without a request.
const MAX_IDLE: usize = 64;
/// How long they are kept.
const IDLE_FOR: Duration = Duration::from_secs(90);
/// How often idle connections are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The interval of keep-alive pings on a silent HTTP/2 connection.
const PING_EVERY: Duration = Duration::from_secs(30);

/// What a request may do with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionUse {
    /// It takes one that is there, and leaves its own behind.
    Pooled,
    /// It has a new one of HTTP/1.1 for itself. A server that speaks HTTP/2 alone refuses it.
    Fresh,
    /// The same, which may switch protocols.
    Upgrading,
}

/// Why no answer began.
#[derive(Debug)]
pub(super) struct UnansweredRequest {
    pub(super) cause: FailureCause,
    /// The connection had delivered an answer before.
    pub(super) reused: bool,
}

/// A request that got no answer over HTTP/2.
struct FailedHttp2Send {
    error: UnansweredRequest,
    /// The request, if nothing of it was written.
    unsent: Option<Request<UpstreamBody>>,
}

#[derive(Debug)]
pub(super) enum FailureCause {
    Connect(ConnectError),
    Http(hyper::Error),
}

#[derive(Debug)]
pub(super) struct ConnectionPool {
    connector: ServerConnector,
    idle: Mutex<IdleConnections>,
    /// A connection of HTTP/2, which all requests share. Requests that come while the first one opens have one each, which ends
    /// with them unless it is the first.
    shared: Mutex<Option<Http2Connection>>,
}

#[derive(Debug, Default)]
struct IdleConnections {
    /// The newest is last.
    connections: Vec<(Instant, Box<Http1Connection>)>,
    is_watched: bool,
}

#[derive(Clone, Debug)]
struct Http2Connection {
    sender: http2::SendRequest<UpstreamBody>,
    has_answered: Arc<AtomicBool>,
}

/// A connection of HTTP/1, whose owner drives it.
#[derive(Debug)]
pub(super) struct Http1Connection {
    sender: http1::SendRequest<UpstreamBody>,
    /// `None` once it has ended.
    connection: Option<http1::Connection<ServerStream, UpstreamBody>>,
}

impl ConnectionPool {
    pub(super) fn new(connector: ServerConnector) -> Arc<Self> {
        Arc::new(Self {
            connector,
            idle: Mutex::default(),
            shared: Mutex::default(),
        })
    }

    /// Sends a request whose address is absolute, and waits for the head of its answer.
    pub(super) async fn send_pooled(
        self: &Arc<Self>,
        mut request: Request<UpstreamBody>,
        connection_use: ConnectionUse,
        progress: &UploadProgress,
    ) -> Result<Response<AnswerBody>, UnansweredRequest> {
        if connection_use == ConnectionUse::Pooled {
            let shared = self.shared.lock().clone();
            if let Some(shared) = shared.filter(|it| !it.sender.is_closed()) {
                match shared.send_http2(request).await {
                    // The server takes no more requests on this connection.
                    Err(FailedHttp2Send {
                        unsent: Some(unsent),
                        ..
                    }) => request = unsent,
                    exchanged => return exchanged.map_err(|failed| failed.error),
                }
            } else if let Some(own) = self.take_idle() {
                let answer = self.send_http1(own, request, connection_use, progress);
                return answer.await.map_err(|cause| UnansweredRequest {
                    cause,
                    reused: true,
                });
            }
        }
        // Boxed, so that the future of a request that finds a connection stays small.
        Box::pin(self.send_on_new(request, connection_use, progress)).await
    }

    /// The same on a new connection.
    async fn send_on_new(
        self: &Arc<Self>,
        request: Request<UpstreamBody>,
        connection_use: ConnectionUse,
        progress: &UploadProgress,
    ) -> Result<Response<AnswerBody>, UnansweredRequest> {
        let http1_only = connection_use != ConnectionUse::Pooled;
        let stream = self.connector.connect(http1_only).await;
        let stream = stream.map_err(|error| FailureCause::Connect(error).on_new_connection())?;
        if stream.connected().is_negotiated_h2() {
            let shared = self.open_shared(stream).await;
            let shared = shared.map_err(|error| FailureCause::Http(error).on_new_connection())?;
            let answer = shared.send_http2(request).await;
            return answer.map_err(|failed| failed.error);
        }
        let opened = http1::handshake(stream).await;
        let (mut sender, connection) =
            opened.map_err(|error| FailureCause::Http(error).on_new_connection())?;
        if connection_use == ConnectionUse::Upgrading {
            let connection = connection.with_upgrades();
            TokioExecutor::new().execute(async move {
                // What goes wrong is told to the request.
                let _ = connection.await;
            });
            let answer = sender.send_request(self.address_request(request)).await;
            let answer = answer.map_err(|error| FailureCause::Http(error).on_new_connection())?;
            return Ok(answer.map(AnswerBody::driven_elsewhere));
        }
        // Boxed, since it goes from hand to hand, and is large.
        let own = Box::new(Http1Connection {
            sender,
            connection: Some(connection),
        });
        let answer = self.send_http1(own, request, connection_use, progress);
        answer.await.map_err(FailureCause::on_new_connection)
    }

    async fn send_http1(
        self: &Arc<Self>,
        mut own: Box<Http1Connection>,
        request: Request<UpstreamBody>,
        connection_use: ConnectionUse,
        progress: &UploadProgress,
    ) -> Result<Response<AnswerBody>, FailureCause> {
        let answer = own.drive_to_head(self.address_request(request)).await;
        let answer = answer.map_err(FailureCause::Http)?;
        if !progress.has_ended() {
            // The rest of the request goes on although nobody may read the answer.
            own.drive_in_background();
            return Ok(answer.map(AnswerBody::driven_elsewhere));
        }
        let home = if connection_use == ConnectionUse::Pooled {
            Arc::downgrade(self)
        } else {
            Weak::new()
        };
        Ok(answer.map(|body| AnswerBody::new(body, own, home)))
    }

    /// Rewrites an absolute address for HTTP/1: to the path alone, or not at all for a proxy that forwards; adds `Host` and the
    /// proxy's credentials.
    fn address_request(&self, mut request: Request<UpstreamBody>) -> Request<UpstreamBody> {
        let server = self.connector.server();
        if let Some(host) = server.authority()
            && let Ok(host) = HeaderValue::try_from(host.as_str())
        {
            request.headers_mut().entry(HOST).or_insert(host);
        }
        match self.connector.forwarding() {
            Some(proxy) => {
                if let Some(credentials) = &proxy.credentials {
                    let headers = request.headers_mut();
                    headers.insert(PROXY_AUTHORIZATION, credentials.clone());
                }
            }
            None => {
                let path = request.uri().path_and_query().cloned();
                *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
            }
        }
        request
    }

    async fn open_shared(&self, stream: ServerStream) -> hyper::Result<Http2Connection> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .handshake(stream)
            .await?;
        TokioExecutor::new().execute(async move {
            // What goes wrong is told to the requests.
            let _ = connection.await;
        });
        let shared = Http2Connection {
            sender,
            has_answered: Arc::default(),
        };
        let mut known = self.shared.lock();
        if known.as_ref().is_none_or(|it| it.sender.is_closed()) {
            *known = Some(shared.clone());
        }
        Ok(shared)
    }

    /// The newest connection that is still open.
    fn take_idle(&self) -> Option<Box<Http1Connection>> {
        loop {
            let (since, mut own) = self.idle.lock().connections.pop()?;
            if since.elapsed() < IDLE_FOR && own.is_usable() {
                return Some(own);
            }
        }
    }

    /// Keeps a connection whose answer has ended.
    pub(super) fn keep(self: Arc<Self>, own: Box<Http1Connection>) {
        let mut idle = self.idle.lock();
        if idle.connections.len() >= MAX_IDLE {
            idle.connections.remove(0);
        }
        idle.connections.push((Instant::now(), own));
        if !std::mem::replace(&mut idle.is_watched, true) {
            TokioExecutor::new().execute(watch_idle(Arc::downgrade(&self)));
        }
    }

    /// Closes connections that were idle for too long, or that the server closed. Returns whether any are left.
    fn prune_idle(&self) -> bool {
        let mut idle = self.idle.lock();
        idle.connections
            .retain_mut(|(since, own)| since.elapsed() < IDLE_FOR && own.is_usable());
        idle.is_watched = !idle.connections.is_empty();
        idle.is_watched
    }
}

/// Ends with the last idle connection, or with the pool.
async fn watch_idle(pool: Weak<ConnectionPool>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if !pool.upgrade().is_some_and(|pool| pool.prune_idle()) {
            return;
        }
    }
}

impl Http2Connection {
    async fn send_http2(
        mut self,
        mut request: Request<UpstreamBody>,
    ) -> Result<Response<AnswerBody>, FailedHttp2Send> {
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().remove(HOST);
        let reused = self.has_answered.load(Relaxed);
        let answer = self.sender.try_send_request(request).await;
        let answer = answer.map_err(|mut failed| {
            let unsent = failed.take_message().map(|mut request| {
                *request.version_mut() = Version::HTTP_11;
                request
            });
            let cause = FailureCause::Http(failed.into_error());
            let error = UnansweredRequest { cause, reused };
            FailedHttp2Send { error, unsent }
        })?;
        self.has_answered.store(true, Relaxed);
        Ok(answer.map(AnswerBody::driven_elsewhere))
    }
}

impl Http1Connection {
    /// Sends a request, and drives the connection until the head of its answer is there.
    async fn drive_to_head(
        &mut self,
        request: Request<UpstreamBody>,
    ) -> hyper::Result<Response<Incoming>> {
        let Self { sender, connection } = self;
        let mut answer = std::pin::pin!(sender.send_request(request));
        std::future::poll_fn(|cx| {
            drive(connection, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Lets a task of its own drive the connection to the end of its answer. It is not used again.
    fn drive_in_background(self: Box<Self>) {
        // Without its sender, the connection ends with this exchange.
        if let Some(connection) = self.connection {
            TokioExecutor::new().execute(async move {
                // What goes wrong is told to the body of the answer.
                let _ = connection.await;
            });
        }
    }

    /// Reads and writes what can be. What goes wrong is told to the request, or to the body of its answer.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, cx);
    }

    /// Whether the connection can take a request, now that the answer has ended.
    pub(super) fn becomes_ready(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.sender.is_ready() {
            self.drive(cx);
        }
        self.can_send()
    }

    fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.can_send()
    }

    fn can_send(&self) -> bool {
        self.sender.is_ready() && self.connection.is_some()
    }
}

fn drive(
    connection: &mut Option<http1::Connection<ServerStream, UpstreamBody>>,
    cx: &mut Context<'_>,
) {
    let ended = connection
        .as_mut()
        .is_some_and(|it| Pin::new(it).poll(cx).is_ready());
    if ended {
        // Whoever waits for it gets an error.
        *connection = None;
    }
}

impl FailureCause {
    const fn on_new_connection(self) -> UnansweredRequest {
        UnansweredRequest {
            cause: self,
            reused: false,
        }
    }
}
