//! Accepts connections, bounds them, and drains them at the end.
//!
//! Each request works with the settings that are in force when it begins ([`CurrentConfig`]). HTTP/1.1 and
//! HTTP/2 (prior knowledge) on one port. `handle.rs` routes a request.
//!
//! Refusals of the HTTP library itself (400, 431) have no body: it has no place where one could be given. It has
//! one clock for the head of a request and for the pause between two, so between two requests a head may take as
//! long as the connection may idle; the first one has `server.header_timeout_ms`.

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

use http::{HeaderValue, Request, Response, Version, header::CONNECTION};
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
    http::{answer, body::RequestBody, limit::Hold, tasks::Tasks},
    proxy::App,
    telemetry::record::RequestRecord,
    wire::Body,
};

/// After a failed accept: out of descriptors, which only time mends.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a connection stays open between two requests. Clients keep theirs for shorter, so that
/// it is they who close, and no request of theirs meets a connection that is just being closed.
const IDLE_FOR: Duration = Duration::from_secs(120);

/// How often a silent HTTP/2 client is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// How long the store has to bring to rest what it holds, once nobody asks it for anything.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// How long a connection that has not brought a first request yet may take for one during a drain:
/// its client may be dead, or never have meant to.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// hyper refuses less.
const LEAST_HEADER_BYTES: usize = 8_192;

/// Serves until `stop` completes, then drains: no new connections, running answers may end
/// within `drain_timeout`.
///
/// # Errors
/// The server could not be set up. No client and no provider can end it.
pub async fn serve(
    live: Arc<CurrentConfig>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    live.app().registry.start();
    let tasks = live.app().tasks.clone();
    let app = live.app();
    tasks.spawn(async move {
        // From before the last restart, and of other replicas. Requests do not wait for it.
        app.replica_sync.pull(&app.registry, false).await
    });
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = async {
            // What is over the limit waits in the kernel's queue.
            let open = Arc::new(live.connections.take_one().await);
            (open, listener.accept().await)
        };
        let (open, accepted) = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let watcher = graceful.watcher();
        tasks.spawn(serve_connection(Arc::clone(&live), stream, watcher, open));
    }
    drop(listener);
    drain_connections(&live.app(), graceful).await;
    Ok(())
}

/// Nothing of it is kept longer than it is bounded, whatever hangs: the process is to end.
async fn drain_connections(app: &App, graceful: GracefulShutdown) {
    app.begin_drain();
    let limit = app.config.server.drain_timeout;
    tracing::info!(connections = graceful.count(), "draining");
    let drained = timeout(limit, async {
        graceful.shutdown().await;
        app.tasks.wait_for_all().await;
    });
    if drained.await.is_err() {
        tracing::warn!("some answers were not done in time and are cut off");
        app.tasks.cancel_all();
        app.tasks.wait_for_all().await;
    }
    // No request waits for what still runs apart from them.
    app.summary_tasks.cancel_all();
    app.summary_tasks.wait_for_all().await;
    // Whatever still saves a state has done so by now, or was cut off with its answer.
    if timeout(CLOSE_WITHIN, app.sessions.close()).await.is_err() {
        tracing::warn!("the store did not come to rest in time");
    }
    app.tracing.close().await;
}

fn build_http_server(limits: &ServerConfig, tasks: Tasks) -> auto::Builder<Tasks> {
    let mut http = auto::Builder::new(tasks);
    http.http1()
        .timer(TokioTimer::new())
        // It counts from the end of the answer before, so it is also how long that one may idle.
        .header_read_timeout(limits.header_timeout.max(IDLE_FOR))
        .max_buf_size(limits.max_header_bytes.max(LEAST_HEADER_BYTES));
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX));
    http
}

async fn serve_connection(
    live: Arc<CurrentConfig>,
    stream: TcpStream,
    watcher: Watcher,
    open: Arc<Hold>,
) {
    // Without it, small events wait for the client's acknowledgement of the ones before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone at once");
        return;
    }
    let (http, limit, end) = {
        let app = live.app();
        let limits = &app.config.server;
        let http = build_http_server(limits, app.tasks.clone());
        (http, limits.header_timeout, app.drain_token())
    };
    let begun = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&begun);
    let service = service_fn(move |mut request: Request<Incoming>| {
        seen.store(true, Relaxed);
        request.extensions_mut().insert(Arc::clone(&open));
        // Boxed, so that an idle connection stays small.
        Box::pin(answer_request(live.app(), request))
    });
    let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(watcher.watch(connection));
    // hyper bounds the time between two requests of HTTP/1; this bounds the wait for a first
    // request on any connection.
    let waited = async {
        let ending = async {
            end.cancelled().await;
            sleep(FIRST_WITHIN).await;
        };
        tokio::select! {
            () = sleep(limit) => {}
            () = ending => {}
        }
    };
    let served = tokio::select! {
        served = &mut connection => served,
        () = waited => {
            if !begun.load(Relaxed) {
                return;
            }
            connection.await
        }
    };
    if let Err(error) = served {
        // The client broke off, or did not speak HTTP. The record of a request tells its end.
        tracing::debug!(error = %crate::error::format_error_chain(&*error), "a connection ended early");
    }
}

async fn answer_request(
    app: Arc<App>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let mut record = RequestRecord::new(request.method(), request.uri().path());
    record.in_flight = Some(app.metrics.begin_request());
    let (parts, body) = request.into_parts();
    let version = parts.version;
    let mut body = RequestBody::new(&parts.headers, body);
    let answer = match handle_request(&app, parts, &mut body, &mut record).await {
        Ok(answer) => answer,
        Err(failure) => {
            body.drain_refused(app.config.server.max_body_bytes).await;
            record.outcome = Some(failure.code());
            let mut answer = answer::failure_response(&failure);
            // What is left of the body is not read, so that nothing can follow it on this connection.
            if failure.leaves_body() && version == Version::HTTP_11 {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            answer
        }
    };
    Ok(record.attach_to_response(answer))
}
