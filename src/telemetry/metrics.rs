//! What is counted of all requests, for Prometheus.
//!
//! Labels are names that somebody spelt out (settings, a provider's own list, the catalogue) and fixed
//! words, never anything of a request: so the number of series is bounded, and no key, no session and
//! no prompt can be among them. Nothing is counted once a chunk.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    TextEncoder,
};

use super::Operation;

/// Models that have series of their own, for each kind of operation.
const MAX_MODELS: usize = 256;
/// What stands for a model that nobody spelt out.
const OTHER_MODEL: &str = "other";

/// What may become of a request that went to a provider.
pub const ATTEMPT_OUTCOMES: [&str; 5] = ["answer", "busy", "failed", "denied", "unsent"];
const OVERFLOW_RESULTS: [&str; 2] = ["healed", "unhealed"];

/// Seconds, and the number of tokens: the boundaries that the conventions of OpenTelemetry ask for.
const SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Seconds that the guard takes, from a small request to the largest.
const GUARD_SECONDS: [f64; 12] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5,
];
/// Seconds that a store takes, from a look into memory to a server that is far away.
const STORE_SECONDS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];
const SHARES: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Calls the library's macro that makes and registers a metric of this kind.
macro_rules! register {
    (IntCounter($($arguments:tt)*)) => { prometheus::register_int_counter_with_registry!($($arguments)*) };
    (IntCounterVec($($arguments:tt)*)) => { prometheus::register_int_counter_vec_with_registry!($($arguments)*) };
    (IntGauge($($arguments:tt)*)) => { prometheus::register_int_gauge_with_registry!($($arguments)*) };
    (IntGaugeVec($($arguments:tt)*)) => { prometheus::register_int_gauge_vec_with_registry!($($arguments)*) };
    (Histogram($($arguments:tt)*)) => { prometheus::register_histogram_with_registry!($($arguments)*) };
    (HistogramVec($($arguments:tt)*)) => { prometheus::register_histogram_vec_with_registry!($($arguments)*) };
}

