//! What is left alone for a while: summary models that fail, and clients whose summaries nobody uses.
//!
//! A summary is used by the requests that continue the one that began it. A client that rewrites its
//! history with every request, or asks for many answers to the same one, never continues any: each of
//! its requests would have a summary made, and pay for it. The state of a branch does not know the
//! other branches, so unused summaries are counted here.
//!
//! A model that fails five times in a row is left alone for a minute, and whoever uses none of eight summaries for
//! ten.

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;

use crate::provider::Target;

/// Subjects that are counted; the one that was counted longest ago goes first.
const MAX_COUNTED: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");

/// What may be left alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackoffSubject {
    /// A summary model: the place of its provider, and its name there.
    Model { place: Arc<str>, model: Box<str> },
    /// A conversation that is followed, by the id of its session.
    Session([u8; 16]),
    /// All conversations of an account of which nothing is known from earlier requests.
    Account([u8; 16]),
}

impl BackoffSubject {
    pub fn from_target(target: &Target) -> Self {
        Self::Model {
            place: Arc::clone(&target.provider.endpoint),
            model: target.model.as_str().into(),
        }
    }

    /// Failures in a row, or unused summaries, after which the subject is left alone.
    const fn max_failures(&self) -> u32 {
        match self {
            Self::Model { .. } => 5,
            Self::Session(_) | Self::Account(_) => 8,
        }
    }

    /// How long it is left alone.
    const fn pause_duration(&self) -> Duration {
        match self {
            Self::Model { .. } => Duration::from_secs(60),
            Self::Session(_) | Self::Account(_) => Duration::from_secs(600),
        }
    }

    /// Whether the count begins anew after the pause. A model that failed too often has one try then.
    const fn resets_after_pause(&self) -> bool {
        !matches!(self, Self::Model { .. })
    }
}

/// The number of failures of each subject, and the time of the newest.
#[derive(Debug)]
pub(super) struct SummaryBackoff(LruCache<BackoffSubject, (u32, Instant)>);

impl Default for SummaryBackoff {
    fn default() -> Self {
        Self(LruCache::new(MAX_COUNTED))
    }
}

impl SummaryBackoff {
    pub(super) fn is_paused(&self, subject: &BackoffSubject, now: Instant) -> bool {
        let counted = self.0.peek(subject);
        counted.is_some_and(|&(count, newest)| {
            count >= subject.max_failures() && now < newest + subject.pause_duration()
        })
    }

    /// A try begins. The first one after a model's pause begins another pause, so that no second one begins
    /// before the first has ended.
    pub(super) fn begin_try(&mut self, subject: &BackoffSubject, now: Instant) {
        if let Some((count, newest)) = self.0.get_mut(subject)
            && *count >= subject.max_failures()
        {
            *newest = now;
        }
    }

    /// Counts a failure of a model, or a summary that nobody has used yet.
    pub(super) fn count_failure(&mut self, subject: BackoffSubject, now: Instant) {
        let expired = |newest: Instant| {
            subject.resets_after_pause() && now >= newest + subject.pause_duration()
        };
        let count = match self.0.peek(&subject) {
            Some(&(count, newest)) if !expired(newest) => count,
            _ => 0,
        };
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
            place: "up".into(),
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
