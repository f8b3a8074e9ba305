//! The table of all metrics. Their names are those of OpenTelemetry's semantic conventions for generative AI,
//! as Prometheus spells them, where these have one.
//!
//! Seen from these conventions (as of version 1.42) the proxy is a client, so the names begin with `gen_ai.client`;
//! the time to the first token is their `time_to_first_chunk`.

use std::{collections::HashSet, sync::RwLock};

use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use super::ModelLabels;

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
        /// All metrics.
        #[derive(Debug)]
        pub struct Metrics {
            pub(super) registry: Registry,
            /// Operations, providers and models that have series.
            pub(super) models: RwLock<HashSet<ModelLabels>>,
            $(#[doc = $help] pub $field: $kind,)*
        }

        impl Metrics {
            pub(super) fn register() -> prometheus::Result<Self> {
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
