//! Keeps the server connected. Calls have a timeout while the server answers, and fail at once while it is down.
//!
//! A broken connection, a server that refuses to serve, or a few timeouts in a row take the store down. Then one task
//! probes the server, with pauses that grow to a second, until it answers. The log reports when the store goes down
//! and when it is up again, so no request has to. A server to which a newer release wrote is not used, and not changed.
//!
//! The client's own `redis::aio::ConnectionManager` (1.8.1) cannot take this place: while the server is down, each command
//! waits for its reconnect, and nothing asks it for its state. It keeps a connection on which all commands time out, and for
//! ever the error of a refused password. It has no hook for the probe of a new connection, and takes no cluster.
//!
//! SECURITY: the log names hosts and the server's error code, never its error text, which may repeat sent data.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use super::{
    super::StoreError,
    address::{CONNECT_WITHIN, RedisAddress},
    call::RedisCall,
    connection::{RedisConnection, error_code},
};

/// Timeouts in a row that take the store down.
const MAX_UNANSWERED: u32 = 3;

/// Pauses between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection that lived so long resets the pauses.
const STEADY: Duration = Duration::from_secs(10);

/// The interval of log lines about a server that refuses calls.
const REMIND_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Connector {
    server: Arc<Server>,
    connecting: AbortHandle,
    /// Aborts the task on drop.
    _task: JoinSet<()>,
}

struct Server {
    address: RedisAddress,
    probe: RedisCall,
    call_timeout: Duration,
    state: watch::Sender<ServerState>,
    /// The last log line about a refused call.
    refusal_logged_at: Mutex<Option<Instant>>,
}

#[derive(Clone)]
enum ServerState {
    /// The first attempt to connect has not ended.
    Starting,
    Up(Arc<LiveConnection>),
    Down,
    /// Down, since a newer release wrote to the server; and what to do.
    Newer(String),
}

/// The connection while the store is up.
struct LiveConnection {
    redis: RedisConnection,
    /// Timeouts in a row: [`MAX_UNANSWERED`] of them take the store down.
    unanswered: AtomicU32,
}

impl LiveConnection {
    fn is_current(self: &Arc<Self>, state: &ServerState) -> bool {
        matches!(state, ServerState::Up(current) if Arc::ptr_eq(current, self))
    }
}

impl Connector {
    pub(super) fn start(address: RedisAddress, probe: RedisCall, call_timeout: Duration) -> Self {
        let server = Arc::new(Server {
            address,
            probe,
            call_timeout,
            state: watch::Sender::new(ServerState::Starting),
            refusal_logged_at: Mutex::new(None),
        });
        let mut task = JoinSet::new();
        Self {
            connecting: task.spawn(keep_connected(Arc::clone(&server))),
            server,
            _task: task,
        }
    }

    /// Sends a call, and in the same round trip `beside`, which may fail alone.
    ///
    /// CANCEL: the call continues until its timeout, since a request may wait for a save for less time than a distant
    /// server needs to answer.
    pub(super) async fn send_call(
        &self,
        call: RedisCall,
        beside: Option<RedisCall>,
    ) -> Result<(Value, Option<Value>), StoreError> {
        let connection = self.server.wait_for_connection().await?;
        let server = Arc::clone(&self.server);
        #[allow(
            clippy::disallowed_methods,
            reason = "a drain need not wait: the server executes what was sent"
        )]
        let sent = tokio::spawn(async move {
            let beside = beside.as_ref();
            server.send_over(&connection, &call, beside).await
        });
        sent.await.unwrap_or(Err(StoreError::Down))
    }

    /// See [`super::RedisStore::refuse_newer`].
    pub(super) async fn refuse_newer(&self) -> io::Result<()> {
        let mut seen = self.server.state.subscribe();
        let tried = seen.wait_for(|state| !matches!(state, ServerState::Starting));
        if let Ok(Ok(state)) = timeout(CONNECT_WITHIN, tried).await
            && let ServerState::Newer(why) = &*state
        {
            return Err(io::Error::other(why.clone()));
        }
        Ok(())
    }

    /// Closes the connection. All later calls fail.
    pub(super) fn stop(&self) {
        self.connecting.abort();
        self.server.state.send_replace(ServerState::Down);
    }
}

