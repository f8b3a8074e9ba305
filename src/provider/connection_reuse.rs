//! Knows for certain that a request died on a connection that had brought an answer before.
//!
//! Some servers announce keep-alive and close all the same, so that a request dies on a pooled
//! connection before the first byte of its answer. Sending it again is right only then: on a
//! connection of its own the server may have read it, and may be at work on it.
//!
//! The client says of an answer and of a failure between which two addresses it was. So it is
//! noted which connections brought an answer, and a new one between the same two addresses begins
//! without. What a request itself made of the connector would tell less: with many at a time one
//! request opens the connection that another is sent on.
//!
//! A connection goes back to the pool in the very step in which its answer is given out, and
//! another request may die on it before that step is over. So a step ends with the note, and a
//! failure is judged only after every step that had begun.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    num::NonZeroUsize,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    task::Poll,
};

use http::Extensions;
use hyper_util::client::legacy::{
    self,
    connect::{Connected, Connection, HttpInfo},
};
use lru::LruCache;

/// Connections remembered. One that is forgotten is taken for new, and its failure is told.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(8_192).expect("it is not zero");

/// The connections that brought an answer.
#[derive(Clone, Debug)]
pub(super) struct AnsweredConnections {
    connections: Arc<Mutex<LruCache<ConnectionEnds, ()>>>,
    /// Read while a request makes a step, written to wait for all of them.
    steps: Arc<RwLock<()>>,
}

/// A connection, by the addresses of its two ends: ours, then the provider's.
type ConnectionEnds = (SocketAddr, SocketAddr);

impl AnsweredConnections {
    pub(super) fn new() -> Self {
        Self {
            connections: Arc::new(Mutex::new(LruCache::new(MAX_CONNECTIONS))),
            steps: Arc::default(),
        }
    }

    /// Runs a request, and notes the connection of its answer.
    pub(super) async fn run_request(
        &self,
        request: impl Future<Output = reqwest::Result<reqwest::Response>>,
    ) -> reqwest::Result<reqwest::Response> {
        let mut request = pin!(request);
        poll_fn(|cx| {
            let _step = self.steps.read();
            let polled = request.as_mut().poll(cx);
            if let Poll::Ready(Ok(answer)) = &polled
                && let Some(ends) = read_ends(answer.extensions())
            {
                self.lock_connections().put(ends, ());
            }
            polled
        })
        .await
    }

    /// Whether the request of this failure was sent on a connection that had brought an answer.
    /// Not to be asked from within a step.
    pub(super) fn is_reused_connection(&self, failure: &legacy::Error) -> bool {
        drop(self.steps.write());
        let ends = failure.connect_info().and_then(connection_ends);
        ends.is_some_and(|ends| self.lock_connections().contains(&ends))
    }

    /// Notes what the connector of a client has opened: a new connection, which has brought no answer yet.
    pub(super) fn note_opened<C: Connection>(&self) -> impl FnOnce(C) -> C + Clone + use<C> {
        let answered = self.clone();
        move |connection| {
            if let Some(ends) = connection_ends(&connection.connected()) {
                answered.lock_connections().pop(&ends);
            }
            connection
        }
    }

    fn lock_connections(&self) -> MutexGuard<'_, LruCache<ConnectionEnds, ()>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
