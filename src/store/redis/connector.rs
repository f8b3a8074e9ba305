//! The connection to the server, made anew whenever it is lost: calls are bounded while the server
//! answers, and fail at once while it does not.
//!
//! A connection that broke, a server that refuses to serve, or a few calls in a row that were not
//! answered in time take the store down. From then on one task alone asks the server, after pauses
//! that grow to a second, and when it answers all goes on by itself. The log tells when it goes and
//! when it is back: nobody has to say it for each request.
//!
//! SECURITY: the log names hosts and the server's code of an error, never its text, since that may
//! repeat what was sent.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use super::{
    super::StoreError,
    address::RedisAddress,
    call::RedisCall,
    connection::{RedisConnection, error_code},
};
use crate::breaker::{self, Breaker};

/// Calls in a row without an answer that take the store down.
const MAX_UNANSWERED: u32 = 3;

/// How long connecting may take, once the first requests go on without it.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Pauses between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A server that answered for so long is asked again at once when it goes.
const STEADY: Duration = Duration::from_secs(10);

/// Between two lines of the log that say that the server refuses.
const REMIND_EVERY: Duration = Duration::from_secs(60);

/// Asks the server, and keeps it connected.
pub(super) struct Connector {
    server: Arc<Server>,
    connecting: AbortHandle,
    /// Ends with this.
    _task: JoinSet<()>,
}

struct Server {
    address: RedisAddress,
    probe: RedisCall,
    /// How long one call may take.
    call_timeout: Duration,
    state: watch::Sender<ServerState>,
    /// When the log said last that the server refuses.
    refusal_logged_at: Mutex<Option<Instant>>,
}

#[derive(Clone)]
enum ServerState {
    /// Nobody knows yet.
    Starting,
    Up(Arc<LiveConnection>),
    Down,
}

/// A connection, as long as the server answers.
struct LiveConnection {
    wire: RedisConnection,
    /// Opens after calls that were not answered in time, which takes the store down.
    breaker: Breaker,
}

impl LiveConnection {
    fn is_current(self: &Arc<Self>, state: &ServerState) -> bool {
        matches!(state, ServerState::Up(current) if Arc::ptr_eq(current, self))
    }
}

