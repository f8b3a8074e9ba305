//! The only place that spawns tasks, so that a drain can wait for all of them; and what keeps long work from holding them up.

use hyper::rt::Executor;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Bodies from this size on take milliseconds to be read and planned (`cargo bench --bench hot`). The other tasks of a worker
/// would wait for that; to move them to another thread takes some 20 µs.
const LARGE_BODY: usize = 1 << 20;

/// Runs `work` on a body of so many bytes. Where that takes long, the other tasks of this worker go on elsewhere.
pub fn run_beside_tasks<T>(body_bytes: usize, work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    match body_bytes >= LARGE_BODY && flavor.is_ok_and(|it| it == RuntimeFlavor::MultiThread) {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

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
