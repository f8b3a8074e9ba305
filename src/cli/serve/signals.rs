//! The signals that a running proxy is told something by.

use std::io;

use tokio_util::sync::CancellationToken;

pub(super) struct Signals {
    pub(super) stop: Stop,
    pub(super) reload: Reload,
}

#[cfg(unix)]
mod unix {
    use tokio::signal::unix::{Signal, SignalKind, signal};

    use super::{CancellationToken, Signals, io};

    /// Those that ask us to end.
    pub(crate) struct Stop {
        interrupt: Signal,
        terminate: Signal,
    }

    /// The one that asks us to read the settings again.
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
        /// Tells `told` of the first signal, and comes back at the second: whoever asks again does
        /// not want to wait for running answers.
        pub(crate) async fn asked_twice(mut self, told: &CancellationToken) {
            let signal = self.next().await;
            tracing::info!(signal, "stopping; running answers may end");
            told.cancel();
            let signal = self.next().await;
            tracing::warn!(signal, "told again to stop; running answers are cut off");
        }

        async fn next(&mut self) -> &'static str {
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
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(not(unix))]
mod other {
    use super::{CancellationToken, Signals, io};

    pub(crate) struct Stop;

    pub(crate) struct Reload;

    impl Signals {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self {
                stop: Stop,
                reload: Reload,
            })
        }
    }

    impl Stop {
        pub(crate) async fn asked_twice(self, told: &CancellationToken) {
            // Without a handler there is no way to be asked, so we go on.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            tracing::info!("stopping; running answers may end");
            told.cancel();
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            tracing::warn!("told again to stop; running answers are cut off");
        }
    }

    impl Reload {
        /// There is no such signal here; settings are read again when their file changes.
        pub(crate) async fn asked(&mut self) {
            std::future::pending().await
        }
    }
}

#[cfg(not(unix))]
pub(super) use other::{Reload, Stop};
#[cfg(unix)]
pub(super) use unix::{Reload, Stop};
