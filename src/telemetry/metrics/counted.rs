//! What was counted of one provider, for who looks at it through the API.

use prometheus::IntCounterVec;
use serde::Serialize;

use super::Metrics;

/// What was counted of a provider in this process, since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub attempts: Attempts,
    pub retries: u64,
    pub fallbacks: u64,
}

/// Requests that went to a provider, by what became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Attempts {
    pub answer: u64,
    pub busy: u64,
    pub failed: u64,
    pub denied: u64,
    pub unsent: u64,
}

impl Metrics {
    /// `provider` is one of the settings': it is counted from zero from here on.
    pub fn counted(&self, provider: &str) -> Counted {
        let of = |counters: &IntCounterVec| counters.with_label_values(&[provider]).get();
        let providers = &self.providers;
        let attempts = |outcome| {
            let attempts = &providers.attempts;
            attempts.with_label_values(&[provider, outcome]).get()
        };
        Counted {
            attempts: Attempts {
                answer: attempts("answer"),
                busy: attempts("busy"),
                failed: attempts("failed"),
                denied: attempts("denied"),
                unsent: attempts("unsent"),
            },
            retries: of(&providers.retries),
            fallbacks: of(&providers.fallbacks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_was_counted() {
        let metrics = Metrics::default();
        for outcome in ["answer", "answer", "busy", "failed", "denied", "unsent"] {
            metrics.attempt("up", outcome);
        }
        metrics.retry("up");
        metrics.fallback("other");
        let counted = metrics.counted("up");
        let attempts = Attempts {
            answer: 2,
            busy: 1,
            failed: 1,
            denied: 1,
            unsent: 1,
        };
        assert_eq!(counted.attempts, attempts);
        assert_eq!((counted.retries, counted.fallbacks), (1, 0));
        assert_eq!(metrics.counted("other").fallbacks, 1);
    }
}