impl Server {
    async fn wait_for_connection(&self) -> Result<Arc<LiveConnection>, StoreError> {
        // Only the first requests after the start wait.
        let mut seen = self.state.subscribe();
        let known = seen.wait_for(|state| !matches!(state, ServerState::Starting));
        match timeout(self.call_timeout, known).await {
            Ok(Ok(state)) => match &*state {
                ServerState::Up(connection) => Ok(Arc::clone(connection)),
                _ => Err(StoreError::Down),
            },
            _ => {
                let starting = |state: &ServerState| matches!(state, ServerState::Starting);
                self.mark_down(&"it does not answer", starting);
                Err(StoreError::Down)
            }
        }
    }

    async fn send_over(
        &self,
        connection: &Arc<LiveConnection>,
        call: &RedisCall,
        beside: Option<&RedisCall>,
    ) -> Result<(Value, Option<Value>), StoreError> {
        let mut seen = self.state.subscribe();
        let answered = tokio::select! {
            answered = timeout(self.call_timeout, connection.redis.send_both(call, beside)) => answered,
            // Another call has taken the store down.
            _ = seen.wait_for(|state| !connection.is_current(state)) => return Err(StoreError::Down),
        };
        let error = match answered {
            Ok(Ok(answers)) => {
                connection.unanswered.store(0, Relaxed);
                return Ok(answers);
            }
            Ok(Err(error)) if !error.is_timeout() => error,
            // A timeout, here or within a cluster's client.
            _ => {
                if connection.unanswered.fetch_add(1, Relaxed) + 1 >= MAX_UNANSWERED {
                    self.drop_connection(connection, &timeout_error());
                }
                return Err(StoreError::TooSlow(self.call_timeout));
            }
        };
        if is_serving_error(&error) {
            self.warn_of_refusal(&error)
        } else {
            self.drop_connection(connection, &error)
        }
        Err(StoreError::Down)
    }

    /// Takes the store down, unless a newer connection is up.
    fn drop_connection(&self, connection: &Arc<LiveConnection>, why: &RedisError) {
        self.mark_down(&DownReason(why), |state| connection.is_current(state));
    }

    /// Takes the store down if `applies` accepts its state, and logs why.
    fn mark_down(&self, why: &dyn fmt::Display, applies: impl FnOnce(&ServerState) -> bool) {
        let taken = self.state.send_if_modified(|state| {
            let applies = applies(state);
            if applies {
                *state = ServerState::Down;
            }
            applies
        });
        if taken {
            let server = &*self.address.hosts;
            tracing::warn!(
                server,
                "the session store is down ({why}): requests go on without their sessions' states until it answers"
            );
        }
    }

    fn mark_newer(&self, formats: &str) {
        let why = format!(
            "the sessions in store.url were written by a newer release ({formats}): start that release, \
             or set another store.prefix to begin without its sessions; nothing was changed"
        );
        let before = self.state.send_replace(ServerState::Newer(why.clone()));
        if !matches!(before, ServerState::Newer(_)) {
            let server = &*self.address.hosts;
            tracing::error!(server, "the session store is not used: {why}");
        }
    }

    /// Logs a refused call of a server that continues to serve: it is full, or lacks a permission.
    fn warn_of_refusal(&self, error: &RedisError) {
        let mut last = self.refusal_logged_at.lock();
        if last.is_none_or(|last| last.elapsed() >= REMIND_EVERY) {
            *last = Some(Instant::now());
            let (server, why) = (&*self.address.hosts, DownReason(error));
            tracing::warn!(server, "the session store refuses calls ({why})");
        }
    }

