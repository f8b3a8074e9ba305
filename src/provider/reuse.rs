//! Knows for certain that a request went over a connection that was pooled.
//!
//! Some servers announce keep-alive and close all the same, so that a request dies on a pooled
//! connection before the first byte of its answer. Sending it again is right only then. The pool
//! does not say which connection a failed request had, but it asks the connector for a new one
//! from within the request's own future: a layer around the connector marks that, in a value that
//! is local to the task.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use tower::{Layer, Service};

tokio::task_local! {
    static CONNECTS: Arc<Connects>;
}

/// What one request made of the connector.
#[derive(Debug, Default)]
pub(super) struct Connects {
    begun: AtomicBool,
    done: AtomicBool,
}

impl Connects {
    /// Whether the request cannot have had a connection of its own: it began none, or the one it
    /// began was not ready yet when the request failed on another.
    pub(super) fn surely_reused(&self) -> bool {
        !(self.begun.load(SeqCst) && self.done.load(SeqCst))
    }

    /// Runs a request whose connects are marked in `self`.
    pub(super) async fn watch<F: Future>(self: &Arc<Self>, request: F) -> F::Output {
        CONNECTS.scope(Arc::clone(self), request).await
    }
}

/// Marks connects.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkConnects;

impl<S> Layer<S> for MarkConnects {
    type Service = Marked<S>;

    fn layer(&self, connector: S) -> Marked<S> {
        Marked { connector }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Marked<S> {
    connector: S,
}

impl<S, T> Service<T> for Marked<S>
where
    S: Service<T>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, target: T) -> Self::Future {
        let connects = CONNECTS.try_with(Arc::clone).ok();
        if let Some(connects) = &connects {
            connects.begun.store(true, SeqCst);
        }
        let connecting = self.connector.call(target);
        Box::pin(async move {
            let connected = connecting.await;
            if let Some(connects) = connects {
                connects.done.store(true, SeqCst);
            }
            connected
        })
    }
}
