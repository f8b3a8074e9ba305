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
    address::Address,
    call::Call,
    wire::{Wire, code},
};
use crate::breaker::{self, Breaker};

/// Calls in a row without an answer that take the store down.
const STRIKES: u32 = 3;

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
    address: Address,
    probe: Call,
    /// How long one call may take.
    within: Duration,
    state: watch::Sender<State>,
    /// When the log said last that the server refuses.
    refused: Mutex<Option<Instant>>,
}

#[derive(Clone)]
enum State {
    /// Nobody knows yet.
    Starting,
    Up(Arc<Line>),
    Down,
}

/// A connection, as long as the server answers.
struct Line {
    wire: Wire,
    /// Opens after calls that were not answered in time, which takes the store down.
    breaker: Breaker,
}

impl Line {
    fn is_current(self: &Arc<Self>, state: &State) -> bool {
        matches!(state, State::Up(current) if Arc::ptr_eq(current, self))
    }
}

impl Connector {
    pub(super) fn start(address: Address, probe: Call, within: Duration) -> Self {
        let server = Arc::new(Server {
            address,
            probe,
            within,
            state: watch::Sender::new(State::Starting),
            refused: Mutex::new(None),
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
    pub(super) async fn ask(
        &self,
        call: Call,
        beside: Option<Call>,
    ) -> Result<(Value, Option<Value>), StoreError> {
        let line = self.server.line().await?;
        let server = Arc::clone(&self.server);
        #[allow(
            clippy::disallowed_methods,
            reason = "a drain need not wait: what was sent is carried out all the same"
        )]
        let asked = tokio::spawn(async move { server.ask(&line, &call, beside.as_ref()).await });
        asked.await.unwrap_or(Err(StoreError::Down))
    }

    /// Lets go of the connection; nothing is asked any more.
    pub(super) fn stop(&self) {
        self.connecting.abort();
        self.server.state.send_replace(State::Down);
    }
}

impl Server {
    /// The connection to ask over.
    async fn line(&self) -> Result<Arc<Line>, StoreError> {
        // Only the first requests after a start have to wait.
        let mut seen = self.state.subscribe();
        let known = seen.wait_for(|state| !matches!(state, State::Starting));
        match timeout(self.within, known).await {
            Ok(Ok(state)) => match &*state {
                State::Up(line) => Ok(Arc::clone(line)),
                _ => Err(StoreError::Down),
            },
            _ => {
                let starting = |state: &State| matches!(state, State::Starting);
                self.take_down(&"it does not answer", starting);
                Err(StoreError::Down)
            }
        }
    }

    async fn ask(
        &self,
        line: &Arc<Line>,
        call: &Call,
        beside: Option<&Call>,
    ) -> Result<(Value, Option<Value>), StoreError> {
        let Some(permit) = line.breaker.admit(Instant::now()) else {
            return Err(StoreError::Down);
        };
        let mut seen = self.state.subscribe();
        let answered = tokio::select! {
            answered = timeout(self.within, line.wire.ask_beside(call, beside)) => answered,
            // Another call has taken the store down: this one waits no longer.
            _ = seen.wait_for(|state| !line.is_current(state)) => return Err(StoreError::Down),
        };
        let error = match answered {
            Ok(Ok(answers)) => {
                permit.succeeded();
                return Ok(answers);
            }
            Ok(Err(error)) if !error.is_timeout() => error,
            // Also where a cluster's client has a time limit of its own.
            _ => {
                let now = Instant::now();
                permit.failed(now);
                if line.breaker.state(now) != breaker::State::Closed {
                    self.lose(line, &slow());
                }
                return Err(StoreError::TooSlow(self.within));
            }
        };
        match serves(&error) {
            true => self.warn_of_refusal(&error),
            false => self.lose(line, &error),
        }
        Err(StoreError::Down)
    }

    /// Takes the store down, unless another line is up already.
    fn lose(&self, line: &Arc<Line>, why: &RedisError) {
        self.take_down(&Reason(why), |state| line.is_current(state));
    }

    /// Takes the store down where that is so of its state, and says why in the log.
    fn take_down(&self, why: &dyn fmt::Display, applies: impl FnOnce(&State) -> bool) {
        let taken = self.state.send_if_modified(|state| {
            let applies = applies(state);
            if applies {
                *state = State::Down;
            }
            applies
        });
        if taken {
            tracing::warn!(
                server = self.address.shown,
                "the session store is down ({why}): requests go on without their sessions' states \
                 until it answers"
            );
        }
    }

    /// The server works, and did not do this: it is full, or does not let us.
    fn warn_of_refusal(&self, error: &RedisError) {
        let mut last = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= REMIND_EVERY) {
            *last = Some(Instant::now());
            let why = Reason(error);
            tracing::warn!(
                server = self.address.shown,
                "the session store refuses ({why})"
            );
        }
    }

    /// A server that is slower than calls may be is no use.
    async fn connect(&self) -> RedisResult<Wire> {
        let wire = self.address.connect().await?;
        let probed = timeout(self.within, wire.probe(&self.probe)).await;
        probed.unwrap_or_else(|_| Err(slow()))?;
        Ok(wire)
    }

    /// Brings the store up, and comes back when it is down again.
    async fn serve(&self, wire: Wire) {
        let line = Arc::new(Line {
            wire,
            // The line is given up when this opens, and the next one has its own.
            breaker: Breaker::new(STRIKES, LONGEST_PAUSE),
        });
        let mut seen = self.state.subscribe();
        self.state.send_replace(State::Up(line));
        tracing::info!(server = self.address.shown, "the session store answers");
        let _ = seen.wait_for(|state| matches!(state, State::Down)).await;
    }
}

/// Connects, and connects again, for as long as there is a store.
async fn keep_connected(server: Arc<Server>) {
    let mut pause = FIRST_PAUSE;
    let within = server.within.max(CONNECT_WITHIN);
    loop {
        let connected = timeout(within, server.connect()).await;
        match connected.unwrap_or_else(|_| Err(slow())) {
            Ok(wire) => {
                let since = Instant::now();
                server.serve(wire).await;
                if since.elapsed() >= STEADY {
                    pause = FIRST_PAUSE;
                }
            }
            Err(error) => {
                server.take_down(&Reason(&error), |state| matches!(state, State::Starting))
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether a server that answers so goes on to serve.
fn serves(error: &RedisError) -> bool {
    use ServerErrorKind::{ExecAbort, NoPerm, NoScript, ResponseError};
    match error.kind() {
        ErrorKind::Server(kind) => matches!(kind, ResponseError | ExecAbort | NoPerm | NoScript),
        ErrorKind::Extension => !matches!(code(error), "NOAUTH" | "WRONGPASS" | "DENIED"),
        ErrorKind::UnexpectedReturnType => true,
        _ => false,
    }
}

fn slow() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// Why the server is gone, in words that hold nothing of what was sent.
struct Reason<'a>(&'a RedisError);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        let hint = match (error.kind(), code(error)) {
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
