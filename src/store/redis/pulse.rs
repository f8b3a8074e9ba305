//! Whether the server answers: calls are bounded while it does, and fail at once while it does not.
//!
//! A connection that broke, a server that refuses to serve, or a few calls in a row that were not
//! answered in time take the store down. From then on one task alone asks the server, after pauses
//! that grow to a second, and when it answers all goes on by itself. The log tells when it goes and
//! when it is back, and a reminder now and then: nobody has to say it for each request.
//!
//! SECURITY: the log names hosts and the server's code of an error, never its text, since that may
//! repeat what was sent.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

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

/// Between two lines of the log that say the same.
const REMIND_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Pulse {
    heart: Arc<Heart>,
    /// The one that connects.
    task: Mutex<JoinSet<()>>,
}

struct Heart {
    address: Address,
    probe: Call,
    /// How long one call may take.
    within: Duration,
    state: watch::Sender<State>,
    /// The log says that the store is down.
    said: AtomicBool,
    refused: Mutex<Option<Instant>>,
}

#[derive(Clone)]
enum State {
    /// Nobody knows yet.
    Starting,
    Up(Arc<Line>),
    Down,
}

/// Connections, as long as the server answers.
struct Line {
    wire: Wire,
    /// Opens after calls that were not answered in time, which takes the store down.
    breaker: Breaker,
    cut: CancellationToken,
}

impl Pulse {
    pub(super) fn start(address: Address, probe: Call, within: Duration) -> Self {
        let heart = Arc::new(Heart {
            address,
            probe,
            within,
            state: watch::Sender::new(State::Starting),
            said: AtomicBool::new(false),
            refused: Mutex::new(None),
        });
        let mut task = JoinSet::new();
        task.spawn(beat(Arc::clone(&heart)));
        Self {
            heart,
            task: Mutex::new(task),
        }
    }

    pub(super) async fn ask(&self, call: Call) -> Result<Value, StoreError> {
        let line = self.heart.line().await?;
        let wire = Arc::clone(&line);
        let asked = async move { wire.wire.ask(&call).await };
        self.heart.carried_out(line, asked).await
    }

    /// Both in one round trip; nothing where the second alone was refused.
    pub(super) async fn ask_both(
        &self,
        first: Call,
        second: Call,
    ) -> Result<(Value, Option<Value>), StoreError> {
        let line = self.heart.line().await?;
        let wire = Arc::clone(&line);
        let asked = async move { wire.wire.ask_both(&first, &second).await };
        let (one, other) = self.heart.carried_out(line, asked).await?;
        Ok((one, other.ok()))
    }

    /// Lets go of all connections; nothing is asked any more.
    pub(super) fn stop(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        task.abort_all();
        self.heart.state.send_replace(State::Down);
    }
}

impl Heart {
    /// The connections to ask over.
    async fn line(&self) -> Result<Arc<Line>, StoreError> {
        let state = self.state.borrow().clone();
        match state {
            State::Up(line) => return Ok(line),
            State::Down => return Err(StoreError::Down),
            State::Starting => {}
        }
        // Only the first requests after a start are here.
        let mut seen = self.state.subscribe();
        let known = seen.wait_for(|state| !matches!(state, State::Starting));
        match timeout(self.within, known).await {
            Ok(Ok(state)) => match &*state {
                State::Up(line) => Ok(Arc::clone(line)),
                _ => Err(StoreError::Down),
            },
            _ => {
                self.missing(&"it does not answer");
                Err(StoreError::Down)
            }
        }
    }

