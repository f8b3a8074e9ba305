//! The signals that stop a running proxy or reload its settings.

use std::io;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio_util::sync::CancellationToken;

/// Streams of the names of received signals. Once this is created, no such signal ends the process by itself.
pub(super) struct Signals {
    pub(super) stop: BoxStream<'static, &'static str>,
    /// Several signals at once may count as one.
    pub(super) reload: BoxStream<'static, &'static str>,
}

impl Signals {
    #[cfg(unix)]
    pub(super) fn new() -> io::Result<Self> {
        use std::task::Context;

        use tokio::signal::unix::{SignalKind, signal};

        let named = |name: &'static str, kind| {
            let mut signal = signal(kind)?;
            let poll = move |context: &mut Context<'_>| {
                let received = signal.poll_recv(context);
                received.map(|received| received.map(|()| name))
            };
            io::Result::Ok(stream::poll_fn(poll))
        };
        let interrupt = named("SIGINT", SignalKind::interrupt())?;
        let terminate = named("SIGTERM", SignalKind::terminate())?;
        Ok(Self {
            stop: stream::select(interrupt, terminate).boxed(),
            reload: named("SIGHUP", SignalKind::hangup())?.boxed(),
        })
    }

    /// No signal reloads the settings here; a change of their file does.
    #[cfg(not(unix))]
    pub(super) fn new() -> io::Result<Self> {
        let stop = stream::repeat(()).then(|()| async {
            match tokio::signal::ctrl_c().await {
                Ok(()) => "Ctrl-C",
                // Without a handler no signal arrives, and the proxy continues.
                Err(_) => std::future::pending().await,
            }
        });
        Ok(Self {
            stop: stop.boxed(),
            reload: stream::pending().boxed(),
        })
    }
}

/// Cancels `stopping` at the first signal, and returns at the second, after which running answers are cut off.
pub(super) async fn wait_for_second_stop(
    mut stop: BoxStream<'static, &'static str>,
    stopping: &CancellationToken,
) {
    let signal = stop.next().await;
    tracing::info!(signal, "stopping: waiting for running answers");
    stopping.cancel();
    let signal = stop.next().await;
    tracing::warn!(signal, "second stop signal: running answers are cut off");
}
