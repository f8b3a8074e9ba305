//! Compaction: when, by whom, how long.

use std::time::Duration;

use super::{
    section::{Section, settings},
    setting::Visibility,
};

settings! {
    /// Whether and how the older part of a conversation is summarised by a model.
    pub struct CompactionConfig read from s {
        /// For sessions and requests that say nothing of their own.
        pub auto: bool = s.read_plain("auto", false);
        /// Who summarises, as a client would name it; unset: the conversation's own model.
        pub model: Option<String> = read_model(s);
        /// For all calls of one summary.
        pub timeout: Duration = s.read_millis("timeout_ms", 120_000, 1_000);
        /// How long a request past the threshold, or one that would be cut, waits for its summary; zero: it
        /// does not.
        pub wait: Duration = read_wait(s, timeout);
        /// Share of the window without the reserve from which on it is done.
        pub threshold: f64 = s.read_number("threshold", 0.6, 0.4..=0.9,
            "it is the share of the window from which on a conversation is summarised");
        /// The longest summary; tokens.
        pub max_summary_tokens: u32 = s.read_number("max_summary_tokens", 4_000, 256..=32_000,
            "it is the longest summary, in tokens");
        /// Summaries that are made at one time.
        pub max_running: usize = s.read_number("max_running", 4, 1..=1_000,
            "it is how many summaries are made at one time");
    }
}

fn read_model(s: &mut Section) -> Option<String> {
    let model: String = s.read_option("model", Visibility::Plain)?;
    if model.is_empty() {
        let message = "must name a model; leave it out for the conversation's own";
        s.refuse_text("model", &model, message);
    }
    Some(model)
}

fn read_wait(s: &mut Section, timeout: Duration) -> Duration {
    let wait = s.read_millis("wait_ms", 0, 0);
    if wait > timeout {
        let message = "must be at most timeout_ms: nothing is made after it";
        s.refuse_value("wait_ms", Some(wait.as_millis().to_string()), message);
    }
    wait
}

impl CompactionConfig {
    /// What the threshold puts first, in a word.
    pub fn strategy_name(&self) -> &'static str {
        match self.threshold {
            ..=0.6 => "cost",
            ..=0.75 => "balanced",
            _ => "information",
        }
    }
}
