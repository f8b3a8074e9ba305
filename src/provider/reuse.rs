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
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    task::{Context, Poll},
};

use http::Extensions;
use hyper_util::client::legacy::{
    self,
    connect::{Connection, HttpInfo},
};
use lru::LruCache;
use tower::{Layer, Service};

/// Connections remembered. One that is forgotten is taken for new, and its failure is told.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(8_192).expect("it is not zero");

/// The connections that brought an answer. Wraps a connector, to see new ones.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    connections: Arc<Mutex<LruCache<Ends, ()>>>,
    /// Read while a request makes a step, written to wait for all of them.
    steps: Arc<RwLock<()>>,
}

/// A connection, by the addresses of its two ends: ours, then the provider's.
type Ends = (SocketAddr, SocketAddr);

impl Answered {
    pub(super) fn new() -> Self {
        Self {
            connections: Arc::new(Mutex::new(LruCache::new(MAX_CONNECTIONS))),
            steps: Arc::default(),
        }
    }

    /// Runs a request, and notes the connection of its answer.
    pub(super) async fn watch(
        &self,
        request: impl Future<Output = reqwest::Result<reqwest::Response>>,
    ) -> reqwest::Result<reqwest::Response> {
        let mut request = pin!(request);
        poll_fn(|cx| {
            let _step = self.steps.read();
            let polled = request.as_mut().poll(cx);
            if let Poll::Ready(Ok(answer)) = &polled
                && let Some(ends) = ends(answer.extensions())
            {
                self.lock().put(ends, ());
            }
            polled
        })
        .await
    }

    /// Whether the request of this failure was sent on a connection that had brought an answer.
    /// Not to be asked from within a step.
    pub(super) fn before(&self, failure: &legacy::Error) -> bool {
        drop(self.steps.write());
        let ends = failure.connect_info().and_then(|connection| {
            let mut extensions = Extensions::new();
            connection.get_extras(&mut extensions);
            ends(&extensions)
        });
        ends.is_some_and(|ends| self.lock().contains(&ends))
    }

    fn opened(&self, connection: &impl Connection) {
        let mut extensions = Extensions::new();
        connection.connected().get_extras(&mut extensions);
        if let Some(ends) = ends(&extensions) {
            self.lock().pop(&ends);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Ends, ()>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn ends(extensions: &Extensions) -> Option<Ends> {
    let info = extensions.get::<HttpInfo>()?;
    Some((info.local_addr(), info.remote_addr()))
}

impl<S> Layer<S> for Answered {
    type Service = Opens<S>;

    fn layer(&self, connector: S) -> Opens<S> {
        Opens {
            connector,
            answered: self.clone(),
        }
    }
}

/// A connector whose new connections are seen.
#[derive(Clone, Debug)]
pub(super) struct Opens<S> {
    connector: S,
    answered: Answered,
}

impl<S, T> Service<T> for Opens<S>
where
    S: Service<T>,
    S::Response: Connection,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, target: T) -> Self::Future {
        let answered = self.answered.clone();
        let connecting = self.connector.call(target);
        Box::pin(async move {
            let connection = connecting.await?;
            answered.opened(&connection);
            Ok(connection)
        })
    }
}
