//! Background tasks that no request waits for.

use std::sync::OnceLock;

use parking_lot::Mutex;

use tokio::{runtime::Handle, task::JoinSet};

/// Tasks that are aborted when this is dropped. Before [`BackgroundTasks::start`] it runs none, so that
/// a command that only reads the settings sends no requests.
#[derive(Debug, Default)]
pub(super) struct BackgroundTasks {
    runtime: OnceLock<Handle>,
    tasks: Mutex<JoinSet<()>>,
    /// The task that never ends.
    standing: Mutex<JoinSet<()>>,
}

impl BackgroundTasks {
    /// Called from within the runtime for the tasks. Whether this was the first call.
    pub(super) fn start(&self) -> bool {
        self.runtime.set(Handle::current()).is_ok()
    }

    pub(super) fn is_started(&self) -> bool {
        self.runtime.get().is_some()
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(runtime) = self.runtime.get() else {
            return;
        };
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, runtime);
    }

    /// Aborts the standing task, and starts another one, if any.
    pub(super) fn replace_standing_task(
        &self,
        task: Option<impl Future<Output = ()> + Send + 'static>,
    ) {
        let Some(runtime) = self.runtime.get() else {
            return;
        };
        let mut standing = JoinSet::new();
        if let Some(task) = task {
            standing.spawn_on(task, runtime);
        }
        *self.standing.lock() = standing;
    }
}
