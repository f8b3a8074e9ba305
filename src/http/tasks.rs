//! The only place that spawns tasks, so that a drain can wait for all of them.

use hyper::rt::Executor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Spawns tasks, waits for them, and cancels them.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    end: CancellationToken,
}

impl Tasks {
    /// Runs a task to its end, or until [`Tasks::cancel_all`].
    pub fn spawn(&self, task: impl Future<Output: Send> + Send + 'static) {
        let end = self.end.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                _ = task => {}
            }
        });
    }

    pub async fn wait_for_all(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Drops every task that still runs, at its next await.
    pub fn cancel_all(&self) {
        self.end.cancel();
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}
