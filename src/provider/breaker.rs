//! Whether a provider is passed over for a while. No clock of its own.

use std::time::{Duration, Instant};

/// As `/readyz` and the metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Closed,
    Open,
    HalfOpen,
}

/// The breaker of one provider. It opens after failures in a row, and lets one probe through once
/// its time is over.
#[derive(Debug)]
pub struct Breaker {
    failures: u32,
    open: Duration,
}

/// A request under way; dropped without an outcome, it counts for nothing.
#[derive(Debug)]
pub struct Permit<'a> {
    breaker: &'a Breaker,
}

impl Breaker {
    /// `failures` in a row open it (0: never) for `open`.
    pub fn new(failures: u32, open: Duration) -> Self {
        Self { failures, open }
    }

    pub fn state(&self, now: Instant) -> State {
        let _ = (now, self.failures, self.open);
        State::Closed
    }

    /// Lets a request through; `None` while the breaker is open, its probe under way, or the
    /// provider has asked for rest.
    pub fn admit(&self, now: Instant) -> Option<Permit<'_>> {
        let _ = now;
        Some(Permit { breaker: self })
    }

    /// Lets a request through in any case: where nobody else is left to answer.
    pub fn force(&self) -> Permit<'_> {
        Permit { breaker: self }
    }

    /// The provider asked not to be sent anything for so long (`Retry-After` of a 429).
    pub fn rest(&self, now: Instant, length: Duration) {
        let _ = (now, length);
    }
}

impl Permit<'_> {
    /// An answer began that is no failure of the provider: a 4xx and an overflow are none.
    pub fn succeeded(self) {
        let _ = self.breaker;
    }

    /// No answer, or a 5xx.
    pub fn failed(self, now: Instant) {
        let _ = (self.breaker, now);
    }
}
