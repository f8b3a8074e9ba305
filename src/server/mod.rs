//! Accepts connections, bounds them, and drains them at shutdown.
//!
//! Each request keeps the settings that are current when it begins ([`CurrentConfig`]). HTTP/1.1 and HTTP/2 (prior
//! knowledge) share one port. `handle.rs` routes a request.
//!
//! The HTTP library's own errors (400, 431) have no body: it offers no way to set one. It has one timeout for the
//! head of a request and for the pause between two, so a later head may take as long as the connection may idle.
//! The first one has `server.header_timeout_ms`.

pub mod current_config;
mod handle;
pub mod route;

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderValue, Request, Response, StatusCode, Version, header::CONNECTION};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

pub use self::current_config::CurrentConfig;
use self::handle::handle_request;
use crate::{
    config::ServerConfig,
    conversation::Format,
    http::{
        answer, body::RequestBody, cors::PageAccess, limit::Hold, origin::is_local_client,
        tasks::Tasks,
    },
    proxy::App,
    telemetry::record::RequestRecord,
    wire::Body,
};

/// Pause after a failed accept: the process is out of descriptors until some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a connection stays open between two requests. Longer than clients keep theirs, so that the client
/// closes it and no request meets a connection that is being closed.
const IDLE_FOR: Duration = Duration::from_secs(120);

/// How often a silent HTTP/2 client gets a ping.
const PING_EVERY: Duration = Duration::from_secs(30);

/// How long the store may take to write what it holds, after its last use.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// How long a new connection may take for its first request during a drain: its client may be dead.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// hyper refuses less.
const LEAST_HEADER_BYTES: usize = 8_192;

/// Serves until `stop` completes, and for `drain_delay` longer without being ready. Then it drains: no new connections,
/// running answers may end within `drain_timeout`.
///
/// # Errors
/// The server could not be set up. No client and no provider can end it.
pub async fn serve(
    current: Arc<CurrentConfig>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let app = current.app();
    app.registry.start();
    let tasks = app.tasks.clone();
    // Pulls what this and other replicas published before. Requests do not wait for it.
    tasks.spawn(async move { app.replica_sync.pull(&app.registry, false).await });
    let graceful = GracefulShutdown::new();
    let stop = async {
        stop.await;
        let app = current.app();
        app.stopping.cancel();
        let delay = app.config.server.drain_delay;
        if !delay.is_zero() {
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(
                delay_ms,
                "the proxy is no longer ready; its port closes after the delay"
            );
        }
        sleep(delay).await;
    };
    tokio::pin!(stop);
    loop {
        let accepted = async {
            // Connections over the limit wait in the kernel's queue.
            let hold = Arc::new(current.connections.take_one().await);
            (hold, listener.accept().await)
        };
        let (hold, accepted) = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let watcher = graceful.watcher();
        tasks.spawn(serve_connection(
            Arc::clone(&current),
            stream,
            watcher,
            hold,
        ));
    }
    drop(listener);
    drain_connections(&current.app(), graceful).await;
    Ok(())
}

/// Every wait in here is bounded, whatever hangs: the process is about to end.
async fn drain_connections(app: &App, graceful: GracefulShutdown) {
    app.draining.cancel();
    let limit = app.config.server.drain_timeout;
    tracing::info!(connections = graceful.count(), "draining");
    let drained = timeout(limit, async {
        graceful.shutdown().await;
        app.tasks.wait_for_all().await;
    });
    if drained.await.is_err() {
        tracing::warn!("drain timeout: running answers are cut off");
        app.tasks.cancel_all();
        app.tasks.wait_for_all().await;
    }
    // Summaries: no request waits for them any more.
    app.summary_tasks.cancel_all();
    app.summary_tasks.wait_for_all().await;
    // All states are saved by now, or were cut off with their answers.
    if timeout(CLOSE_WITHIN, app.sessions.close()).await.is_err() {
        tracing::warn!("closing the session store timed out");
    }
    app.tracing.close().await;
}

fn build_http_server(limits: &ServerConfig, tasks: Tasks) -> auto::Builder<Tasks> {
    let mut http = auto::Builder::new(tasks);
    http.http1()
        .timer(TokioTimer::new())
        // It counts from the end of the previous answer, so it bounds the idle time too.
        .header_read_timeout(limits.header_timeout.max(IDLE_FOR))
        .max_buf_size(limits.max_header_bytes.max(LEAST_HEADER_BYTES));
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX));
    http
}

async fn serve_connection(
    current: Arc<CurrentConfig>,
    stream: TcpStream,
    watcher: Watcher,
    hold: Arc<Hold>,
) {
    // Without it, small events wait until the client acknowledges the previous ones.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "connection closed before its first request");
        return;
    }
    let (http, limit, drain) = {
        let app = current.app();
        let limits = &app.config.server;
        let http = build_http_server(limits, app.tasks.clone());
        (http, limits.header_timeout, app.draining.clone())
    };
    let has_request = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&has_request);
    let service = service_fn(move |mut request: Request<Incoming>| {
        seen.store(true, Relaxed);
        request.extensions_mut().insert(Arc::clone(&hold));
        // Boxed, so that an idle connection stays small.
        Box::pin(answer_request(current.app(), request))
    });
    let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(watcher.watch(connection));
    // hyper bounds the time between two requests of HTTP/1. This bounds the wait for the first of a connection.
    let first_request_timeout = async {
        let drained = async {
            drain.cancelled().await;
            sleep(FIRST_WITHIN).await;
        };
        tokio::select! {
            () = sleep(limit) => {}
            () = drained => {}
        }
    };
    let served = tokio::select! {
        served = &mut connection => served,
        () = first_request_timeout => {
            if !has_request.load(Relaxed) {
                return;
            }
            connection.await
        }
    };
    if let Err(error) = served {
        // The client broke off, or did not speak HTTP. The log line of a request has its outcome.
        tracing::debug!(error = %crate::error::format_error_chain(&*error), "connection ended early");
    }
}

async fn answer_request(
    app: Arc<App>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let mut record = RequestRecord::new(request.method(), request.uri().path());
    let errors = Format::of_request(request.uri().path(), request.headers());
    let asks = request.uri().path().ends_with(errors.path());
    record.in_flight = Some(app.metrics.begin_request());
    let (parts, body) = request.into_parts();
    let version = parts.version;
    let is_local = is_local_client(&app.clients, &parts);
    let access = PageAccess::from_request(&app.config.server, &parts);
    let mut body = RequestBody::new(&parts.headers, body);
    let mut must_close = false;
    let handled = handle_request(&app, parts, &mut body, &access, &mut record).await;
    let mut answer = match handled {
        Ok(answer) => answer,
        Err(failure) => {
            let failure = if is_local {
                failure
            } else {
                failure.without_cause()
            };
            body.drain_refused(app.config.server.max_body_bytes).await;
            record.outcome = Some(failure.code());
            // The rest of the body stays unread, so no request can follow on this connection.
            must_close = failure.leaves_body();
            answer::failure_response(errors, asks, &failure)
        }
    };
    access.open_answer(answer.headers_mut());
    let mut answer = record.attach_to_response(answer);
    // Balancers keep idle connections. At the end of the delay, the next request could meet the close of one.
    must_close |= app.stopping.is_cancelled() && answer.status() != StatusCode::SWITCHING_PROTOCOLS;
    if must_close && version == Version::HTTP_11 {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    Ok(answer)
}
