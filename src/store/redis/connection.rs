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

use super::call::RedisCall;

/// Each is for any number of questions at one time.
pub(super) enum RedisConnection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl RedisConnection {
    pub(super) async fn send_call(&self, call: &RedisCall) -> RedisResult<Value> {
        let unknown = ErrorKind::Server(ServerErrorKind::NoScript);
        match self.send_command(&call.command).await {
            Err(error) if error.kind() == unknown => match call.to_eval() {
                Some(command) => self.send_command(&command).await,
                None => Err(error),
            },
            answer => answer,
        }
    }

    /// Both in one round trip; nothing where the second alone was refused.
    pub(super) async fn send_both(
        &self,
        call: &RedisCall,
        beside: Option<&RedisCall>,
    ) -> RedisResult<(Value, Option<Value>)> {
        let beside = OptionFuture::from(beside.map(|call| self.send_call(call)));
        let (answer, beside) = future::join(self.send_call(call), beside).await;
        Ok((answer?, beside.and_then(RedisResult::ok)))
    }

    /// Whether every server answers, and takes what is written: in one round trip, since a server
    /// that is far away serves as well.
    pub(super) async fn probe_server(&self, written: &RedisCall) -> RedisResult<()> {
        let ping = redis::cmd("PING");
        let (answer, taken) = future::join(self.send_command(&ping), self.send_call(written)).await;
        answer?;
        match taken {
            // What is full still finds.
            Err(error) if !matches!(error_code(&error), "OOM" | "MISCONF") => Err(error),
            _ => Ok(()),
        }
    }

    async fn send_command(&self, asked: &Cmd) -> RedisResult<Value> {
        let answer = match self {
            Self::Single(server) => server.clone().send_packed_command(asked).await,
            Self::Cluster(cluster) => cluster.clone().req_packed_command(asked).await,
        };
        answer?.extract_error()
    }
}

/// What a server calls its error.
pub(super) fn error_code(error: &RedisError) -> &str {
    error.code().unwrap_or_default()
}
