//! Which models of a provider take the cache markers that the proxy adds.
//!
//! An answer to a request with markers proves that they are taken. An answer to the same request without them suggests
//! that they are refused: the refusal before it may have had a reason that passed, so a note holds for an hour only.
//!
//! In memory only, with a bounded number of models. Callers pass the time in.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;

/// How long a note is believed.
const MAX_AGE: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(super) struct MarkerSupport(Mutex<LruCache<Box<str>, MarkerNote>>);

#[derive(Clone, Copy, Debug)]
struct MarkerNote {
    taken: bool,
    noted: Instant,
}

impl MarkerNote {
    /// `None` where it is too old.
    fn is_taken_at(self, now: Instant) -> Option<bool> {
        let age = now.saturating_duration_since(self.noted);
        (age < MAX_AGE).then_some(self.taken)
    }
}

impl MarkerSupport {
    pub(super) fn new(max_models: NonZeroUsize) -> Self {
        Self(Mutex::new(LruCache::new(max_models)))
    }

    /// Whether a model takes markers; `None`: not known, or not any more.
    pub(super) fn takes_markers(&self, model: &str, now: Instant) -> Option<bool> {
        let mut notes = self.0.lock();
        notes.get(model)?.is_taken_at(now)
    }

    /// A model answered a request with markers, or answered it only without them. A model that is known to take them had
    /// another reason to refuse the request, so that changes nothing.
    pub(super) fn note_markers(&self, model: &str, taken: bool, now: Instant) {
        let mut notes = self.0.lock();
        let known = notes.get(model).and_then(|note| note.is_taken_at(now));
        if taken || known != Some(true) {
            notes.put(model.into(), MarkerNote { taken, noted: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_expires_and_an_answer_to_markers_outweighs_a_refusal() {
        let support = MarkerSupport::new(NonZeroUsize::MIN);
        let begun = Instant::now();
        let just_before = begun + MAX_AGE - Duration::from_millis(1);
        for taken in [false, true] {
            assert_eq!(support.takes_markers("m", begun), None);
            support.note_markers("m", taken, begun);
            assert_eq!(support.takes_markers("m", just_before), Some(taken));
            assert_eq!(support.takes_markers("m", begun + MAX_AGE), None);
            support.note_markers("n", taken, begun);
        }
        support.note_markers("m", false, begun);
        assert_eq!(support.takes_markers("m", begun), Some(false));
        support.note_markers("m", true, begun);
        support.note_markers("m", false, just_before);
        assert_eq!(support.takes_markers("m", just_before), Some(true));
        // An answer makes the note last longer.
        support.note_markers("m", true, just_before);
        assert_eq!(support.takes_markers("m", begun + MAX_AGE), Some(true));
        // A note that expired does not stand in the way of a refusal.
        let later = just_before + MAX_AGE;
        support.note_markers("m", false, later);
        assert_eq!(support.takes_markers("m", later), Some(false));
    }
}
