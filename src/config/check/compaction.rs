//! Compaction: when, by whom, how long.

use std::time::Duration;

use super::Checker;
use crate::config::{CompactionConfig, file};

impl Checker<'_> {
    pub(super) fn compaction(&mut self, written: &file::Compaction) -> CompactionConfig {
        let path = |key| ["compaction", key];
        if written.model.as_deref() == Some("") {
            let message = "must name a model; leave it out for the conversation's own";
            self.refuse(&path("model"), Some("\"\"".to_owned()), message);
        }
        let timeout = self.wait(&path("timeout_ms"), written.timeout_ms, 1_000);
        let wait = self.wait(&path("wait_ms"), written.wait_ms, 0);
        if wait > timeout {
            let message = "must be at most timeout_ms: nothing is made after it";
            self.refuse(&path("wait_ms"), Some(written.wait_ms.to_string()), message);
        }
        CompactionConfig {
            auto: written.auto,
            threshold: self.within(
                &path("threshold"),
                written.threshold,
                0.4..=0.9,
                "it is the share of the window from which on a conversation is summarised",
            ),
            model: written.model.clone(),
            max_summary_tokens: self.within(
                &path("max_summary_tokens"),
                written.max_summary_tokens,
                256..=32_000,
                "it is the longest summary, in tokens",
            ),
            timeout,
            wait: Duration::min(wait, timeout),
            max_running: self.within(
                &path("max_running"),
                written.max_running,
                1..=1_000,
                "it is how many summaries are made at one time",
            ) as usize,
        }
    }
}
