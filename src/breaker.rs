//! A circuit breaker: whether a provider or the store's server is passed over for a while. No clock
//! of its own.
//!
//! Closed lets everything through; so many failures in a row open it. Open lets nothing through
//! until its time is over. Then it is half open: one request at a time probes, its success closes
//! the breaker and its failure opens it again, for the same time. While a probe waits for its
//! answer the others go elsewhere, however long it takes.
//!
//! What ends late is not counted: a permit belongs to the stretch of time in which it was given,
//! and each change of the state begins a new one. Otherwise the last of a hundred requests that
//! failed together would open again what a probe had closed.
//!
//! A 429 is no failure: the provider works, and is left alone for as long as it asks, a minute at most.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The longest rest that a provider gets, whatever it asks for: it is asked for a model or for an
/// account, and others may be waiting.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// As `/readyz` and the metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

/// The breaker of one provider or server. It opens after failures in a row, and lets one probe through once
/// its time is over.
#[derive(Debug)]
pub struct Breaker {
    failures: u32,
    open_duration: Duration,
    inner: Mutex<BreakerInner>,
}

#[derive(Debug, Default)]
struct BreakerInner {
    /// Which stretch of time this is; a permit of an earlier one changes nothing.
    stretch: u64,
    /// Failures since the last success.
    failed: u32,
    /// `None`: closed.
    open_until: Option<Instant>,
    probing: bool,
    paused_until: Option<Instant>,
}

/// A request under way; dropped without an outcome, it counts for nothing.
#[derive(Debug)]
pub struct Permit<'a> {
    breaker: &'a Breaker,
    stretch: u64,
    probe: bool,
}

impl BreakerState {
    pub const fn state_name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl Breaker {
    /// `failures` in a row open it (0: never) for `open`.
    pub fn new(failures: u32, open: Duration) -> Self {
        Self {
            failures,
            open_duration: open,
            inner: Mutex::default(),
        }
    }

    pub fn state_at(&self, now: Instant) -> BreakerState {
        match self.lock_inner().open_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Lets a request through; `None` while the breaker is open, its probe under way, or the
    /// provider has asked for rest.
    pub fn try_admit(&self, now: Instant) -> Option<Permit<'_>> {
        let mut state = self.lock_inner();
        if state.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        let probe = match state.open_until {
            None => false,
            Some(until) if now < until || state.probing => return None,
            Some(_) => true,
        };
        state.probing |= probe;
        Some(self.make_permit(&state, probe))
    }

    /// Lets a request through in any case: where nobody else is left to answer. What becomes of it
    /// counts as of any other.
    pub fn force_admit(&self) -> Permit<'_> {
        self.make_permit(&self.lock_inner(), false)
    }

    /// The provider asked not to be sent anything for so long (`Retry-After` of a 429); a minute at
    /// most. That is no failure.
    pub fn pause_for(&self, now: Instant, length: Duration) {
        let until = now.checked_add(length.min(MAX_PAUSE));
        let mut state = self.lock_inner();
        state.paused_until = state.paused_until.max(until);
    }

    fn make_permit(&self, state: &BreakerInner, probe: bool) -> Permit<'_> {
        Permit {
            breaker: self,
            stretch: state.stretch,
            probe,
        }
    }

    fn lock_inner(&self) -> MutexGuard<'_, BreakerInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BreakerInner {
    /// Begins a new stretch of time: open until then, or closed.
    fn begin_stretch(&mut self, open_until: Option<Instant>) {
        self.stretch += 1;
        self.failed = 0;
        self.probing = false;
        self.open_until = open_until;
    }
}

impl Permit<'_> {
    /// An answer began that is no failure of the provider: a 4xx and an overflow are none.
    pub fn record_success(self) {
        let mut state = self.breaker.lock_inner();
        if state.stretch == self.stretch {
            state.failed = 0;
            if state.open_until.is_some() {
                state.begin_stretch(None);
            }
        }
    }

    /// No answer, or a 5xx.
    pub fn record_failure(self, now: Instant) {
        let mut state = self.breaker.lock_inner();
        if state.stretch == self.stretch {
            state.failed = state.failed.saturating_add(1);
            let enough = self.breaker.failures != 0 && state.failed >= self.breaker.failures;
            if state.open_until.is_some() || enough {
                state.begin_stretch(now.checked_add(self.breaker.open_duration));
            }
        }
    }
}

impl Drop for Permit<'_> {
    /// CANCEL: a probe whose client left gives its place to the next. After an outcome there is
    /// nothing to give back, since that began a new stretch.
    fn drop(&mut self) {
        if self.probe {
            let mut state = self.breaker.lock_inner();
            if state.stretch == self.stretch {
                state.probing = false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
