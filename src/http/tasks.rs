//! The only place that spawns tasks, so that a drain can wait for all of them; and what keeps long work from holding them up.

use std::{num::NonZero, sync::LazyLock, thread::available_parallelism};

use hyper::rt::Executor;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What is smaller takes less than 2 ms to be read, and less than that to be planned (`cargo bench --bench hot`), also where
/// it is all small messages. The other tasks of a worker would wait for that; to move them to another thread takes some 20 µs.
const LARGE_BODY: usize = 256 << 10;

/// What is smaller takes less than 20 ms. Where as many works as there are cores have left their workers, it stays on its own:
/// each thread that does such work keeps some megabytes of memory for a while.
const HUGE_BODY: usize = 4 << 20;

/// One permit for each work on a large body that has left its worker; a huge one needs none.
static HANDOVERS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, NonZero::get)));

/// Runs `work` on a body of so many bytes, or as much work by another measure
/// ([`Conversation::work_bytes`](crate::conversation::Conversation::work_bytes)). Where that takes long, the other tasks of this
/// worker go on elsewhere.
pub fn run_beside_tasks<T>(body_bytes: usize, work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if body_bytes < LARGE_BODY || !flavor.is_ok_and(|it| it == RuntimeFlavor::MultiThread) {
        return work();
    }
    match HANDOVERS.try_acquire() {
        Err(_) if body_bytes < HUGE_BODY => work(),
        _permit => tokio::task::block_in_place(work),
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

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use bytes::Bytes;

    use super::*;
    use crate::conversation::Format;

    /// Whether another task of the only worker runs while this much work is done; it waits so many seconds for that.
    fn lets_others_run(work: usize, bound_s: u64) -> bool {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).build().unwrap();
        let (tasks, (done, is_done)) = (Tasks::default(), mpsc::channel());
        let (other, others) = mpsc::channel();
        let inner = tasks.clone();
        runtime.block_on(async {
            tasks.spawn(async move {
                inner.spawn(async move {
                    let _ = other.send(());
                });
                let bound = Duration::from_secs(bound_s);
                let ran = run_beside_tasks(work, || others.recv_timeout(bound).is_ok());
                let _ = done.send(ran);
            });
            tasks.wait_for_all().await;
        });
        is_done.recv().unwrap()
    }

    #[test]
    fn long_work_lets_other_tasks_run() {
        assert!(lets_others_run(HUGE_BODY, 60));
        assert!(!lets_others_run(1_000, 1));
    }

    #[tokio::test]
    async fn where_much_is_done_at_once_only_the_longest_work_takes_more_threads() {
        let cores = available_parallelism().map_or(1, NonZero::get);
        let all = HANDOVERS.acquire_many(cores as u32).await.unwrap();
        let run = |work, bound_s| std::thread::spawn(move || lets_others_run(work, bound_s)).join();
        assert!(!run(LARGE_BODY, 1).unwrap());
        assert!(run(HUGE_BODY, 60).unwrap());
        drop(all);
    }

    #[test]
    fn many_small_messages_are_long_work() {
        let message = r#"{"role":"user","content":"a"}"#;
        let body = format!(r#"{{"messages":[{}]}}"#, [message; 4_000].join(","));
        assert!(body.len() < LARGE_BODY);
        let found = Format::Chat.index_body(Bytes::from(body)).unwrap();
        assert!(found.work_bytes() >= LARGE_BODY);
    }
}
