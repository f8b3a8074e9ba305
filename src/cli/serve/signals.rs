//! The signals that a running proxy is told something by.

use std::{future::pending, io};

use tokio_util::sync::CancellationToken;

pub(super) struct Signals {
    pub(super) stop: Stop,
    pub(super) reload: Reload,
}

impl Stop {
    /// Cancels `stopping` at the first signal, and comes back at the second: whoever asks again does not
    /// want to wait for running answers.
    pub(crate) async fn asked_twice(mut self, stopping: &CancellationToken) {
        let signal = self.next().await;
        tracing::info!(signal, "stopping; running answers may end");
        stopping.cancel();
        let signal = self.next().await;
        tracing::warn!(signal, "told again to stop; running answers are cut off");
    }
}

#[cfg(unix)]
mod platform {
    use tokio::signal::unix::{Signal, SignalKind, signal};

    use super::{Signals, io, pending};

    /// Those that ask the process to end.
    pub(crate) struct Stop {
        interrupt: Signal,
        terminate: Signal,
    }

    /// The one that asks to read the settings again.
    pub(crate) struct Reload(Signal);

    impl Signals {
        /// From now on none of them ends the process.
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self {
                stop: Stop {
                    interrupt: signal(SignalKind::interrupt())?,
                    terminate: signal(SignalKind::terminate())?,
                },
                reload: Reload(signal(SignalKind::hangup())?),
            })
        }
    }

    impl Stop {
        pub(super) async fn next(&mut self) -> &'static str {
            tokio::select! {
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.terminate.recv() => "SIGTERM",
            }
        }
    }

    impl Reload {
        /// Waits for the next one. Several that came at once are one.
        pub(crate) async fn asked(&mut self) {
            if self.0.recv().await.is_none() {
                pending::<()>().await;
            }
        }
    }
}

#[cfg(not(unix))]
mod platform {
    use super::{Signals, io, pending};

    pub(crate) struct Stop;

    /// There is no such signal here; settings are read again when their file changes.
    pub(crate) struct Reload;

    impl Signals {
        pub(crate) fn new() -> io::Result<Self> {
            let (stop, reload) = (Stop, Reload);
            Ok(Self { stop, reload })
        }
    }

    impl Stop {
        pub(super) async fn next(&mut self) -> &'static str {
            match tokio::signal::ctrl_c().await {
                Ok(()) => "Ctrl-C",
                // Without a handler there is no way to be asked, so the proxy goes on.
                Err(_) => pending().await,
            }
        }
    }

    impl Reload {
        pub(crate) async fn asked(&mut self) {
            pending().await
        }
    }
}

pub(super) use platform::{Reload, Stop};