impl Connector {
    pub(super) fn start(address: RedisAddress, probe: RedisCall, within: Duration) -> Self {
        let server = Arc::new(Server {
            address,
            probe,
            call_timeout: within,
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

    /// Asks, and `beside` it in the same round trip what may fail by itself.
    ///
    /// CANCEL: a call has its time and is judged by its answer, whoever waits for it. Requests give a
    /// save less time than a server that is far away needs to say that it is done.
    pub(super) async fn send_call(
        &self,
        call: RedisCall,
        beside: Option<RedisCall>,
    ) -> Result<(Value, Option<Value>), StoreError> {
        let line = self.server.wait_for_connection().await?;
        let server = Arc::clone(&self.server);
        #[allow(
            clippy::disallowed_methods,
            reason = "a drain need not wait: what was sent is carried out all the same"
        )]
        let asked =
            tokio::spawn(async move { server.send_over(&line, &call, beside.as_ref()).await });
        asked.await.unwrap_or(Err(StoreError::Down))
    }

    /// Lets go of the connection; nothing is asked any more.
    pub(super) fn stop(&self) {
        self.connecting.abort();
        self.server.state.send_replace(ServerState::Down);
    }
}

impl Server {
    /// The connection to ask over.
    async fn wait_for_connection(&self) -> Result<Arc<LiveConnection>, StoreError> {
        // Only the first requests after a start have to wait.
        let mut seen = self.state.subscribe();
        let known = seen.wait_for(|state| !matches!(state, ServerState::Starting));
        match timeout(self.call_timeout, known).await {
            Ok(Ok(state)) => match &*state {
                ServerState::Up(line) => Ok(Arc::clone(line)),
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
        line: &Arc<LiveConnection>,
        call: &RedisCall,
        beside: Option<&RedisCall>,
    ) -> Result<(Value, Option<Value>), StoreError> {
        let Some(permit) = line.breaker.try_admit(Instant::now()) else {
            return Err(StoreError::Down);
        };
        let mut seen = self.state.subscribe();
        let answered = tokio::select! {
            answered = timeout(self.call_timeout, line.wire.send_both(call, beside)) => answered,
            // Another call has taken the store down: this one waits no longer.
            _ = seen.wait_for(|state| !line.is_current(state)) => return Err(StoreError::Down),
        };
        let error = match answered {
            Ok(Ok(answers)) => {
                permit.record_success();
                return Ok(answers);
            }
            Ok(Err(error)) if !error.is_timeout() => error,
            // Also where a cluster's client has a time limit of its own.
            _ => {
                let now = Instant::now();
                permit.record_failure(now);
                if line.breaker.state_at(now) != breaker::BreakerState::Closed {
                    self.drop_connection(line, &timeout_error());
                }
                return Err(StoreError::TooSlow(self.call_timeout));
            }
        };
        match is_serving_error(&error) {
            true => self.warn_of_refusal(&error),
            false => self.drop_connection(line, &error),
        }
        Err(StoreError::Down)
    }

    /// Takes the store down, unless another line is up already.
    fn drop_connection(&self, line: &Arc<LiveConnection>, why: &RedisError) {
        self.mark_down(&DownReason(why), |state| line.is_current(state));
    }

    /// Takes the store down where that is so of its state, and says why in the log.
    fn mark_down(&self, why: &dyn fmt::Display, applies: impl FnOnce(&ServerState) -> bool) {
        let taken = self.state.send_if_modified(|state| {
            let applies = applies(state);
            if applies {
                *state = ServerState::Down;
            }
            applies
        });
        if taken {
            tracing::warn!(
                server = self.address.hosts,
                "the session store is down ({why}): requests go on without their sessions' states \
                 until it answers"
            );
        }
    }

    /// The server works, and did not do this: it is full, or does not let us.
    fn warn_of_refusal(&self, error: &RedisError) {
        let mut last = self
            .refusal_logged_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= REMIND_EVERY) {
            *last = Some(Instant::now());
            let why = DownReason(error);
            tracing::warn!(
                server = self.address.hosts,
                "the session store refuses ({why})"
            );
        }
    }

    /// A server that is slower than calls may be is no use.
    async fn open_connection(&self) -> RedisResult<RedisConnection> {
        let wire = self.address.open_connection().await?;
        let probed = timeout(self.call_timeout, wire.probe_server(&self.probe)).await;
        probed.unwrap_or_else(|_| Err(timeout_error()))?;
        Ok(wire)
    }

    /// Brings the store up, and comes back when it is down again.
    async fn serve_until_down(&self, wire: RedisConnection) {
        let line = Arc::new(LiveConnection {
            wire,
            // The line is given up when this opens, and the next one has its own.
            breaker: Breaker::new(MAX_UNANSWERED, LONGEST_PAUSE),
        });
        let mut seen = self.state.subscribe();
        self.state.send_replace(ServerState::Up(line));
        tracing::info!(server = self.address.hosts, "the session store answers");
        let _ = seen
            .wait_for(|state| matches!(state, ServerState::Down))
            .await;
    }
}

/// Connects, and connects again, for as long as there is a store.
async fn keep_connected(server: Arc<Server>) {
    let mut pause = FIRST_PAUSE;
    let within = server.call_timeout.max(CONNECT_WITHIN);
    loop {
        let connected = timeout(within, server.open_connection()).await;
        match connected.unwrap_or_else(|_| Err(timeout_error())) {
            Ok(wire) => {
                let since = Instant::now();
                server.serve_until_down(wire).await;
                if since.elapsed() >= STEADY {
                    pause = FIRST_PAUSE;
                }
            }
            Err(error) => server.mark_down(&DownReason(&error), |state| {
                matches!(state, ServerState::Starting)
            }),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether a server that answers so goes on to serve.
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
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// Why the server is gone, in words that hold nothing of what was sent.
struct DownReason<'a>(&'a RedisError);

impl fmt::Display for DownReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        let hint = match (error.kind(), error_code(error)) {
            (ErrorKind::AuthenticationFailed, _) | (_, "NOAUTH" | "WRONGPASS") => {
                "it does not take the password"
            }
            (_, "MOVED" | "ASK") => {
                "it is one of a cluster, which store.url names by redis-cluster://"
            }
            (_, "READONLY") => "it is a replica, which takes nothing",
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
