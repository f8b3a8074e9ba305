//! Whether a request that failed is sent again, and when. Pure: no clock, no chance of its own.

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::config::RetryConfig;

/// What an answer's status means for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client's answer, be it an error: nobody is asked again.
    Final,
    /// Too many requests: another attempt later, or elsewhere.
    Busy,
    /// The provider's own failure.
    Failed,
    /// Our key or our account there is not accepted: nothing to retry here, but elsewhere.
    Denied,
}

/// What is left for one client request: attempts, time.
#[derive(Debug)]
pub struct Budget {
    rules: RetryConfig,
    begun: Instant,
    attempts: u32,
}

/// `ours`: the credentials that were sent are ours.
pub fn outcome(status: StatusCode, ours: bool) -> Outcome {
    let _ = (status, ours);
    Outcome::Final
}

/// How long a provider asks to be left alone (`retry-after-ms`, `Retry-After` in seconds or as a date).
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let _ = (headers, now);
    None
}

impl Budget {
    /// `headers` are the client's: an SDK that retries by itself says so in them.
    pub fn new(rules: RetryConfig, headers: &HeaderMap, now: Instant) -> Self {
        let _ = headers;
        Self {
            rules,
            begun: now,
            attempts: 0,
        }
    }

    /// Counts an attempt that is begun now.
    pub fn spend(&mut self) {
        self.attempts += 1;
    }

    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether another place may be tried.
    pub fn may_go_on(&self, now: Instant) -> bool {
        self.attempts < self.rules.max_attempts && now < self.begun + self.rules.max_time
    }

    /// How long to wait before the same place is tried again; `None`: it is not. `retries`: how often
    /// it was before. `chance` is in 0..1.
    pub fn wait(
        &self,
        retries: u32,
        after: Option<Duration>,
        now: Instant,
        chance: f64,
    ) -> Option<Duration> {
        let _ = (retries, after, now, chance);
        None
    }
}
