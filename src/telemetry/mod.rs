//! The log with one line per request, metrics and traces. None of them holds bodies, prompts, keys or full URLs.

mod log_writer;
pub mod metrics;
mod notes;
mod operation;
pub mod recent_latencies;
pub mod record;
#[cfg(feature = "otlp")]
pub mod trace;
#[cfg(not(feature = "otlp"))]
#[path = "no_trace.rs"]
pub mod trace;

use std::{
    io::{self, IsTerminal},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    filter::{Targets, filter_fn},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use self::log_writer::{FLUSH_EVERY, start_writer};
pub use self::{log_writer::LogGuard, operation::Operation};

/// Environment variables with a log filter; the first one that is set counts.
const VARIABLES: [&str; 2] = ["PLIMSOLL_LOG", "RUST_LOG"];

/// Whether the log goes to a terminal, so that people read it as it comes.
static IS_ON_TERMINAL: AtomicBool = AtomicBool::new(false);

/// Starts the log on standard error: plain text on a terminal, with a short line for each
/// request, JSON lines otherwise.
///
/// A thread writes the lines, so that a stalled reader blocks no request; lines beyond 16 MiB that wait are lost then.
/// Dropping the guard writes the waiting lines, within about a second.
///
/// A second call changes nothing. An invalid filter is reported and replaced by `info`.
///
/// # Errors
/// There is no thread for it.
pub fn start_logging() -> io::Result<LogGuard> {
    let (writer, guard) = start_writer(io::stderr(), FLUSH_EVERY)?;
    let wanted = VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    let filter = wanted.map(|wanted| wanted.parse::<Targets>()).transpose();
    let info = || Targets::new().with_default(Level::INFO);
    let (filter, error) = match filter {
        Ok(filter) => (filter.unwrap_or_else(info), None),
        Err(error) => (info(), Some(error)),
    };
    let registry = tracing_subscriber::registry()
        .with(filter)
        .with(filter_fn(may_be_logged));
    let started = if io::stderr().is_terminal() {
        IS_ON_TERMINAL.store(true, Relaxed);
        let plain = fmt::layer().with_target(false).with_writer(writer);
        registry.with(plain).try_init()
    } else {
        let json = fmt::layer().json().flatten_event(true).with_writer(writer);
        registry.with(json).try_init()
    };
    if let (Ok(()), Some(error)) = (started, error) {
        tracing::warn!(%error, "invalid log filter; logging at info");
    }
    Ok(guard)
}

/// SECURITY: libraries log headers and bytes, and so keys and prompts, below the level of warnings. Only their
/// warnings and errors are logged, whatever the filter. Those of the trace exporter come with every batch, so
/// `trace/export.rs` reports a failure once instead.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let proxy = target == "plimsoll" || target.starts_with("plimsoll::");
    !target.starts_with("opentelemetry") && (proxy || *metadata.level() <= Level::WARN)
}
