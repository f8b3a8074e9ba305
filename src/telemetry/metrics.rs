//! What is counted of all requests, for Prometheus.
//!
//! Labels are names that somebody spelt out (settings, a provider's own list, the catalogue) and fixed
//! words, never anything of a request: so the number of series is bounded, and no key, no session and
//! no prompt can be among them. Nothing is counted once a chunk.

mod table;

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus::{IntCounterVec, TextEncoder};

pub use self::table::Metrics;
use super::Operation;

/// Models that have series of their own, for each kind of operation.
const MAX_MODELS: usize = 256;
/// What stands for a model that nobody spelt out.
const OTHER_MODEL: &str = "other";

/// What may become of a request that went to a provider.
pub const ATTEMPT_OUTCOMES: [&str; 5] = ["answer", "busy", "failed", "denied", "unsent"];
const OVERFLOW_RESULTS: [&str; 2] = ["healed", "unhealed"];

/// What a store may be asked for.
#[derive(Clone, Copy, Debug)]
pub enum StoreOperation {
    Find,
    Save,
    Order,
    Session,
    Share,
}

const STORE_OPERATIONS: [&str; 5] = ["find", "save", "order", "session", "share"];

/// Operation, provider and model that a request is counted under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelLabels(pub Arc<[Box<str>; 3]>);

/// A request that is not answered to its end yet.
#[derive(Debug)]
pub struct InFlightRequest(pub(super) Arc<Metrics>);

impl Metrics {
    /// All of it in the text format 0.0.4. `breakers` are all providers with what their breakers
    /// are at: 0 closed, 1 half open, 2 open.
    pub fn render_text<'a>(
        &self,
        breakers: impl Iterator<Item = (&'a str, i64)>,
        bytes_in_flight: usize,
    ) -> String {
        for (provider, state) in breakers {
            self.breaker_state.with_label_values(&[provider]).set(state);
            // What never happened is shown as zero, so that a rate over the first time is right.
            for outcome in ATTEMPT_OUTCOMES {
                self.attempts.with_label_values(&[provider, outcome]);
            }
            for result in OVERFLOW_RESULTS {
                self.overflows.with_label_values(&[provider, result]);
            }
            for counters in [&self.retries, &self.fallbacks, &self.silent_truncations] {
                counters.with_label_values(&[provider]);
            }
        }
        let bytes = i64::try_from(bytes_in_flight).unwrap_or(i64::MAX);
        self.bytes_in_flight.set(bytes);
        let text = TextEncoder::new().encode_to_string(&self.registry.gather());
        text.unwrap_or_else(|error| {
            // Memory takes every write, so there is nothing that could fail.
            tracing::error!(%error, "the metrics could not be written");
            String::new()
        })
    }

    /// Counts a request as being in flight until what comes back is dropped.
    pub fn begin_request(self: &Arc<Self>) -> InFlightRequest {
        self.requests_in_flight.inc();
        InFlightRequest(Arc::clone(self))
    }

    /// A request went to a provider; `outcome` is one of [`ATTEMPT_OUTCOMES`].
    pub fn count_attempt(&self, provider: &str, outcome: &'static str) {
        self.attempts.with_label_values(&[provider, outcome]).inc();
    }

    /// The store answered, was given up, or failed, after so long.
    pub fn record_store_call(&self, operation: StoreOperation, took: Duration, failed: bool) {
        let operation = [STORE_OPERATIONS[operation as usize]];
        let seconds = self.store_duration.with_label_values(&operation);
        seconds.observe(took.as_secs_f64());
        let errors = self.store_errors.with_label_values(&operation);
        errors.inc_by(u64::from(failed));
    }

    /// A provider is no more: its breaker is shown no longer. What was counted of it stays.
    pub fn forget_provider(&self, provider: &str) {
        // It is not there where nobody has asked for the metrics.
        let _ = self.breaker_state.remove_label_values(&[provider]);
    }

    /// What a model of a provider is counted under. Clients can name any model, so a name becomes a
    /// label only where `is_spelt_out` says that it is more than a client's own words, and of those at
    /// most `MAX_MODELS`. That is asked where the model is new here.
    pub fn label_model(
        &self,
        operation: Operation,
        provider: &str,
        model: &str,
        is_spelt_out: impl FnOnce() -> bool,
    ) -> ModelLabels {
        let labels = |model: &str| {
            ModelLabels(Arc::new(
                [operation.as_str(), provider, model].map(Box::from),
            ))
        };
        let found = labels(model);
        if let Some(known) = self
            .models
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&found)
        {
            return known.clone();
        }
        if !is_spelt_out() {
            return labels(OTHER_MODEL);
        }
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        let of_operation = models.iter().filter(|known| known.0[0] == found.0[0]);
        if of_operation.count() >= MAX_MODELS {
            return labels(OTHER_MODEL);
        }
        models.insert(found.clone());
        found
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics =
            Self::register().expect("all names are valid and different, and the same in every run");
        let version = env!("CARGO_PKG_VERSION");
        metrics.build_info.with_label_values(&[version]).set(1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        metrics.start_time.set(now_s);
        // What never happened is shown as zero.
        metrics.requests.with_label_values(&["done", "2xx"]);
        for operation in STORE_OPERATIONS {
            metrics.store_duration.with_label_values(&[operation]);
        }
        let words: [(&IntCounterVec, &[&str]); 7] = [
            (
                &metrics.answers,
                &["healthy", "caution", "critical", "unknown"],
            ),
            (&metrics.injections, &["caution", "critical"]),
            (&metrics.store_errors, &STORE_OPERATIONS),
            (
                &metrics.summaries,
                &[
                    "made",
                    "rejected",
                    "failed",
                    "timed_out",
                    "stopped",
                    "skipped",
                ],
            ),
            (&metrics.summary_tokens, &["prompt", "completion"]),
            (&metrics.config_reloads, &["ok", "refused"]),
            (&metrics.spans, &["made", "exported", "failed"]),
        ];
        for (counters, words) in words {
            for word in words {
                counters.with_label_values(&[word]);
            }
        }
        metrics
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.requests_in_flight.dec();
    }
}

#[cfg(test)]
mod tests;
