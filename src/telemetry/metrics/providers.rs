//! What is counted of providers.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::{Metrics, make::Make};

/// What may become of an attempt. Those that never happened are shown as zero, so that a rate over
/// the first one is right.
const OUTCOMES: [&str; 5] = ["answer", "busy", "failed", "denied", "unsent"];

/// What may become of an overflow.
const RESULTS: [&str; 2] = ["healed", "unhealed"];

/// All by the provider's name.
pub(super) struct Providers {
    pub(super) attempts: IntCounterVec,
    pub(super) retries: IntCounterVec,
    pub(super) fallbacks: IntCounterVec,
    overflows: IntCounterVec,
    truncations: IntCounterVec,
    breakers: IntGaugeVec,
}

impl Providers {
    pub(super) fn new(make: &Make<'_>) -> prometheus::Result<Self> {
        let provider = ["provider"];
        Ok(Self {
            attempts: make.counters(
                "plimsoll_provider_attempts_total",
                "Requests sent to a provider, by what became of them: an answer that is the \
                 client's, busy (429), failed (5xx), denied (our credentials), unsent (no answer).",
                &["provider", "outcome"],
            )?,
            retries: make.counters(
                "plimsoll_retries_total",
                "Requests sent once more to the provider that had failed them.",
                &provider,
            )?,
            fallbacks: make.counters(
                "plimsoll_fallbacks_total",
                "Requests that went on to another place after this provider had failed them.",
                &provider,
            )?,
            overflows: make.counters(
                "plimsoll_overflows_total",
                "Prompts that a provider found too long, by whether a smaller one was accepted.",
                &["provider", "result"],
            )?,
            truncations: make.counters(
                "plimsoll_silent_truncations_total",
                "Prompts whose beginning a provider dropped without a word.",
                &provider,
            )?,
            breakers: make.gauges(
                "plimsoll_breaker_state",
                "Whether a provider is passed over: 0 closed (it is not), 1 half-open, 2 open.",
                &provider,
            )?,
        })
    }

    /// Shows a breaker: 0 closed, 1 half open, 2 open. Begins what was not counted yet at zero.
    pub(super) fn show(&self, provider: &str, breaker: i64) {
        self.breakers.with_label_values(&[provider]).set(breaker);
        for outcome in OUTCOMES {
            self.attempts.with_label_values(&[provider, outcome]);
        }
        for result in RESULTS {
            self.overflows.with_label_values(&[provider, result]);
        }
        for counters in [&self.retries, &self.fallbacks, &self.truncations] {
            counters.with_label_values(&[provider]);
        }
    }
}

impl Metrics {
    /// A request went to a provider; `outcome` is `answer`, `busy`, `failed`, `denied` or `unsent`.
    pub fn attempt(&self, provider: &str, outcome: &'static str) {
        let attempts = &self.providers.attempts;
        attempts.with_label_values(&[provider, outcome]).inc();
    }

    /// A request was sent again to the same place after a failure.
    pub fn retry(&self, provider: &str) {
        self.providers.retries.with_label_values(&[provider]).inc();
    }

    /// A request went on to another place; `provider` is the one that is left.
    pub fn fallback(&self, provider: &str) {
        let fallbacks = &self.providers.fallbacks;
        fallbacks.with_label_values(&[provider]).inc();
    }

    /// An overflow was healed, or could not be.
    pub fn overflow(&self, provider: &str, healed: bool) {
        let labels = [provider, RESULTS[usize::from(!healed)]];
        self.providers.overflows.with_label_values(&labels).inc();
    }

    /// A provider cut a prompt in silence.
    pub fn truncated(&self, provider: &str) {
        let truncations = &self.providers.truncations;
        truncations.with_label_values(&[provider]).inc();
    }

    /// A provider is no more: its breaker is shown no longer. What was counted of it stays.
    pub fn forget(&self, provider: &str) {
        // It is not there where nobody has asked for the metrics.
        let _ = self.providers.breakers.remove_label_values(&[provider]);
    }
}
