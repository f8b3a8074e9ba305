//! What is counted of all requests, for Prometheus.
//!
//! Labels are names of the configuration and words of our own, never anything of a request: so the
//! number of series is bounded, and no key and no prompt can be among them.

mod counted;
mod summaries;

use std::fmt;

use prometheus::{
    IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};

pub use self::{
    counted::{Attempts, Counted},
    summaries::Summaries,
};

/// What may become of an attempt. Those that never happened are shown as zero, so that a rate over
/// the first one is right.
const OUTCOMES: [&str; 5] = ["answer", "busy", "failed", "denied", "unsent"];

/// What may become of an overflow.
const RESULTS: [&str; 2] = ["healed", "unhealed"];

/// What may become of a reload of the settings.
const RELOADS: [&str; 2] = ["ok", "refused"];

/// What a store may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOperation {
    Find,
    Save,
    Order,
    Session,
    Share,
}

impl StoreOperation {
    const ALL: [Self; 5] = [
        Self::Find,
        Self::Save,
        Self::Order,
        Self::Session,
        Self::Share,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Find => "find",
            Self::Save => "save",
            Self::Order => "order",
            Self::Session => "session",
            Self::Share => "share",
        }
    }
}

/// Counts what a store failed to do, or did not do in time; without an owner, for nobody.
#[derive(Clone, Debug, Default)]
pub struct StoreErrors(Option<IntCounterVec>);

impl StoreErrors {
    pub fn count(&self, operation: StoreOperation) {
        if let Some(errors) = &self.0 {
            errors.with_label_values(&[operation.word()]).inc();
        }
    }
}

/// All counters. Labels are names from the configuration, never from a request.
pub struct Metrics {
    registry: Registry,
    attempts: IntCounterVec,
    retries: IntCounterVec,
    fallbacks: IntCounterVec,
    overflows: IntCounterVec,
    truncations: IntCounterVec,
    store_errors: IntCounterVec,
    breakers: IntGaugeVec,
    in_flight: IntGauge,
    reloads: IntCounterVec,
    summaries: Summaries,
}

/// A request that is not answered to its end yet.
#[derive(Debug)]
pub struct InFlight(IntGauge);

impl Metrics {
    /// A request went to a provider; `outcome` is `answer`, `busy`, `failed`, `denied` or `unsent`.
    pub fn attempt(&self, provider: &str, outcome: &'static str) {
        let labels = [provider, outcome];
        self.attempts.with_label_values(&labels).inc();
    }

    /// A request was sent again to the same place after a failure.
    pub fn retry(&self, provider: &str) {
        self.retries.with_label_values(&[provider]).inc();
    }

    /// A request went on to another place; `provider` is the one that is left.
    pub fn fallback(&self, provider: &str) {
        self.fallbacks.with_label_values(&[provider]).inc();
    }

    /// An overflow was healed, or could not be.
    pub fn overflow(&self, provider: &str, healed: bool) {
        let labels = [provider, RESULTS[usize::from(!healed)]];
        self.overflows.with_label_values(&labels).inc();
    }

    /// A provider cut a prompt in silence.
    pub fn truncated(&self, provider: &str) {
        self.truncations.with_label_values(&[provider]).inc();
    }

    /// For whoever asks the store.
    pub fn store_errors(&self) -> StoreErrors {
        StoreErrors(Some(self.store_errors.clone()))
    }

    /// For whoever makes summaries.
    pub fn summaries(&self) -> Summaries {
        self.summaries.clone()
    }

