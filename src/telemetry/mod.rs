//! What the proxy says of itself: the log with one line per request, metrics and traces.
//!
//! Never bodies, prompts, keys or full URLs.

pub mod metrics;
mod notes;
mod operation;
pub mod recent;
pub mod record;
pub mod trace;

use std::io::{self, IsTerminal};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, filter::filter_fn, fmt, layer::SubscriberExt, util::SubscriberInitExt,
};

pub use self::operation::Operation;

/// Environment variables that set what is logged; the first that is set counts.
const VARIABLES: [&str; 2] = ["PLIMSOLL_LOG", "RUST_LOG"];

/// Starts the log on standard error: for people on a terminal, as JSON lines otherwise.
///
/// A second call changes nothing. A filter that cannot be read is reported, and `info` used.
pub fn start() {
    let wanted = VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    let (filter, bad) = match wanted.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new("info"), Some(error)),
        None => (EnvFilter::new("info"), None),
    };
    let registry = tracing_subscriber::registry()
        .with(filter)
        .with(filter_fn(may_be_logged));
    let started = if io::stderr().is_terminal() {
        let people = fmt::layer().with_target(false).with_writer(io::stderr);
        registry.with(people).try_init()
    } else {
        let json = fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(io::stderr);
        registry.with(json).try_init()
    };
    if let (Ok(()), Some(error)) = (started, bad) {
        tracing::warn!(%error, "the log filter cannot be read; logging at info");
    }
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