    /// What was asked over a line.
    ///
    /// CANCEL: it has its time and is judged by its answer, whoever waits for it. Requests give a save
    /// less time than a server that is far away needs to say that it is done.
    async fn carried_out<T: Send + 'static>(
        self: &Arc<Self>,
        line: Arc<Line>,
        asked: impl Future<Output = RedisResult<T>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let heart = Arc::clone(self);
        #[allow(
            clippy::disallowed_methods,
            reason = "a drain need not wait: what was sent is carried out all the same"
        )]
        let asked = tokio::spawn(async move { heart.bounded(&line, asked).await });
        asked.await.unwrap_or(Err(StoreError::Down))
    }

    /// The same, unless it takes too long or the line is cut meanwhile.
    async fn bounded<T>(
        &self,
        line: &Arc<Line>,
        asked: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, StoreError> {
        let Some(permit) = line.breaker.admit(Instant::now()) else {
            return Err(StoreError::Down);
        };
        let answered = tokio::select! {
            answered = timeout(self.within, asked) => answered,
            () = line.cut.cancelled() => return Err(StoreError::Down),
        };
        let error = match answered {
            Ok(Ok(answer)) => {
                permit.succeeded();
                return Ok(answer);
            }
            Ok(Err(error)) if !error.is_timeout() => error,
            // Also where a cluster's client has a time limit of its own.
            _ => {
                let now = Instant::now();
                permit.failed(now);
                if line.breaker.state(now) != breaker::State::Closed {
                    self.lose(line, &Reason(&slow()));
                }
                return Err(StoreError::TooSlow(self.within));
            }
        };
        match serves(&error) {
            true => self.refused(&error),
            false => self.lose(line, &Reason(&error)),
        }
        Err(StoreError::Down)
    }

    /// Takes the store down, unless that was done, or another line is up already.
    fn lose(&self, line: &Arc<Line>, why: &dyn fmt::Display) {
        let lost = self.state.send_if_modified(|state| {
            let current = matches!(state, State::Up(current) if Arc::ptr_eq(current, line));
            if current {
                *state = State::Down;
            }
            current
        });
        line.cut.cancel();
        if lost {
            self.say_down(why);
        }
    }

    /// Nobody waits for the first connection any longer.
    fn missing(&self, why: &dyn fmt::Display) {
        let missing = self.state.send_if_modified(|state| {
            let starting = matches!(state, State::Starting);
            if starting {
                *state = State::Down;
            }
            starting
        });
        if missing {
            self.say_down(why);
        }
    }

    fn say_down(&self, why: &dyn fmt::Display) {
        self.said.store(true, Relaxed);
        tracing::warn!(
            server = self.address.shown,
            "the session store is down ({why}): requests go on without their sessions' states until \
             it answers"
        );
    }

    /// The server works, and did not do this: it is full, or does not let us.
    fn refused(&self, error: &RedisError) {
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

    async fn connect(&self) -> RedisResult<Wire> {
        let wire = self.address.connect().await?;
        // A server that is slower than calls may be is no use.
        match timeout(self.within, wire.probe(&self.probe)).await {
            Ok(probed) => probed?,
            Err(_) => return Err(slow()),
        }
        // Else a script goes along when it is first called.
        let _ = timeout(self.within, wire.teach()).await;
        Ok(wire)
    }

    /// Brings the store up, and comes back when it is down again.
    async fn up(&self, wire: Wire) {
        let line = Arc::new(Line {
            wire,
            // The line is given up when this opens, and the next one has its own.
            breaker: Breaker::new(STRIKES, LONGEST_PAUSE),
            cut: CancellationToken::new(),
        });
        let mut seen = self.state.subscribe();
        self.state.send_replace(State::Up(line));
        let server = &self.address.shown;
        match self.said.swap(false, Relaxed) {
            true => tracing::info!(server, "the session store answers again"),
            false => tracing::info!(server, "the session store answers"),
        }
        let _ = seen.wait_for(|state| matches!(state, State::Down)).await;
    }
}

/// Connects, and connects again, for as long as there is a store.
async fn beat(heart: Arc<Heart>) {
    let mut pause = FIRST_PAUSE;
    let mut reminded = Instant::now();
    loop {
        let within = heart.within.max(CONNECT_WITHIN);
        let failed = match timeout(within, heart.connect()).await {
            Ok(Ok(wire)) => {
                let since = Instant::now();
                heart.up(wire).await;
                reminded = Instant::now();
                if since.elapsed() >= STEADY {
                    pause = FIRST_PAUSE;
                }
                None
            }
            Ok(Err(error)) => Some(error),
            Err(_) => Some(slow()),
        };
        if let Some(error) = failed {
            let why = Reason(&error);
            heart.missing(&why);
            if reminded.elapsed() >= REMIND_EVERY {
                reminded = Instant::now();
                heart.say_down(&why);
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
