//! The signals that a running proxy is told something by.

use std::io;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio_util::sync::CancellationToken;

/// Each by its name, as often as it comes. From the moment that they are made, none ends the process.
pub(super) struct Signals {
    /// Those that ask the process to end.
    pub(super) stop: BoxStream<'static, &'static str>,
    /// The one that asks to read the settings again. Several that came at once are one.
    pub(super) reload: BoxStream<'static, &'static str>,
}

impl Signals {
    #[cfg(unix)]
    pub(super) fn new() -> io::Result<Self> {
        use std::task::Context;

        use tokio::signal::unix::{SignalKind, signal};

        let named = |name: &'static str, kind| {
            let mut signal = signal(kind)?;
            let told = move |context: &mut Context<'_>| {
                signal.poll_recv(context).map(|it| it.map(|()| name))
            };
            io::Result::Ok(stream::poll_fn(told))
        };
        let interrupt = named("SIGINT", SignalKind::interrupt())?;
        let terminate = named("SIGTERM", SignalKind::terminate())?;
        Ok(Self {
            stop: stream::select(interrupt, terminate).boxed(),
            reload: named("SIGHUP", SignalKind::hangup())?.boxed(),
        })
    }

    /// No signal asks for a reload here: settings are read again when their file changes.
    #[cfg(not(unix))]
    pub(super) fn new() -> io::Result<Self> {
        let stop = stream::repeat(()).then(|()| async {
            match tokio::signal::ctrl_c().await {
                Ok(()) => "Ctrl-C",
                // Without a handler there is no way to be asked, so the proxy goes on.
                Err(_) => std::future::pending().await,
            }
        });
        Ok(Self {
            stop: stop.boxed(),
            reload: stream::pending().boxed(),
        })
    }
}

/// Cancels `stopping` at the first signal, and comes back at the second: whoever asks again does not
/// want to wait for running answers.
pub(super) async fn wait_to_be_asked_twice(
    mut stop: BoxStream<'static, &'static str>,
    stopping: &CancellationToken,
) {
    let signal = stop.next().await;
    tracing::info!(signal, "stopping; running answers may end");
    stopping.cancel();
    let signal = stop.next().await;
    tracing::warn!(signal, "told again to stop; running answers are cut off");
}