    /// Connects and probes. The probe has the timeout of a call, since a slower server is useless.
    async fn open_connection(&self) -> RedisResult<RedisConnection> {
        let redis = self.address.open_connection().await?;
        let probed = timeout(self.call_timeout, redis.probe_server(&self.probe)).await;
        probed.unwrap_or_else(|_| Err(timeout_error()))?;
        Ok(redis)
    }

    /// Brings the store up, and returns when it is down again.
    async fn serve_until_down(&self, redis: RedisConnection) {
        let connection = Arc::new(LiveConnection {
            redis,
            unanswered: AtomicU32::new(0),
        });
        let mut seen = self.state.subscribe();
        self.state.send_replace(ServerState::Up(connection));
        tracing::info!(server = self.address.hosts, "the session store answers");
        let is_down = |state: &ServerState| matches!(state, ServerState::Down);
        let _ = seen.wait_for(is_down).await;
    }
}

/// Connects and probes once: why the server cannot be used, if it cannot.
pub(super) async fn find_fault(address: &RedisAddress, probe: &RedisCall) -> Option<String> {
    let connect = async { address.open_connection().await?.probe_server(probe).await };
    let connected = timeout(CONNECT_WITHIN, connect).await;
    let error = connected.unwrap_or_else(|_| Err(timeout_error())).err()?;
    let why = DownReason(&error);
    Some(format!("{} cannot be used: {why}", address.hosts))
}

/// Connects again and again, for as long as the store exists.
async fn keep_connected(server: Arc<Server>) {
    let mut pause = FIRST_PAUSE;
    let connect_within = server.call_timeout.max(CONNECT_WITHIN);
    loop {
        let connected = timeout(connect_within, server.open_connection()).await;
        match connected.unwrap_or_else(|_| Err(timeout_error())) {
            Ok(redis) => {
                let since = Instant::now();
                server.serve_until_down(redis).await;
                if since.elapsed() >= STEADY {
                    pause = FIRST_PAUSE;
                }
            }
            // From `format.lua`.
            Err(error) if error_code(&error) == "NEWER" => {
                server.mark_newer(error.detail().unwrap_or_default());
            }
            Err(error) => server.mark_down(&DownReason(&error), |state| {
                matches!(state, ServerState::Starting)
            }),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether a server with this error continues to serve.
fn is_serving_error(error: &RedisError) -> bool {
    use ServerErrorKind::{ExecAbort, NoPerm, NoScript, ResponseError};
    match error.kind() {
        ErrorKind::Server(kind) => matches!(kind, ResponseError | ExecAbort | NoPerm | NoScript),
        ErrorKind::Extension => !matches!(error_code(error), "NOAUTH" | "WRONGPASS" | "DENIED"),
        ErrorKind::UnexpectedReturnType => true,
        _ => false,
    }
}

fn timeout_error() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// Why the server is down, without any sent data.
struct DownReason<'a>(&'a RedisError);

impl fmt::Display for DownReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        let hint = match (error.kind(), error_code(error)) {
            (ErrorKind::AuthenticationFailed, _) | (_, "NOAUTH" | "WRONGPASS") => {
                "it refuses the password"
            }
            (_, "MOVED" | "ASK") => {
                "it belongs to a cluster: set store.url to redis-cluster://HOST"
            }
            (_, "READONLY") => "it is a read-only replica",
            (_, "OOM") => "it is out of memory",
            _ if error.is_timeout() => "it does not answer in time",
            _ if error.is_connection_refusal() => "it refuses connections",
            _ if error.is_connection_dropped() => "it closed the connection",
            (ErrorKind::Io, _) => "it cannot be connected to",
            (kind, "") => return write!(f, "{kind:?}"),
            (_, code) => return f.write_str(code),
        };
        f.write_str(hint)
    }
}
