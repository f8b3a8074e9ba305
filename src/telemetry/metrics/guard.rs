//! What is counted of the guard and of recovery, once for each generation that came about.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::{Metrics, make::Make};

/// From a small request to the largest, in seconds.
const BUCKETS: [f64; 12] = [
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5,
];

/// What a prompt of ours may be of.
const KINDS: [&str; 2] = ["caution", "critical"];

/// What was done to one request, and to none before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub truncations: usize,
    pub cut_chars: usize,
    pub cleared_messages: usize,
    pub folded: bool,
    pub dropped_messages: usize,
    pub lowered_cap: bool,
    /// `caution` or `critical`.
    pub injected: Option<&'static str>,
    pub course: bool,
    /// The first generation of its session.
    pub session: bool,
}

pub(super) struct Guard {
    took: Histogram,
    truncations: IntCounter,
    cut_chars: IntCounter,
    cleared_messages: IntCounter,
    folds: IntCounter,
    dropped_messages: IntCounter,
    lowered_caps: IntCounter,
    injections: IntCounterVec,
    courses: IntCounter,
    sessions: IntCounter,
}

impl Guard {
    pub(super) fn new(make: &Make<'_>) -> prometheus::Result<Self> {
        let injections = make.counters(
            "plimsoll_injections_total",
            "Prompts that recovery put into requests, by the level they tell of.",
            &["kind"],
        )?;
        for kind in KINDS {
            injections.with_label_values(&[kind]);
        }
        Ok(Self {
            took: make.histogram(
                "plimsoll_guard_duration_seconds",
                "How long the guard planned for one request, all its plans together.",
                &BUCKETS,
            )?,
            truncations: make.counter(
                "plimsoll_truncations_total",
                "Tool results that were truncated, each where it was first.",
            )?,
            cut_chars: make.counter(
                "plimsoll_cut_characters_total",
                "Characters that were cut from tool results.",
            )?,
            cleared_messages: make.counter(
                "plimsoll_cleared_messages_total",
                "Messages of which an old result, arguments or media became a placeholder.",
            )?,
            folds: make.counter(
                "plimsoll_folds_total",
                "Times that a conversation was folded anew, courses apart.",
            )?,
            dropped_messages: make.counter(
                "plimsoll_dropped_messages_total",
                "Messages that folds left out, each once.",
            )?,
            lowered_caps: make.counter(
                "plimsoll_lowered_answer_caps_total",
                "Requests whose max_tokens was lowered to what the prompt leaves.",
            )?,
            injections,
            courses: make.counter("plimsoll_courses_total", "New courses that sessions began.")?,
            sessions: make.counter(
                "plimsoll_sessions_total",
                "Sessions that had their first generation here.",
            )?,
        })
    }

    pub(super) fn took(&self, took: Duration) {
        self.took.observe(took.as_secs_f64());
    }
}

impl Metrics {
    /// A generation came about.
    pub fn done(&self, done: &Done) {
        let guard = &self.guard;
        let add = |counter: &IntCounter, count: usize| {
            if count > 0 {
                counter.inc_by(count as u64);
            }
        };
        add(&guard.truncations, done.truncations);
        add(&guard.cut_chars, done.cut_chars);
        add(&guard.cleared_messages, done.cleared_messages);
        add(&guard.folds, usize::from(done.folded));
        add(&guard.dropped_messages, done.dropped_messages);
        add(&guard.lowered_caps, usize::from(done.lowered_cap));
        add(&guard.courses, usize::from(done.course));
        add(&guard.sessions, usize::from(done.session));
        if let Some(kind) = done.injected {
            guard.injections.with_label_values(&[kind]).inc();
        }
    }
}
