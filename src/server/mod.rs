//! Accepts connections, bounds them, and drains them at the end.
//!
//! HTTP/1.1 and HTTP/2 (prior knowledge) on one port. A request's own way is in [`exchange`].

pub mod admit;
pub mod answer;
pub mod api;
pub mod ask_usage;
mod attempt;
pub mod body;
pub mod dispatch;
pub mod exchange;
pub mod flight;
pub mod forward;
pub mod generation;
mod heal;
mod places;
pub mod recovering;
mod refusal;
pub mod rounds;
pub mod route;
pub mod running;
pub mod sharing;
pub mod tasks;
pub mod upgrade;
pub mod watch;
pub mod wish;

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
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use self::{
    admit::Clients,
    ask_usage::Refusals,
    flight::Flight,
    sharing::{Learners, Sharing},
    tasks::Tasks,
};
use crate::{
    config::{Config, ServerConfig},
    provider::Registry,
    session::{Sessions, Tenants, ratios::Ratios, secret::InstallationSecret},
    store::{self, Store},
    telemetry::{metrics::Metrics, record::Record},
    wire::Body,
};

/// After a failed accept: out of descriptors, which only time mends.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a connection stays open between two requests. Clients keep theirs for shorter, so that
/// it is they who close, and no request of theirs meets a connection that is just being closed.
const IDLE_FOR: Duration = Duration::from_secs(120);

/// How often a silent HTTP/2 client is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// hyper refuses less.
const LEAST_HEADER_BYTES: usize = 8_192;

/// Everything that all requests share. Immutable, but for what the stages keep to themselves.
#[derive(Debug)]
pub struct App {
    pub config: Config,
    pub clients: Clients,
    pub registry: Registry,
    pub sessions: Sessions,
    /// What new sessions begin with.
    pub ratios: Ratios,
    /// What is learnt, to and from other replicas.
    pub sharing: Arc<Sharing>,
    /// Models whose streams are not asked for usage.
    pub refusals: Refusals,
    pub flight: Flight,
    pub metrics: Metrics,
    pub tasks: Tasks,
    draining: AtomicBool,
}

/// One of the connections that may be open at one time: until the last clone is dropped, so that
/// one that leaves HTTP counts on.
#[derive(Clone, Debug)]
pub struct Open {
    _permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl App {
    /// # Errors
    /// The TLS roots of this machine cannot be read, or the data directory cannot be written.
    pub fn new(config: Config) -> io::Result<Self> {
        let store = store::open(&config.store, &config.server.data_dir)?;
        Self::with_store(config, store)
    }

    /// The same over a store that is there already.
    ///
    /// # Errors
    /// As of [`App::new`].
    pub fn with_store(config: Config, store: Arc<dyn Store>) -> io::Result<Self> {
        let secret = InstallationSecret::load(&config.server.data_dir).map_err(io::Error::other)?;
        let metrics = Metrics::default();
        let sessions = Sessions::new(Arc::clone(&store), Tenants::new(secret))
            .and_then(|sessions| sessions.encrypted(config.store.encrypt_key.as_ref()))
            .map_err(io::Error::other)?;
        Ok(Self {
            sessions: sessions.counted(metrics.store_errors()),
            sharing: Arc::new(Sharing::new(store, metrics.store_errors())),
            ratios: Ratios::default(),
            refusals: Refusals::default(),
            clients: Clients::new(&config.clients),
            registry: Registry::new(&config)?,
            flight: Flight::new(config.server.max_bytes_in_flight),
            metrics,
            tasks: Tasks::default(),
            draining: AtomicBool::new(false),
            config,
        })
    }

    /// Those who learn from answers.
    pub fn learners(&self) -> Learners<'_> {
        Learners {
            registry: &self.registry,
            ratios: &self.ratios,
        }
    }

    /// Whether the server is on its way out.
    pub fn draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
}

/// Serves until `stop` completes, then drains: no new connections, running answers may end
/// within `drain_timeout`.
///
/// # Errors
/// The server could not be set up. No client and no provider can end it.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_app(App::new(config)?, listener, stop).await
}

/// The same for what was set up by the caller.
///
/// # Errors
/// As of [`serve`].
pub async fn serve_app(
    app: App,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let app = Arc::new(app);
    app.registry.start();
    let learner = Arc::clone(&app);
    app.tasks.spawn(async move {
        // From before the last restart, and of other replicas. Requests do not wait for it.
        let _ = learner.sharing.hear(learner.learners(), false).await;
    });
    let limits = &app.config.server;
    let http = protocols(limits, app.tasks.clone());
    let open = Arc::new(Semaphore::new(
        limits.max_connections.min(Semaphore::MAX_PERMITS),
    ));
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = async {
            // What is over the limit waits in the kernel's queue.
            let permit = Arc::clone(&open).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
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
        let connection = connection(
            Arc::clone(&app),
            stream,
            http.clone(),
            graceful.watcher(),
            Open {
                _permit: permit.ok().map(Arc::new),
            },
        );
        app.tasks.spawn(connection);
    }
    drop(listener);
    drain(&app, graceful).await;
    Ok(())
}

async fn drain(app: &App, graceful: GracefulShutdown) {
    app.draining.store(true, Relaxed);
    let limit = app.config.server.drain_timeout;
    tracing::info!(connections = graceful.count(), "draining");
    let drained = timeout(limit, async {
        graceful.shutdown().await;
        app.tasks.done().await;
    });
    if drained.await.is_err() {
        tracing::warn!("some answers were not done in time and are cut off");
        app.tasks.end();
        app.tasks.done().await;
    }
}

fn protocols(limits: &ServerConfig, tasks: Tasks) -> auto::Builder<Tasks> {
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

async fn connection(
    app: Arc<App>,
    stream: TcpStream,
    http: auto::Builder<Tasks>,
    watcher: Watcher,
    open: Open,
) {
    // Without it, small events wait for the client's acknowledgement of the ones before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone at once");
        return;
    }
    let limit = app.config.server.header_timeout;
    let begun = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&begun);
    let service = service_fn(move |mut request: Request<Incoming>| {
        seen.store(true, Relaxed);
        request.extensions_mut().insert(open.clone());
        // Boxed, so that an idle connection stays small.
        Box::pin(respond(Arc::clone(&app), request))
    });
    let connection = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(watcher.watch(connection));
    // hyper bounds the time between two requests of HTTP/1; this bounds the wait for a first
    // request on any connection.
    let served = tokio::select! {
        served = &mut connection => served,
        () = sleep(limit) => {
            if !begun.load(Relaxed) {
                return;
            }
            connection.await
        }
    };
    if let Err(error) = served {
        // The client broke off, or did not speak HTTP. The record of a request tells its end.
        tracing::debug!(error = %crate::error::chain(&*error), "a connection ended early");
    }
}

async fn respond(app: Arc<App>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let mut record = Record::new(request.method(), request.uri().path());
    record.counts(app.metrics.begin());
    let version = request.version();
    let answer = exchange::exchange(&app, request, &mut record).await;
    let answer = answer.unwrap_or_else(|failure| {
        record.outcome(failure.code());
        let mut answer = answer::failure(&failure);
        // What is left of the body is not read, so that nothing can follow it on this connection.
        if failure.leaves_body() && version == Version::HTTP_11 {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        answer
    });
    Ok(record.attach(answer))
}
