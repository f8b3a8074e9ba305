//! Tells whether a request failed on a reused connection, one that had delivered an answer before.
//!
//! Some servers announce keep-alive and close all the same, so that a request fails on a pooled
//! connection before the first byte of its answer. Only then may it be sent again: on a fresh
//! connection the server may have read the request, and may be processing it.
//!
//! The HTTP client reports the two addresses of the connection with each answer and each failure. So
//! connections with an answer are recorded by their addresses, and a new connection between the same
//! addresses is removed. The connector alone does not tell: one request may open the connection that
//! another one uses.
//!
//! A connection returns to the pool in the same poll that returns its answer, and another request may
//! fail on it before that poll ends. So a poll ends with the record, and a failure is judged only
//! after every poll that had begun.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    num::NonZeroUsize,
    pin::pin,
    sync::{Arc, RwLock},
    task::Poll,
};

use parking_lot::Mutex;

use http::Extensions;
use hyper_util::client::legacy::{
    self,
    connect::{Connected, Connection, HttpInfo},
};
use lru::LruCache;

/// Connections remembered. A forgotten one counts as fresh, so its failure is not retried.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(8_192).expect("it is not zero");

/// The connections that delivered an answer.
#[derive(Clone, Debug)]
pub(super) struct AnsweredConnections {
    connections: Arc<Mutex<LruCache<ConnectionEnds, ()>>>,
    /// Read-locked while a request is polled, write-locked to wait for all of these polls.
    polls: Arc<RwLock<()>>,
}

/// The local and the remote address of a connection.
type ConnectionEnds = (SocketAddr, SocketAddr);

impl AnsweredConnections {
    pub(super) fn new() -> Self {
        Self {
            connections: Arc::new(Mutex::new(LruCache::new(MAX_CONNECTIONS))),
            polls: Arc::default(),
        }
    }

    /// Runs a request, and records the connection of its answer.
    pub(super) async fn run_request(
        &self,
        request: impl Future<Output = reqwest::Result<reqwest::Response>>,
    ) -> reqwest::Result<reqwest::Response> {
        let mut request = pin!(request);
        poll_fn(|cx| {
            let _poll = self.polls.read();
            let polled = request.as_mut().poll(cx);
            if let Poll::Ready(Ok(answer)) = &polled
                && let Some(ends) = read_ends(answer.extensions())
            {
                self.connections.lock().put(ends, ());
            }
            polled
        })
        .await
    }

    /// Whether the failed request was sent on a connection that had delivered an answer. Deadlocks
    /// where it is called from within [`AnsweredConnections::run_request`].
    pub(super) fn is_reused_connection(&self, failure: &legacy::Error) -> bool {
        drop(self.polls.write());
        let ends = failure.connect_info().and_then(connection_ends);
        ends.is_some_and(|ends| self.connections.lock().contains(&ends))
    }

    /// A layer of the connector: a new connection has not delivered an answer yet.
    pub(super) fn note_opened<C: Connection>(&self) -> impl FnOnce(C) -> C + Clone + use<C> {
        let answered = self.clone();
        move |connection| {
            if let Some(ends) = connection_ends(&connection.connected()) {
                answered.connections.lock().pop(&ends);
            }
            connection
        }
    }
}

fn connection_ends(connection: &Connected) -> Option<ConnectionEnds> {
    let mut extensions = Extensions::new();
    connection.get_extras(&mut extensions);
    read_ends(&extensions)
}

fn read_ends(extensions: &Extensions) -> Option<ConnectionEnds> {
    let info = extensions.get::<HttpInfo>()?;
    Some((info.local_addr(), info.remote_addr()))
}
