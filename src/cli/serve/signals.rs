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
    /// SIGHUP says that the terminal of the start is gone, and stops; or else it reloads. Where it was ignored at the
    /// start, as by `nohup`, it stays ignored.
    #[cfg(unix)]
    pub(super) fn new() -> io::Result<Self> {
        use std::{future::ready, task::Context};

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
        let stop = stream::select(interrupt, terminate);
        if is_hangup_ignored() {
            return Ok(Self {
                stop: stop.boxed(),
                reload: stream::pending().boxed(),
            });
        }
        let had_terminal = has_terminal();
        let lost_terminal = move || had_terminal && !has_terminal();
        let hangup = || named(HANGUP, SignalKind::hangup());
        let stops = hangup()?.filter(move |_| ready(lost_terminal()));
        Ok(Self {
            stop: stream::select(stop, stops).boxed(),
            reload: hangup()?.filter(move |_| ready(!lost_terminal())).boxed(),
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

const HANGUP: &str = "SIGHUP";

/// Whether there is a terminal that could hang up. Only Linux tells whether the signal was ignored at the start, so that
/// elsewhere it never stops the proxy.
#[cfg(unix)]
fn has_terminal() -> bool {
    cfg!(target_os = "linux") && std::fs::File::open("/dev/tty").is_ok()
}

#[cfg(unix)]
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut ignored = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored
        .next()
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is the first signal.
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Cancels `stopping` at the first signal, and returns at the second, after which running answers are cut off. A terminal
/// that closes sends SIGHUP more than once, which is no second one.
pub(super) async fn wait_for_second_stop(
    mut stop: BoxStream<'static, &'static str>,
    stopping: &CancellationToken,
) {
    let signal = stop.next().await;
    tracing::info!(signal, "stopping: waiting for running answers");
    stopping.cancel();
    let mut again = stop.filter(|signal| std::future::ready(*signal != HANGUP));
    let signal = again.next().await;
    tracing::warn!(signal, "second stop signal: running answers are cut off");
}
