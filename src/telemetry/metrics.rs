//! What is counted of all requests, for Prometheus.
//!
//! Labels are names that somebody spelt out (settings, a provider's own list, the catalogue) and
//! words of our own, never anything of a request: so the number of series is bounded, and no key,
//! no session and no prompt can be among them. What is counted once a request goes through handles
//! that were looked up before; nothing is counted once a chunk.

mod counted;
mod gen_ai;
mod guard;
mod make;
mod process;
mod providers;
mod requests;
mod store;
mod summaries;

use std::fmt;

use prometheus::{Registry, TextEncoder};

pub use self::{
    counted::{Attempts, Counted},
    gen_ai::Series,
    guard::Done,
    process::SpanCounts,
    requests::{Ended, InFlight},
    store::{StoreCounts, StoreOperation},
    summaries::Summaries,
};
use self::{
    gen_ai::GenAi, guard::Guard, make::Make, process::Process, providers::Providers,
    requests::Requests,
};

/// All metrics.
pub struct Metrics {
    registry: Registry,
    requests: Requests,
    gen_ai: GenAi,
    guard: Guard,
    providers: Providers,
    store: StoreCounts,
    summaries: Summaries,
    process: Process,
}

/// What is known only when somebody asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    pub bytes_in_flight: usize,
}

impl Metrics {
    /// For whoever asks the store.
    pub fn store(&self) -> StoreCounts {
        self.store.clone()
    }

    /// All of it in the text format 0.0.4. `breakers` are all providers with what their breakers
    /// are at: 0 closed, 1 half open, 2 open.
    pub fn text<'a>(&self, breakers: impl Iterator<Item = (&'a str, i64)>, now: Now) -> String {
        for (provider, state) in breakers {
            self.providers.show(provider, state);
        }
        let bytes = i64::try_from(now.bytes_in_flight).unwrap_or(i64::MAX);
        self.process.bytes_in_flight.set(bytes);
        let families = self.registry.gather();
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_else(|error| {
                // Memory takes every write, so there is nothing that could fail.
                tracing::error!(%error, "the metrics could not be written");
                String::new()
            })
    }

    fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let make = Make(&registry);
        Ok(Self {
            requests: Requests::new(&make)?,
            gen_ai: GenAi::new(&make)?,
            guard: Guard::new(&make)?,
            providers: Providers::new(&make)?,
            store: StoreCounts::new(&make)?,
            summaries: Summaries::new(&make)?,
            process: Process::new(&make)?,
            registry,
        })
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new().expect("all names are valid and different, and the same in every run")
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
