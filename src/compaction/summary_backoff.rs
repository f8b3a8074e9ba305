//! Pauses for summary models that fail, and for clients that use no summaries.
//!
//! A summary is used by the requests that continue the request that began it. A client that rewrites its history with
//! every request, or asks for many answers to one request, continues no request: each of its requests would pay for a
//! summary. The state of a branch does not know the other branches, so unused summaries are counted here.
//!
//! A model pauses for a minute after five failures in a row. A session or an account pauses for ten minutes after eight
//! unused summaries.

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;

use crate::provider::Target;

/// Subjects that are counted; beyond this the one counted longest ago is forgotten.
const MAX_COUNTED: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");

/// What may be paused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackoffSubject {
    /// A summary model: the endpoint of its provider, and its name there.
    Model { endpoint: Arc<str>, model: Box<str> },
    /// A session with a state, by its id.
    Session([u8; 16]),
    /// All conversations of an account that have no state yet.
    Account([u8; 16]),
}

impl BackoffSubject {
    pub fn from_target(target: &Target) -> Self {
        Self::Model {
            endpoint: Arc::clone(&target.provider.endpoint),
            model: target.model.as_str().into(),
        }
    }

    const fn is_model(&self) -> bool {
        matches!(self, Self::Model { .. })
    }

    /// Failures in a row, or unused summaries, that begin a pause.
    const fn max_failures(&self) -> u32 {
        if self.is_model() { 5 } else { 8 }
    }

    const fn pause_duration(&self) -> Duration {
        Duration::from_secs(if self.is_model() { 60 } else { 600 })
    }
}

/// Number of failures of each subject, and the time of the newest.
#[derive(Debug)]
pub(super) struct SummaryBackoff(LruCache<BackoffSubject, (u32, Instant)>);

impl Default for SummaryBackoff {
    fn default() -> Self {
        Self(LruCache::new(MAX_COUNTED))
    }
}

impl SummaryBackoff {
    pub(super) fn is_paused(&self, subject: &BackoffSubject, now: Instant) -> bool {
        let pause = subject.pause_duration();
        self.0
            .peek(subject)
            .is_some_and(|&(count, newest)| count >= subject.max_failures() && now < newest + pause)
    }

    /// A try begins. The first try after a model's pause renews the pause, so that no second try begins before the
    /// first one has ended.
    pub(super) fn begin_try(&mut self, subject: &BackoffSubject, now: Instant) {
        if let Some((count, newest)) = self.0.get_mut(subject)
            && *count >= subject.max_failures()
        {
            *newest = now;
        }
    }

    /// Counts a failure of a model, or a summary that is not used yet.
    pub(super) fn count_failure(&mut self, subject: BackoffSubject, now: Instant) {
        // The pause resets the count, except that of a model, which gets one try instead.
        let counts = |newest| subject.is_model() || now < newest + subject.pause_duration();
        let counted = self.0.peek(&subject);
        let count = counted.map_or(0, |&(count, newest)| if counts(newest) { count } else { 0 });
        self.0.put(subject, (count.saturating_add(1), now));
    }

    pub(super) fn reset(&mut self, subject: &BackoffSubject) {
        self.0.pop(subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_summaries_pause_their_session_for_a_while() {
        let mut backoff = SummaryBackoff::default();
        let now = Instant::now();
        let [one, other] = [1, 2].map(|id| BackoffSubject::Session([id; 16]));
        for _ in 0..one.max_failures() {
            assert!(!backoff.is_paused(&one, now));
            backoff.count_failure(one.clone(), now);
        }
        assert!(backoff.is_paused(&one, now) && !backoff.is_paused(&other, now));
        assert!(backoff.is_paused(&one, now + one.pause_duration() / 2));
        let after = now + one.pause_duration();
        assert!(!backoff.is_paused(&one, after));
        backoff.count_failure(one.clone(), after);
        assert!(!backoff.is_paused(&one, after));
        for _ in 0..other.max_failures() {
            backoff.count_failure(other.clone(), now);
        }
        backoff.reset(&other);
        assert!(!backoff.is_paused(&other, now));
    }

    #[test]
    fn a_model_has_one_try_after_its_pause() {
        let mut backoff = SummaryBackoff::default();
        let now = Instant::now();
        let model = BackoffSubject::Model {
            endpoint: "up".into(),
            model: "m".into(),
        };
        for _ in 0..model.max_failures() {
            backoff.count_failure(model.clone(), now);
        }
        let after = now + model.pause_duration();
        backoff.begin_try(&model, now);
        assert!(backoff.is_paused(&model, now) && !backoff.is_paused(&model, after));
        backoff.begin_try(&model, after);
        assert!(backoff.is_paused(&model, after), "one try at a time");
        backoff.count_failure(model.clone(), after);
        assert!(backoff.is_paused(&model, after));
        backoff.reset(&model);
        assert!(!backoff.is_paused(&model, after));
    }
}