    /// Counts a request as being in flight until what comes back is dropped.
    pub fn begin(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// Settings were read again, and taken or refused.
    pub fn reloaded(&self, taken: bool) {
        let result = RELOADS[usize::from(!taken)];
        self.reloads.with_label_values(&[result]).inc();
    }

    /// A provider is no more: its breaker is shown no longer. What was counted of it stays.
    pub fn forget(&self, provider: &str) {
        // It is not there where nobody has asked for the metrics.
        let _ = self.breakers.remove_label_values(&[provider]);
    }

    /// All of it in the text format 0.0.4. `breakers` are all providers with what their breakers
    /// are at: 0 closed, 1 half open, 2 open.
    pub fn text<'a>(&self, breakers: impl Iterator<Item = (&'a str, i64)>) -> String {
        for (provider, state) in breakers {
            self.breakers.with_label_values(&[provider]).set(state);
            self.mention(provider);
        }
        let families = self.registry.gather();
        TextEncoder::new()
            .encode_to_string(&families)
            .unwrap_or_else(|error| {
                // Memory takes every write, so there is nothing that could fail.
                tracing::error!(%error, "the metrics could not be written");
                String::new()
            })
    }

    /// Begins what was not counted yet at zero.
    fn mention(&self, provider: &str) {
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

    fn new() -> prometheus::Result<Self> {
        let provider = ["provider"];
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels)
        };
        let metrics = Self {
            registry: Registry::new(),
            attempts: counter(
                "plimsoll_provider_attempts_total",
                "Requests sent to a provider, by what became of them: an answer that is the \
                 client's, busy (429), failed (5xx), denied (our credentials), unsent (no answer).",
                &["provider", "outcome"],
            )?,
            retries: counter(
                "plimsoll_retries_total",
                "Requests sent once more to the provider that had failed them.",
                &provider,
            )?,
            fallbacks: counter(
                "plimsoll_fallbacks_total",
                "Requests that went on to another place after this provider had failed them.",
                &provider,
            )?,
            overflows: counter(
                "plimsoll_overflows_total",
                "Prompts that a provider found too long, by whether a smaller one was accepted.",
                &["provider", "result"],
            )?,
            truncations: counter(
                "plimsoll_silent_truncations_total",
                "Prompts whose beginning a provider dropped without a word.",
                &provider,
            )?,
            store_errors: counter(
                "plimsoll_store_errors_total",
                "What the store of sessions failed to do or did not do in time, by what it was \
                 asked for.",
                &["operation"],
            )?,
            breakers: IntGaugeVec::new(
                Opts::new(
                    "plimsoll_breaker_state",
                    "Whether a provider is passed over: 0 closed (it is not), 1 half-open, 2 open.",
                ),
                &provider,
            )?,
            in_flight: IntGauge::new(
                "plimsoll_requests_in_flight",
                "Requests of clients that are not answered to their end yet.",
            )?,
            reloads: counter(
                "plimsoll_config_reloads_total",
                "Settings that were read again while the proxy ran, by what became of them.",
                &["result"],
            )?,
            summaries: Summaries::new()?,
        };
        for result in RELOADS {
            metrics.reloads.with_label_values(&[result]);
        }
        let collectors: [Box<dyn Collector>; 9] = [
            Box::new(metrics.attempts.clone()),
            Box::new(metrics.retries.clone()),
            Box::new(metrics.fallbacks.clone()),
            Box::new(metrics.overflows.clone()),
            Box::new(metrics.truncations.clone()),
            Box::new(metrics.store_errors.clone()),
            Box::new(metrics.breakers.clone()),
            Box::new(metrics.in_flight.clone()),
            Box::new(metrics.reloads.clone()),
        ];
        for collector in collectors.into_iter().chain(metrics.summaries.collectors()) {
            metrics.registry.register(collector)?;
        }
        for operation in StoreOperation::ALL {
            metrics.store_errors.with_label_values(&[operation.word()]);
        }
        Ok(metrics)
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

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::{Metrics, StoreErrors, StoreOperation};

    #[test]
    fn what_is_counted_is_shown() {
        let metrics = Metrics::default();
        metrics.attempt("up", "answer");
        metrics.attempt("up", "answer");
        metrics.attempt("up", "busy");
        metrics.retry("up");
        metrics.fallback("up");
        metrics.overflow("up", true);
        metrics.overflow("other", false);
        metrics.truncated("other");
        metrics.reloaded(true);
        metrics.store_errors().count(StoreOperation::Save);
        StoreErrors::default().count(StoreOperation::Save);
        metrics.summaries().ended("made");
        metrics.summaries().spent(900, 70);
        let held = metrics.begin();
        drop(metrics.begin());
        let text = metrics.text([("up", 2), ("other", 0)].into_iter());
        for line in [
            r#"plimsoll_provider_attempts_total{outcome="answer",provider="up"} 2"#,
            r#"plimsoll_provider_attempts_total{outcome="busy",provider="up"} 1"#,
            r#"plimsoll_provider_attempts_total{outcome="failed",provider="up"} 0"#,
            r#"plimsoll_provider_attempts_total{outcome="answer",provider="other"} 0"#,
            r#"plimsoll_retries_total{provider="up"} 1"#,
            r#"plimsoll_fallbacks_total{provider="up"} 1"#,
            r#"plimsoll_overflows_total{provider="up",result="healed"} 1"#,
            r#"plimsoll_overflows_total{provider="other",result="unhealed"} 1"#,
            r#"plimsoll_overflows_total{provider="other",result="healed"} 0"#,
            r#"plimsoll_silent_truncations_total{provider="other"} 1"#,
            r#"plimsoll_store_errors_total{operation="save"} 1"#,
            r#"plimsoll_store_errors_total{operation="find"} 0"#,
            r#"plimsoll_store_errors_total{operation="order"} 0"#,
            r#"plimsoll_store_errors_total{operation="session"} 0"#,
            r#"plimsoll_store_errors_total{operation="share"} 0"#,
            r#"plimsoll_breaker_state{provider="up"} 2"#,
            r#"plimsoll_breaker_state{provider="other"} 0"#,
            "plimsoll_requests_in_flight 1",
            r#"plimsoll_config_reloads_total{result="ok"} 1"#,
            r#"plimsoll_config_reloads_total{result="refused"} 0"#,
            r#"plimsoll_summaries_total{outcome="made"} 1"#,
            r#"plimsoll_summaries_total{outcome="timed_out"} 0"#,
            r#"plimsoll_summary_tokens_total{kind="prompt"} 900"#,
            r#"plimsoll_summary_tokens_total{kind="completion"} 70"#,
            "plimsoll_summaries_running 0",
            "# TYPE plimsoll_retries_total counter",
            "# TYPE plimsoll_breaker_state gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(
            text.lines()
                .filter(|line| line.starts_with("# HELP"))
                .count()
                == 12
        );
        drop(held);
        let text = metrics.text([("up", 0)].into_iter());
        assert!(text.contains("plimsoll_requests_in_flight 0\n"));
        assert!(text.contains("plimsoll_breaker_state{provider=\"up\"} 0\n"));
        metrics.forget("up");
        metrics.forget("never");
        let text = metrics.text([("other", 0)].into_iter());
        assert!(!text.contains("plimsoll_breaker_state{provider=\"up\"}"));
        assert!(text.contains(r#"plimsoll_retries_total{provider="up"} 1"#));
    }
}
