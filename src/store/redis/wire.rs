//! An open connection: what is asked goes out, and what is answered comes back.
//!
//! No time limit here: whoever asks has one. A dropped question that was sent is carried out all the
//! same.

use futures_util::future::{self, OptionFuture};
use redis::{
    Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
};

use super::call::Call;

/// Each is for any number of questions at one time.
pub(super) enum Wire {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Wire {
    pub(super) async fn ask(&self, call: &Call) -> RedisResult<Value> {
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        match self.send(&call.command).await {
            Err(error) if error.kind() == unknown => match call.with_text() {
                Some(command) => self.send(&command).await,
                None => Err(error),
            },
            answer => answer,
        }
    }

    /// Both in one round trip; nothing where the second alone was refused.
    pub(super) async fn ask_beside(
        &self,
        call: &Call,
        beside: Option<&Call>,
    ) -> RedisResult<(Value, Option<Value>)> {
        let beside = OptionFuture::from(beside.map(|call| self.ask(call)));
        let (answer, beside) = future::join(self.ask(call), beside).await;
        Ok((answer?, beside.and_then(RedisResult::ok)))
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

    async fn send(&self, asked: &Cmd) -> RedisResult<Value> {
        let answer = match self {
            Self::Single(server) => server.clone().send_packed_command(asked).await,
            Self::Cluster(cluster) => cluster.clone().req_packed_command(asked).await,
        };
        answer?.extract_error()
    }
}

/// What a server calls its error.
pub(super) fn code(error: &RedisError) -> &str {
    error.code().unwrap_or_default()
}
