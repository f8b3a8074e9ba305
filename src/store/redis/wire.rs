//! Open connections: what is asked goes out, and what is answered comes back.
//!
//! No time limit here: whoever asks has one. A dropped question that was sent is carried out all the
//! same.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures_util::future;
use redis::{
    Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
};

use super::call::{Call, script};

pub(super) enum Wire {
    Single(Pool),
    Cluster(ClusterConnection),
}

/// Connections to one server, each for any number of questions at one time.
pub(super) struct Pool {
    first: MultiplexedConnection,
    others: Vec<MultiplexedConnection>,
    next: AtomicUsize,
}

impl Pool {
    pub(super) const fn new(
        first: MultiplexedConnection,
        others: Vec<MultiplexedConnection>,
    ) -> Self {
        Self {
            first,
            others,
            next: AtomicUsize::new(0),
        }
    }

    /// Each in turn.
    fn connection(&self) -> MultiplexedConnection {
        let at = self.next.fetch_add(1, Relaxed) % (self.others.len() + 1);
        self.others.get(at).unwrap_or(&self.first).clone()
    }
}

impl Wire {
    pub(super) async fn ask(&self, call: &Call) -> RedisResult<Value> {
        let answer = self.send(&call.short()).await;
        self.or_in_full(answer, call).await
    }

    /// Both in one round trip. Only the first can fail: an error of the second is its answer.
    pub(super) async fn ask_both(
        &self,
        first: &Call,
        second: &Call,
    ) -> RedisResult<(Value, RedisResult<Value>)> {
        let (one, other) = self.send_both(first.short(), second.short()).await?;
        Ok((
            self.or_in_full(one, first).await?,
            self.or_in_full(other, second).await,
        ))
    }

    /// Whether every server answers, and takes what is written: in one round trip, since a server
    /// that is far away serves as well.
    pub(super) async fn probe(&self, written: &Call) -> RedisResult<()> {
        let ping = redis::cmd("PING");
        let (answer, taken) = future::join(self.send(&ping), self.ask(written)).await;
        answer?;
        match taken {
            // What is full still finds.
            Err(error) if !matches!(code(&error), "OOM" | "MISCONF") => Err(error),
            _ => Ok(()),
        }
    }

    /// Tells every server all scripts, so that nobody has to later; where that is forbidden, nothing.
    pub(super) async fn teach(&self) {
        let teach = |script: &&script::Script| {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script.text());
            async move { self.send(&load).await }
        };
        future::join_all(script::ALL.iter().map(teach)).await;
    }

    async fn send(&self, asked: &Cmd) -> RedisResult<Value> {
        let answer = match self {
            Self::Single(pool) => pool.connection().send_packed_command(asked).await,
            Self::Cluster(cluster) => cluster.clone().req_packed_command(asked).await,
        };
        answer?.extract_error()
    }

    async fn send_both(
        &self,
        first: Cmd,
        second: Cmd,
    ) -> RedisResult<(RedisResult<Value>, RedisResult<Value>)> {
        match self {
            Self::Single(pool) => {
                let mut both = redis::Pipeline::with_capacity(2);
                both.add_command(first).add_command(second);
                let answers = pool.connection().send_packed_commands(&both, 0, 2).await?;
                let Ok([one, other]) = <[Value; 2]>::try_from(answers) else {
                    return Err((ErrorKind::Parse, "not as many answers as questions").into());
                };
                Ok((one.extract_error(), other.extract_error()))
            }
            // They may go to two servers, so each is on its way by itself.
            Self::Cluster(cluster) => {
                let (mut one, mut other) = (cluster.clone(), cluster.clone());
                let answers = future::join(
                    one.req_packed_command(&first),
                    other.req_packed_command(&second),
                );
                let (one, other) = answers.await;
                let checked = |answer: RedisResult<Value>| answer.and_then(Value::extract_error);
                Ok((checked(one), checked(other)))
            }
        }
    }

    async fn or_in_full(&self, answer: RedisResult<Value>, call: &Call) -> RedisResult<Value> {
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        match answer {
            Err(error) if error.kind() == unknown => self.send(&call.long()).await,
            answer => answer,
        }
    }
}

/// What a server calls its error.
pub(super) fn code(error: &RedisError) -> &str {
    error.code().unwrap_or_default()
}
