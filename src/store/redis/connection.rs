//! An open connection. It has no timeout of its own. The server executes a sent call even if its future is dropped.

use futures_util::future::{self, OptionFuture};
use redis::{
    Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
};

use super::call::RedisCall;

/// Each sends any number of calls concurrently.
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
            reply => reply,
        }
    }

    /// Sends both in one round trip. A failure of `beside` gives `None`.
    pub(super) async fn send_both(
        &self,
        call: &RedisCall,
        beside: Option<&RedisCall>,
    ) -> RedisResult<(Value, Option<Value>)> {
        let beside = OptionFuture::from(beside.map(|call| self.send_call(call)));
        let (reply, beside) = future::join(self.send_call(call), beside).await;
        Ok((reply?, beside.and_then(RedisResult::ok)))
    }

    /// Checks in one round trip that every server answers and accepts writes.
    pub(super) async fn probe_server(&self, write: &RedisCall) -> RedisResult<()> {
        let ping = redis::cmd("PING");
        let (pong, written) = future::join(self.send_command(&ping), self.send_call(write)).await;
        pong?;
        match written {
            // A full server still serves finds.
            Err(error) if !matches!(error_code(&error), "OOM" | "MISCONF") => Err(error),
            _ => Ok(()),
        }
    }

    async fn send_command(&self, command: &Cmd) -> RedisResult<Value> {
        let reply = match self {
            Self::Single(server) => server.clone().send_packed_command(command).await,
            Self::Cluster(cluster) => cluster.clone().req_packed_command(command).await,
        };
        reply?.extract_error()
    }
}

/// The server's code of an error, or an empty text.
pub(super) fn error_code(error: &RedisError) -> &str {
    error.code().unwrap_or_default()
}
