//! Counters of all requests, for Prometheus.
//!
//! Labels are configured or catalogued names and fixed words, never text of a request. So the number of series is
//! bounded, and no key, session or prompt can be among them. Nothing is counted per chunk.

mod table;

use std::{sync::Arc, time::Duration};

use prometheus::{IntCounterVec, TextEncoder};

pub use self::table::Metrics;
use super::Operation;
use crate::unix_time::unix_seconds_now;

/// Models that have series of their own, for each kind of operation.
const MAX_MODELS: usize = 256;
/// The label of models that are in no settings, no provider's list and not in the catalogue, and of clients without a key of
/// the settings.
pub(super) const OTHER: &str = "other";

pub const ATTEMPT_OUTCOMES: [&str; 5] = ["answer", "busy", "failed", "denied", "unsent"];
const OVERFLOW_RESULTS: [&str; 2] = ["healed", "unhealed"];
const THINKING_RESULTS: [&str; 5] = ["dropped", "left_out", "switched_off", "filled", "unhealed"];

#[derive(Clone, Copy, Debug)]
pub enum StoreOperation {
    Find,
    Save,
    Order,
    Session,
    Share,
}

const STORE_OPERATIONS: [&str; 5] = ["find", "save", "order", "session", "share"];

/// Operation, provider and model of a request's series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelLabels(pub Arc<[Box<str>; 3]>);

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub struct InFlightRequest(pub(super) Arc<Metrics>);

impl Metrics {
    /// All metrics in the text format 0.0.4. `breakers` lists all providers with the states of their breakers:
    /// 0 closed, 1 half open, 2 open.
    pub fn render_text<'a>(
        &self,
        breakers: impl Iterator<Item = (&'a str, i64)>,
        bytes_in_flight: usize,
    ) -> String {
        for (provider, state) in breakers {
            self.breaker_state.with_label_values(&[provider]).set(state);
            // Series begin at zero, so that a rate over the first event is right.
            for outcome in ATTEMPT_OUTCOMES {
                self.attempts.with_label_values(&[provider, outcome]);
            }
            for result in OVERFLOW_RESULTS {
                self.overflows.with_label_values(&[provider, result]);
            }
            for result in THINKING_RESULTS {
                self.thinking_refusals
                    .with_label_values(&[provider, result]);
            }
            for counters in [&self.retries, &self.fallbacks, &self.silent_truncations] {
                counters.with_label_values(&[provider]);
            }
        }
        let bytes = i64::try_from(bytes_in_flight).unwrap_or(i64::MAX);
        self.bytes_in_flight.set(bytes);
        let text = TextEncoder::new().encode_to_string(&self.registry.gather());
        // A write to memory does not fail.
        text.inspect_err(|error| tracing::error!(%error, "cannot write the metrics"))
            .unwrap_or_default()
    }

    pub fn begin_request(self: &Arc<Self>) -> InFlightRequest {
        self.requests_in_flight.inc();
        InFlightRequest(Arc::clone(self))
    }

    /// `outcome` is one of [`ATTEMPT_OUTCOMES`].
    pub fn count_attempt(&self, provider: &str, outcome: &'static str) {
        self.attempts.with_label_values(&[provider, outcome]).inc();
    }

    /// `failed` includes a timeout.
    pub fn record_store_call(&self, operation: StoreOperation, took: Duration, failed: bool) {
        let operation = [STORE_OPERATIONS[operation as usize]];
        let seconds = self.store_duration.with_label_values(&operation);
        seconds.observe(took.as_secs_f64());
        let errors = self.store_errors.with_label_values(&operation);
        errors.inc_by(u64::from(failed));
    }

    /// Removes the breaker of a provider that is gone from the settings. Its counters stay.
    pub fn forget_provider(&self, provider: &str) {
        // The series is absent until the metrics are read.
        let _ = self.breaker_state.remove_label_values(&[provider]);
    }

    /// The labels of a provider's model. Clients can name any model, so a name becomes a label only if `is_known`
    /// confirms that it is not a client's invention, and only up to `MAX_MODELS` names. `is_known` is called only
    /// for a model without a series.
    pub fn label_model(
        &self,
        operation: Operation,
        provider: &str,
        model: &str,
        is_known: impl FnOnce() -> bool,
    ) -> ModelLabels {
        let labels_for = |model: &str| {
            let names = [operation.as_str(), provider, model];
            ModelLabels(Arc::new(names.map(Box::from)))
        };
        let labels = labels_for(model);
        let models = self.models.read();
        if let Some(known) = models.get(&labels) {
            return known.clone();
        }
        drop(models);
        if !is_known() {
            return labels_for(OTHER);
        }
        let mut models = self.models.write();
        let same_operation = models.iter().filter(|known| known.0[0] == labels.0[0]);
        if same_operation.count() >= MAX_MODELS {
            return labels_for(OTHER);
        }
        models.insert(labels.clone());
        labels
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self::register().expect("the table's names are valid and different");
        let version = env!("CARGO_PKG_VERSION");
        metrics.build_info.with_label_values(&[version]).set(1);
        let now_s = i64::try_from(unix_seconds_now());
        metrics.start_time.set(now_s.unwrap_or(i64::MAX));
        // Series begin at zero.
        metrics.requests.with_label_values(&["done", "2xx"]);
        for operation in STORE_OPERATIONS {
            metrics.store_duration.with_label_values(&[operation]);
        }
        let labels: [(&IntCounterVec, &str); 7] = [
            (&metrics.answers, "healthy caution critical unknown"),
            (&metrics.injections, "caution critical"),
            (&metrics.store_errors, &STORE_OPERATIONS.join(" ")),
            (
                &metrics.summaries,
                "made rejected failed timed_out stopped skipped",
            ),
            (&metrics.summary_tokens, "prompt completion"),
            (&metrics.config_reloads, "ok refused"),
            (&metrics.spans, "made exported failed"),
        ];
        for (counters, labels) in labels {
            for label in labels.split(' ') {
                counters.with_label_values(&[label]);
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
