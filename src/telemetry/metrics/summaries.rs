//! What is counted of summaries.

use prometheus::{IntCounterVec, IntGauge};

use super::{Metrics, make::Make};

/// What may become of a summary.
const SUMMARIES: [&str; 6] = [
    "made",
    "rejected",
    "failed",
    "timed_out",
    "stopped",
    "skipped",
];

/// Counts summaries of conversations.
#[derive(Clone, Debug)]
pub struct Summaries {
    /// Those that are being made.
    pub running: IntGauge,
    ended: IntCounterVec,
    tokens: IntCounterVec,
}

impl Summaries {
    pub(super) fn new(make: &Make<'_>) -> prometheus::Result<Self> {
        let summaries = Self {
            running: make.gauge(
                "plimsoll_summaries_running",
                "Summaries of conversations that are being made.",
            )?,
            ended: make.counters(
                "plimsoll_summaries_total",
                "Summaries of conversations, by what became of them: made, rejected (no summary), \
                 failed (no answer), timed_out, stopped (the proxy ended), skipped (not asked for).",
                &["outcome"],
            )?,
            tokens: make.counters(
                "plimsoll_summaries_tokens_total",
                "Tokens that summaries took, as their providers reported them.",
                &["kind"],
            )?,
        };
        for outcome in SUMMARIES {
            summaries.ended.with_label_values(&[outcome]);
        }
        summaries.spent(0, 0);
        Ok(summaries)
    }

    /// One has ended; `outcome` is `made`, `rejected`, `failed`, `timed_out`, `stopped` or `skipped`.
    pub fn ended(&self, outcome: &'static str) {
        self.ended.with_label_values(&[outcome]).inc();
    }

    /// Tokens of all its requests, and of their answers.
    pub fn spent(&self, prompt: u64, completion: u64) {
        for (kind, tokens) in [("prompt", prompt), ("completion", completion)] {
            self.tokens.with_label_values(&[kind]).inc_by(tokens);
        }
    }
}

impl Metrics {
    /// For whoever makes summaries.
    pub fn summaries(&self) -> Summaries {
        self.summaries.clone()
    }
}