/// Declares each metric once: its handle, kind, name, help, labels and buckets.
macro_rules! metrics {
    ($($field:ident: $kind:ident($name:literal, $help:literal $(, $shape:expr)*);)*) => {
        /// All metrics. Those that are counted when somebody asks are private.
        pub struct Metrics {
            registry: Registry,
            /// Operations, providers and models that have series.
            models: RwLock<HashSet<ModelLabels>>,
            $(#[doc = $help] pub $field: $kind,)*
        }

        impl Metrics {
            fn register() -> prometheus::Result<Self> {
                let registry = Registry::new();
                Ok(Self {
                    $($field: register!($kind($name, $help $(, $shape)*, registry))?,)*
                    models: RwLock::default(),
                    registry,
                })
            }
        }
    };
}

metrics! {
    token_usage: HistogramVec("gen_ai_client_token_usage",
        "Tokens of one request as its provider reported them, all its rounds together.",
        &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type"],
        TOKENS.to_vec());
    operation_duration: HistogramVec("gen_ai_client_operation_duration_seconds",
        "From the first byte of a request to the last of its answer; error_type is empty where it did not fail.",
        &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type"],
        SECONDS.to_vec());
    first_chunk: HistogramVec("gen_ai_client_operation_time_to_first_chunk_seconds",
        "From the first byte of a request to the first of its answer, of streams only.",
        &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"],
        SECONDS.to_vec());

    requests: IntCounterVec("plimsoll_requests_total",
        "Requests of clients, by how they ended (done, client_left, broken, upgraded, or the code of our error) and by the class of their status.",
        &["outcome", "status"]);
    requests_in_flight: IntGauge("plimsoll_requests_in_flight",
        "Requests of clients that are not answered to their end yet.");
    answers: IntCounterVec("plimsoll_answers_total",
        "Generations, by the health that their usage came to.",
        &["health"]);
    hard_utilisation: Histogram("plimsoll_hard_utilisation_ratio",
        "Prompt tokens as their provider counted them, over the window; where both are known.",
        SHARES.to_vec());

    guard_duration: Histogram("plimsoll_guard_duration_seconds",
        "How long the guard planned for one request, all its plans together.",
        GUARD_SECONDS.to_vec());
    truncations: IntCounter("plimsoll_truncations_total",
        "Tool results that were truncated, each where it was first.");
    cut_characters: IntCounter("plimsoll_cut_characters_total",
        "Characters that were cut from tool results.");
    cleared_messages: IntCounter("plimsoll_cleared_messages_total",
        "Messages of which an old result, arguments or media became a placeholder.");
    folds: IntCounter("plimsoll_folds_total",
        "Times that a conversation was folded anew, courses apart.");
    dropped_messages: IntCounter("plimsoll_dropped_messages_total",
        "Messages that folds left out, each once.");
    lowered_answer_caps: IntCounter("plimsoll_lowered_answer_caps_total",
        "Requests whose max_tokens was lowered to what the prompt leaves.");
    injections: IntCounterVec("plimsoll_injections_total",
        "Prompts that recovery put into requests, by the level they tell of.",
        &["kind"]);
    courses: IntCounter("plimsoll_courses_total",
        "New courses that sessions began.");
    sessions: IntCounter("plimsoll_sessions_total",
        "Sessions that had their first generation here.");

    attempts: IntCounterVec("plimsoll_provider_attempts_total",
        "Requests sent to a provider, by what became of them: an answer that is the client's, busy (429), failed (5xx), denied (our credentials), unsent (no answer).",
        &["provider", "outcome"]);
    retries: IntCounterVec("plimsoll_retries_total",
        "Requests sent once more to the provider that had failed them.",
        &["provider"]);
    fallbacks: IntCounterVec("plimsoll_fallbacks_total",
        "Requests that went on to another place after this provider had failed them.",
        &["provider"]);
    overflows: IntCounterVec("plimsoll_overflows_total",
        "Prompts that a provider found too long, by whether a smaller one was accepted.",
        &["provider", "result"]);
    silent_truncations: IntCounterVec("plimsoll_silent_truncations_total",
        "Prompts whose beginning a provider dropped without a word.",
        &["provider"]);
    breaker_state: IntGaugeVec("plimsoll_breaker_state",
        "Whether a provider is passed over: 0 closed (it is not), 1 half-open, 2 open.",
        &["provider"]);

    store_errors: IntCounterVec("plimsoll_store_errors_total",
        "What the store of sessions failed to do or did not do in time, by what it was asked for.",
        &["operation"]);
    store_duration: HistogramVec("plimsoll_store_duration_seconds",
        "How long the store of sessions took, failures included.",
        &["operation"], STORE_SECONDS.to_vec());

    summaries_running: IntGauge("plimsoll_summaries_running",
        "Summaries of conversations that are being made.");
    summaries: IntCounterVec("plimsoll_summaries_total",
        "Summaries of conversations, by what became of them: made, rejected (no summary), failed (no answer), timed_out, stopped (the proxy ended), skipped (not asked for).",
        &["outcome"]);
    summary_tokens: IntCounterVec("plimsoll_summaries_tokens_total",
        "Tokens that summaries took, as their providers reported them.",
        &["kind"]);

    build_info: IntGaugeVec("plimsoll_build_info",
        "Always 1; the label says which version runs.",
        &["version"]);
    start_time: IntGauge("process_start_time_seconds",
        "When the process began, in seconds since 1970.");
    config_reloads: IntCounterVec("plimsoll_config_reloads_total",
        "Settings that were read again while the proxy ran, by what became of them.",
        &["result"]);
    spans: IntCounterVec("plimsoll_spans_total",
        "Spans of traces: made, exported to the collector, or failed to be.",
        &["outcome"]);
    bytes_in_flight: IntGauge("plimsoll_in_flight_bytes",
        "Bytes of requests and answers that are held, of server.max_bytes_in_flight.");
}

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
pub struct InFlight(pub(super) Arc<Metrics>);

impl Metrics {
    /// All of it in the text format 0.0.4. `breakers` are all providers with what their breakers
    /// are at: 0 closed, 1 half open, 2 open.
    pub fn text<'a>(
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
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.requests_in_flight.inc();
        InFlight(Arc::clone(self))
    }

    /// A request went to a provider; `outcome` is one of [`ATTEMPT_OUTCOMES`].
    pub fn count_attempt(&self, provider: &str, outcome: &'static str) {
        self.attempts.with_label_values(&[provider, outcome]).inc();
    }

    /// The store answered, was given up, or failed, after so long.
    pub fn record_store(&self, operation: StoreOperation, took: Duration, failed: bool) {
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
    /// most [`MAX_MODELS`]. That is asked where the model is new here.
    pub fn label_model(
        &self,
        operation: Operation,
        provider: &str,
        model: &str,
        is_spelt_out: impl FnOnce() -> bool,
    ) -> ModelLabels {
        let labels =
            |model: &str| ModelLabels(Arc::new([operation.word(), provider, model].map(Box::from)));
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

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.requests_in_flight.dec();
    }
}

#[cfg(test)]
mod tests;
