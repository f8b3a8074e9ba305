//! Settings of compaction: when, by which model, how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::loading::section::{Section, Visibility, settings};

settings! {
    pub struct CompactionConfig read from s {
        /// The default of sessions and requests, which may choose otherwise.
        pub auto: bool = s.read_plain("auto", false);
        pub by: SummaryMaker = s.read_plain("by", SummaryMaker::Proxy);
        /// The model that summarises, by its name for clients; unset: the model of the conversation.
        pub model: Option<String> = read_model(s);
        /// For all calls of one summary.
        pub timeout: Duration = s.read_millis("timeout_ms", 120_000, 1_000);
        /// How long a request past the threshold, or one that would be cut, waits for its summary; zero: not at
        /// all.
        pub wait: Duration = read_wait(s, timeout);
        /// Summarises from this share of the window less the reserve on.
        pub threshold: f64 = s.read_number("threshold", 0.6, 0.4..=0.9,
            "it is the share of the window from which on a conversation is summarised");
        pub max_summary_tokens: u32 = s.read_number("max_summary_tokens", 4_000, 256..=32_000,
            "it is the longest summary, in tokens");
        pub max_running: usize = s.read_number("max_running", 4, 1..=1_000,
            "it is how many summaries are made at one time");
    }
}

/// Who summarises a conversation whose model binds its thinking to what stood before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SummaryMaker {
    /// The proxy, as any other conversation: by a request for a text.
    Proxy,
    /// The provider on demand, so that the thinking stays valid; the proxy where it makes none.
    Provider,
}

fn read_model(s: &mut Section) -> Option<String> {
    s.explain_unset("the conversation's own model");
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
        let message = "must be at most timeout_ms: a summary that takes longer is given up";
        s.refuse_value("wait_ms", Some(wait.as_millis().to_string()), message);
    }
    wait
}

impl CompactionConfig {
    /// What the threshold favours, as one word of the session API.
    pub fn strategy_name(&self) -> &'static str {
        match self.threshold {
            ..=0.6 => "cost",
            ..=0.75 => "balanced",
            _ => "information",
        }
    }
}
