//! The one place that spawns: every task is known, so that a drain can wait for all of them.

use hyper::rt::Executor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Spawns tasks, waits for them, and ends those that do not end.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    end: CancellationToken,
}

impl Tasks {
    /// Runs a task until it is done, or until [`Tasks::end`].
    pub fn spawn(&self, task: impl Future<Output: Send> + Send + 'static) {
        let end = self.end.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                _ = task => {}
            }
        });
    }

    /// Comes back when all tasks are done.
    pub async fn wait_for_all(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Drops every task that still runs, at its next point of waiting.
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
