//! What the proxy says of itself: the log with one line per request, metrics and traces.
//!
//! Never bodies, prompts, keys or full URLs.

pub mod metrics;
mod notes;
mod operation;
pub mod recent_latencies;
pub mod record;
pub mod trace;

use std::io::{self, IsTerminal};

use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    filter::{Targets, filter_fn},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

pub use self::operation::Operation;

/// Environment variables that set what is logged; the first that is set counts.
const VARIABLES: [&str; 2] = ["PLIMSOLL_LOG", "RUST_LOG"];

/// Lines that wait to be written, each well under a kilobyte as a rule.
pub const MOST_LINES: usize = 16_384;

/// Starts the log on standard error: for people on a terminal, as JSON lines otherwise.
///
/// Lines are written by a thread of their own, so that a reader who does not read holds up no request;
/// while it does not, the lines beyond [`MOST_LINES`] are lost. What waits is written when the guard is
/// dropped, within about a second.
///
/// A second call changes nothing. A filter that cannot be read is reported, and `info` used.
pub fn start_logging() -> WorkerGuard {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MOST_LINES)
        .lossy(true)
        .thread_name("plimsoll-log")
        .finish(io::stderr());
    let wanted = VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    let info = || Targets::new().with_default(Level::INFO);
    let (filter, bad) = match wanted.as_deref().map(str::parse::<Targets>) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (info(), Some(error)),
        None => (info(), None),
    };
    let registry = tracing_subscriber::registry()
        .with(filter)
        .with(filter_fn(may_be_logged));
    let started = if io::stderr().is_terminal() {
        let people = fmt::layer().with_target(false).with_writer(writer);
        registry.with(people).try_init()
    } else {
        let json = fmt::layer().json().flatten_event(true).with_writer(writer);
        registry.with(json).try_init()
    };
    if let (Ok(()), Some(error)) = (started, bad) {
        tracing::warn!(%error, "the log filter cannot be read; logging at info");
    }
    guard
}

/// SECURITY: libraries log headers and bytes at their lower levels, and so keys and prompts. What
/// they warn of may be logged, whatever the filter says; the rest may not. What the exporter of
/// traces warns of, it warns of with every batch: that is said once, by us.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    if metadata.target().starts_with("opentelemetry") {
        return false;
    }
    let ours = metadata
        .target()
        .strip_prefix("plimsoll")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    ours || *metadata.level() <= Level::WARN
}
