//! A circuit breaker: whether a provider is skipped for a while. Callers pass the time in.
//!
//! Closed lets everything through; a number of failures in a row opens it. Open lets nothing through
//! until its time is over. Then it is half open: one request at a time probes, its success closes
//! the breaker and its failure opens it again, for the same time. While a probe waits for its
//! answer the others go elsewhere, however long it takes.
//!
//! A late outcome is not counted: a permit belongs to the period in which it was given, and each
//! change of the state begins a new period. Otherwise the last of a hundred requests that failed
//! together would reopen a breaker that a probe had closed.
//!
//! A 429 is no failure: it pauses the provider for as long as it asks, a minute at most.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The longest pause: a 429 is about one model or one account, and others may be waiting.
const MAX_PAUSE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

/// The breaker of one provider.
#[derive(Debug)]
pub struct Breaker {
    failures: u32,
    open_duration: Duration,
    inner: Mutex<BreakerInner>,
}

#[derive(Debug, Default)]
struct BreakerInner {
    /// Counts the changes of the state; a permit of an earlier period changes nothing.
    period: u64,
    /// Failures since the last success.
    failed: u32,
    /// `None`: closed.
    open_until: Option<Instant>,
    probing: bool,
    paused_until: Option<Instant>,
}

/// A request under way. Dropped without an outcome, it is not counted.
#[derive(Debug)]
pub struct Permit<'a> {
    breaker: &'a Breaker,
    period: u64,
    probe: bool,
}

impl BreakerState {
    /// The name in `/readyz` and the metrics.
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
        match self.inner.lock().open_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Lets a request through; `None` while the breaker is open or paused, or its probe is under way.
    pub fn try_admit(&self, now: Instant) -> Option<Permit<'_>> {
        let mut state = self.inner.lock();
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

    /// Lets a request through in any state, where no other candidate is left. Its outcome counts.
    pub fn force_admit(&self) -> Permit<'_> {
        self.make_permit(&self.inner.lock(), false)
    }

    /// Lets nothing through for `length`, as the `Retry-After` of a 429 asks; a minute at most.
    pub fn pause_for(&self, now: Instant, length: Duration) {
        let until = now.checked_add(length.min(MAX_PAUSE));
        let mut state = self.inner.lock();
        state.paused_until = state.paused_until.max(until);
    }

    fn make_permit(&self, state: &BreakerInner, probe: bool) -> Permit<'_> {
        Permit {
            breaker: self,
            period: state.period,
            probe,
        }
    }
}

impl BreakerInner {
    /// Opens the breaker until then; `None` closes it.
    fn begin_period(&mut self, open_until: Option<Instant>) {
        self.period += 1;
        self.failed = 0;
        self.probing = false;
        self.open_until = open_until;
    }
}

impl Permit<'_> {
    /// An answer began; a 4xx and an overflow are successes too.
    pub fn record_success(self) {
        let mut state = self.breaker.inner.lock();
        if state.period == self.period {
            state.failed = 0;
            if state.open_until.is_some() {
                state.begin_period(None);
            }
        }
    }

    /// A stream began, whose end is recorded apart: failures in a row stay counted, and an open breaker closes.
    pub fn record_begun(self) {
        let mut state = self.breaker.inner.lock();
        if state.period == self.period && state.open_until.is_some() {
            state.begin_period(None);
        }
    }

    /// No answer, or a 5xx.
    pub fn record_failure(self, now: Instant) {
        let mut state = self.breaker.inner.lock();
        if state.period == self.period {
            state.failed = state.failed.saturating_add(1);
            let enough = self.breaker.failures != 0 && state.failed >= self.breaker.failures;
            if state.open_until.is_some() || enough {
                state.begin_period(now.checked_add(self.breaker.open_duration));
            }
        }
    }
}

impl Drop for Permit<'_> {
    /// CANCEL: a probe whose client left lets the next request probe. An outcome began a new period,
    /// so this changes nothing after it.
    fn drop(&mut self) {
        if self.probe {
            let mut state = self.breaker.inner.lock();
            if state.period == self.period {
                state.probing = false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
