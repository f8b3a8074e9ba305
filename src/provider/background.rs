//! Work that no request waits for: it begins with the proxy, and ends with it.

use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::{runtime::Handle, task::JoinSet};

/// Tasks that are dropped together with this. Before [`Background::start`] none is taken, so that a
/// command that only looks at the settings asks nobody.
#[derive(Debug, Default)]
pub(super) struct BackgroundTasks {
    runtime: OnceLock<Handle>,
    tasks: Mutex<JoinSet<()>>,
    /// The one that goes on for ever.
    standing: Mutex<JoinSet<()>>,
}

impl BackgroundTasks {
    /// Takes work from now on; called from within the runtime that does it. Whether this was the
    /// first call.
    pub(super) fn start(&self) -> bool {
        self.runtime.set(Handle::current()).is_ok()
    }

    /// Whether work is taken.
    pub(super) fn is_started(&self) -> bool {
        self.runtime.get().is_some()
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(runtime) = self.runtime.get() else {
            return;
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, runtime);
    }

    /// Ends the task that goes on for ever, and begins another one in its place, if any.
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
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }
}
