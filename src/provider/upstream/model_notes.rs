//! What the answers of a provider, and its list of models, taught about one of its models, windows apart.
//!
//! An answer to a request with cache markers of the proxy proves that they are taken. An answer to the same request
//! without them suggests that they are refused: the refusal before it may have had a reason that passed, so what is known
//! of markers is believed for an hour only. All else is believed while the process runs. Callers pass the time in.

use std::time::{Duration, Instant};

use crate::config::profile::AnswerFilling;

/// How long it is believed that a model takes markers, or refuses them.
const MARKERS_MAX_AGE: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug, Default)]
pub struct ModelNotes {
    /// It refuses `stream_options`.
    pub refuses_usage: bool,
    /// It refuses to be asked to drop thinking that does not fit any more.
    pub refuses_to_drop_thinking: bool,
    /// It makes no summaries of its own, or does not take them back.
    pub refuses_summaries: bool,
    /// It always thinks, as the provider's list of models says.
    pub always_thinks: bool,
    /// It reads the reasoning of the running turn only, unless a request says otherwise (Responses).
    pub forgets_turns: bool,
    /// Which answers of a request get members that they lack, whatever the model's name says.
    pub answer_filling: AnswerFilling,
    /// Whether it takes markers, and since when that is known.
    markers: Option<(bool, Instant)>,
}

impl ModelNotes {
    /// Whether the model takes markers; `None`: not known, or not any more.
    pub(super) fn takes_markers(&self, now: Instant) -> Option<bool> {
        let (taken, noted) = self.markers?;
        (now.saturating_duration_since(noted) < MARKERS_MAX_AGE).then_some(taken)
    }

    /// The model answered a request with markers, or (not `taken`) answered it only without them. A model that is known to
    /// take them had another reason to refuse the request, so that changes nothing.
    pub(super) fn note_markers(&mut self, taken: bool, now: Instant) {
        if taken || self.takes_markers(now) != Some(true) {
            self.markers = Some((taken, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_expires_and_an_answer_to_markers_outweighs_a_refusal() {
        let mut notes = ModelNotes::default();
        let begun = Instant::now();
        let just_before = begun + MARKERS_MAX_AGE - Duration::from_millis(1);
        for taken in [false, true] {
            let mut notes = ModelNotes::default();
            assert_eq!(notes.takes_markers(begun), None);
            notes.note_markers(taken, begun);
            assert_eq!(notes.takes_markers(just_before), Some(taken));
            assert_eq!(notes.takes_markers(begun + MARKERS_MAX_AGE), None);
        }
        notes.note_markers(false, begun);
        assert_eq!(notes.takes_markers(begun), Some(false));
        notes.note_markers(true, begun);
        notes.note_markers(false, just_before);
        assert_eq!(notes.takes_markers(just_before), Some(true));
        // An answer makes the note last longer.
        notes.note_markers(true, just_before);
        assert_eq!(notes.takes_markers(begun + MARKERS_MAX_AGE), Some(true));
        // A note that expired does not stand in the way of a refusal.
        let later = just_before + MARKERS_MAX_AGE;
        notes.note_markers(false, later);
        assert_eq!(notes.takes_markers(later), Some(false));
    }
}
