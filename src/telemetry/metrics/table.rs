//! The table of all metrics.
//!
//! Names follow OpenTelemetry's semantic conventions for generative AI (version 1.42) in Prometheus' spelling, where
//! these have a name. To them the proxy is a client, so the names begin with `gen_ai.client`. The time to the first
//! token is their `time_to_first_chunk`.

use std::collections::HashSet;

use parking_lot::RwLock;

use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use super::ModelLabels;

/// Buckets for durations in seconds that OpenTelemetry's conventions require: 0.01 to 81.92.
fn seconds_buckets() -> prometheus::Result<Vec<f64>> {
    prometheus::exponential_buckets(0.01, 2.0, 14)
}

/// Buckets for tokens that the conventions require: 1 to 67,108,864.
fn token_buckets() -> prometheus::Result<Vec<f64>> {
    prometheus::exponential_buckets(1.0, 4.0, 14)
}

/// From a small request to the largest.
const GUARD_SECONDS: [f64; 12] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5,
];
/// From a look-up in memory to a distant server.
const STORE_SECONDS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];
const SHARES: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Calls the library's macro that registers a metric of this kind.
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
            /// Operations, providers and models with series.
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
        "Tokens of one request with all its tool rounds, as reported by its provider; client is the name of a client key, and other without one.",
        &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type", "client"],
        token_buckets()?);
    operation_duration: HistogramVec("gen_ai_client_operation_duration_seconds",
        "From the first byte of a request to the last of its answer; error_type is empty where it did not fail.",
        &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type"],
        seconds_buckets()?);
    first_chunk: HistogramVec("gen_ai_client_operation_time_to_first_chunk_seconds",
        "From the first byte of a request to the first of its answer, of streams only.",
        &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"],
        seconds_buckets()?);

    requests: IntCounterVec("plimsoll_requests_total",
        "Requests of clients, by how they ended (done, client_left, broken, provider_error, upgraded, or the code of the proxy's error) and by the class of their status.",
        &["outcome", "status"]);
    requests_in_flight: IntGauge("plimsoll_requests_in_flight",
        "Requests of clients whose answers have not ended.");
    answers: IntCounterVec("plimsoll_answers_total",
        "Answers of models, by the health level of their usage.",
        &["health"]);
    hard_utilisation: Histogram("plimsoll_hard_utilisation_ratio",
        "Prompt tokens as counted by the provider, divided by the window; where both are known.",
        SHARES.to_vec());

    guard_duration: Histogram("plimsoll_guard_duration_seconds",
        "Planning time of the guard for one request, all its plans together.",
        GUARD_SECONDS.to_vec());
    truncations: IntCounter("plimsoll_truncations_total",
        "Tool results that were truncated, each counted once.");
    cut_characters: IntCounter("plimsoll_cut_characters_total",
        "Characters that were cut from tool results.");
    cleared_messages: IntCounter("plimsoll_cleared_messages_total",
        "Messages whose old result, arguments or media became a placeholder.");
    folds: IntCounter("plimsoll_folds_total",
        "Cuts that left messages out of a conversation, without those of new courses.");
    dropped_messages: IntCounter("plimsoll_dropped_messages_total",
        "Messages left out of conversations, each counted once.");
    lowered_answer_caps: IntCounter("plimsoll_lowered_answer_caps_total",
        "Requests whose max_tokens was lowered to the room that the prompt leaves.");
    injections: IntCounterVec("plimsoll_injections_total",
        "Prompts that recovery injected into requests, by health level.",
        &["kind"]);
    recalls: IntCounterVec("plimsoll_recalls_total",
        "Calls of the tool recall, by outcome: found, or missed (nothing was found, or the arguments could not be used).",
        &["outcome"]);
    courses: IntCounter("plimsoll_courses_total",
        "New courses that sessions began.");
    sessions: IntCounter("plimsoll_sessions_total",
        "Sessions that had their first answer here.");

    attempts: IntCounterVec("plimsoll_provider_attempts_total",
        "Requests sent to a provider, by outcome: answer (passed to the client), busy (429), failed (408, a 5xx except 501 and 505, or an answer that broke off), denied (the proxy's credentials), unsent (no answer).",
        &["provider", "outcome"]);
    retries: IntCounterVec("plimsoll_retries_total",
        "Requests sent again to the provider that failed.",
        &["provider"]);
    fallbacks: IntCounterVec("plimsoll_fallbacks_total",
        "Requests that fell back to another candidate after this provider failed.",
        &["provider"]);
    overflows: IntCounterVec("plimsoll_overflows_total",
        "Prompts that a provider refused as too long, by whether a smaller one was accepted.",
        &["provider", "result"]);
    silent_truncations: IntCounterVec("plimsoll_silent_truncations_total",
        "Prompts whose beginning a provider dropped without an error.",
        &["provider"]);
    thinking_refusals: IntCounterVec("plimsoll_thinking_refusals_total",
        "Requests in which a provider refused thinking of earlier answers, by what was accepted: dropped (the provider was asked to drop it), left_out (a request without it), switched_off (the model did not think for the rest of the turn), filled (answers got the member that they lacked), or unhealed.",
        &["provider", "result"]);
    input_changes: IntCounterVec("plimsoll_input_transformations_total",
        "Blocks of thinking that do not fit the messages before them, as providers report them with each answer, by what became of them (dropped, allowed, or forgotten by rule) and why.",
        &["provider", "change", "reason"]);
    breaker_state: IntGaugeVec("plimsoll_breaker_state",
        "State of a provider's circuit breaker: 0 closed, 1 half-open, 2 open (the provider is skipped).",
        &["provider"]);

    store_errors: IntCounterVec("plimsoll_store_errors_total",
        "Failures and timeouts of the session store, by operation.",
        &["operation"]);
    store_duration: HistogramVec("plimsoll_store_duration_seconds",
        "Duration of calls to the session store, failures included.",
        &["operation"], STORE_SECONDS.to_vec());

    compactions: IntCounterVec("plimsoll_compactions_total",
        "Compactions of clients that the proxy answered, by what replaced the conversation: summary or ledger.",
        &["content"]);
    summaries_running: IntGauge("plimsoll_summaries_running",
        "Summaries of conversations in progress.");
    summaries: IntCounterVec("plimsoll_summaries_total",
        "Summaries of conversations, by outcome: made, rejected (no summary), failed (no answer), timed_out, stopped (the proxy ended), skipped (not requested).",
        &["outcome"]);
    summary_tokens: IntCounterVec("plimsoll_summaries_tokens_total",
        "Tokens of summaries, as reported by their providers.",
        &["kind"]);

    build_info: IntGaugeVec("plimsoll_build_info",
        "Always 1; the label is the version.",
        &["version"]);
    start_time: IntGauge("process_start_time_seconds",
        "Start time of the process, in seconds since 1970.");
    config_reloads: IntCounterVec("plimsoll_config_reloads_total",
        "Reloads of the settings, by result.",
        &["result"]);
    spans: IntCounterVec("plimsoll_spans_total",
        "Spans of traces: made, exported to the collector, or failed to be.",
        &["outcome"]);
    bytes_in_flight: IntGauge("plimsoll_in_flight_bytes",
        "Bytes of requests and answers in memory, of server.max_bytes_in_flight.");
}
