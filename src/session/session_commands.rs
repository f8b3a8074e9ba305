//! Wishes about a session from outside, carried out by its next request.
//!
//! The store keeps them beside the session's states, as a version byte and a compact encoding.
//! Reading anything else is an error, never a panic.
//!
//! SECURITY: a hint may group conversations in one session, such as an agent's and those of its
//! sub-agents, which may even begin alike. So a wish names the generation that was the session's
//! newest when it was made, and counts only for what goes on from that one.

use serde::{Deserialize, Serialize};

use super::state::{GenerationId, SessionState, StateError};
use crate::compaction::JobOutcome;

/// First byte of all stored orders; changes with the meaning of any byte after it.
const VERSION: u8 = 2;

/// Outcomes of summaries that are kept until the branches they were made for take them over; a
/// session that a hint made of several conversations may have several.
const MAX_OUTCOMES: usize = 4;
/// Bytes of the texts of all of them.
const MAX_OUTCOME_BYTES: usize = 56 << 10;

/// What is asked for, of one session. Without any, the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCommands {
    /// A new course is asked for until the conversation's state counts so many clears from
    /// outside: a retry of the request that carried it out clears again, one after it does not.
    pub clears: u32,
    pub(super) clear_for: GenerationId,
    /// A summary, likewise.
    pub compacts: u32,
    pub(super) compact_for: GenerationId,
    /// Whether the session is summarised by itself; `None`: as the settings say.
    pub auto_compact: Option<bool>,
    /// What became of summaries, oldest first.
    pub(super) outcomes: Vec<JobOutcome>,
}

impl SessionCommands {
    /// A new course for the conversation of the session's newest generation, whose state this is.
    /// Asked for twice before it was carried out, it is one.
    pub const fn request_clear(&mut self, newest: &SessionState) {
        self.clears = newest.recovery.clears.saturating_add(1);
        self.clear_for = newest.id;
    }

    /// A summary, likewise.
    pub const fn request_summary(&mut self, newest: &SessionState) {
        self.compacts = newest.compaction.ordered.saturating_add(1);
        self.compact_for = newest.id;
    }

    /// Whether a new course is asked for of what goes on from this state, and was not begun yet.
    ///
    /// The order may have come while the request of this state was under way: then it was made for
    /// the generation before.
    pub fn is_clear_pending(&self, state: &SessionState) -> bool {
        self.clears > state.recovery.clears && [state.id, state.follows].contains(&self.clear_for)
    }

    /// Whether a summary is, likewise.
    pub fn is_summary_pending(&self, state: &SessionState) -> bool {
        self.compacts > state.compaction.ordered
            && [state.id, state.follows].contains(&self.compact_for)
    }

    /// Keeps what became of a summary; the oldest go where there is no room.
    pub fn keep_outcome(&mut self, outcome: JobOutcome) {
        self.outcomes.retain(|known| known.job != outcome.job);
        self.outcomes.push(outcome);
        while self.outcomes.len() > MAX_OUTCOMES || self.outcome_bytes() > MAX_OUTCOME_BYTES {
            self.outcomes.remove(0);
        }
    }

    pub fn outcomes(&self) -> &[JobOutcome] {
        &self.outcomes
    }

    fn outcome_bytes(&self) -> usize {
        let summaries = self.outcomes.iter().filter_map(|it| it.summary.as_ref());
        summaries.map(|summary| summary.text.len()).sum()
    }

    /// The stored form.
    ///
    /// # Errors
    /// Where the encoding fails.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        postcard::to_extend(self, vec![VERSION]).map_err(StateError::Malformed)
    }

    /// Reads a stored form; no bytes are no orders.
    ///
    /// # Errors
    /// For anything else than the whole of what [`Self::encode`] of this version wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        match bytes.split_first() {
            None => Ok(Self::default()),
            Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
                Ok((orders, [])) => Ok(orders),
                Ok(_) => Err(StateError::Length),
                Err(error) => Err(StateError::Malformed(error)),
            },
            Some((&other, _)) => Err(StateError::Version(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn orders() -> SessionCommands {
        SessionCommands {
            clears: u32::MAX,
            clear_for: GenerationId::from_bytes([255; 8]),
            compacts: u32::MAX,
            compact_for: GenerationId::from_bytes([255; 8]),
            auto_compact: Some(false),
            outcomes: Vec::new(),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = orders().to_bytes().unwrap();
        assert_eq!(SessionCommands::from_bytes(&bytes).unwrap(), orders());
        assert!(bytes.len() <= 40, "{}", bytes.len());
        assert_eq!(
            SessionCommands::from_bytes(&[]).unwrap(),
            SessionCommands::default()
        );
    }

    #[test]
    fn other_versions_and_leftovers_are_refused() {
        let mut bytes = orders().to_bytes().unwrap();
        bytes.push(0);
        assert!(matches!(
            SessionCommands::from_bytes(&bytes),
            Err(StateError::Length)
        ));
        bytes[0] = VERSION + 1;
        let other = SessionCommands::from_bytes(&bytes);
        assert!(matches!(other, Err(StateError::Version(_))));
    }

    proptest! {
        #[test]
        fn reading_anything_never_panics(mut bytes: Vec<u8>, versioned: bool) {
            if versioned {
                bytes.insert(0, VERSION);
            }
            let _ = SessionCommands::from_bytes(&bytes);
        }
    }
}
