//! Commands of the API to a session, and outcomes of the session's summaries. The session's next request applies both.
//!
//! The store keeps them with the session's states, as a version byte and a compact encoding. Reading anything else is an
//! error, never a panic.
//!
//! SECURITY: a hint may group conversations in one session, such as those of an agent and its sub-agents, which may
//! even begin alike. So a command names the generation that is the session's newest when the command comes, and applies
//! only to requests that continue that generation.

use serde::{Deserialize, Serialize};

use super::state::{GenerationId, SessionState, StateError, decode_version, encode_version};
use crate::compaction::JobOutcome;

/// First byte of all stored commands; changes with the encoding, as that of a state does. 0.1.0 writes 2.
const VERSION: u8 = 2;

/// Most outcomes of summaries that wait for their conversations: if a hint groups several conversations in one session,
/// several outcomes may wait.
const MAX_OUTCOMES: usize = 4;
/// Most bytes of the texts of these outcomes.
const MAX_OUTCOME_BYTES: usize = 56 << 10;

/// Commands and outcomes of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCommands {
    /// A clear is pending until the conversation's state counts this many commanded clears. So a retry of the request
    /// that cleared clears again, and the next request does not.
    pub clears: u32,
    pub(super) clear_for: GenerationId,
    /// A summary is pending in the same way: until the conversation's state counts this many commanded summaries.
    pub compacts: u32,
    pub(super) compact_for: GenerationId,
    /// Whether the session is compacted automatically; `None` follows the settings.
    pub auto_compact: Option<bool>,
    /// Oldest first.
    pub(super) outcomes: Vec<JobOutcome>,
}

impl SessionCommands {
    /// Requests a new course for the conversation of the session's newest generation. Several requests before the
    /// course begins count as one.
    pub const fn request_clear(&mut self, newest: &SessionState) {
        self.clears = newest.recovery.clears.saturating_add(1);
        self.clear_for = newest.id;
    }

    /// Requests a summary in the same way.
    pub const fn request_summary(&mut self, newest: &SessionState) {
        self.compacts = newest.compaction.ordered.saturating_add(1);
        self.compact_for = newest.id;
    }

    /// Whether a request that continues this state must begin a new course.
    ///
    /// If the command came while the request of this state was running, it names the generation before.
    pub fn is_clear_pending(&self, state: &SessionState) -> bool {
        self.clears > state.recovery.clears && [state.id, state.follows].contains(&self.clear_for)
    }

    /// Whether a request that continues this state must make a summary.
    pub fn is_summary_pending(&self, state: &SessionState) -> bool {
        self.compacts > state.compaction.ordered
            && [state.id, state.follows].contains(&self.compact_for)
    }

    /// Keeps the outcome of a summary; drops the oldest ones beyond the bounds.
    pub fn keep_outcome(&mut self, outcome: JobOutcome) {
        self.outcomes.retain(|known| known.job != outcome.job);
        self.outcomes.push(outcome);
        while self.outcomes.len() > MAX_OUTCOMES || self.outcome_bytes() > MAX_OUTCOME_BYTES {
            self.outcomes.remove(0);
        }
    }

    fn outcome_bytes(&self) -> usize {
        let outcomes = self.outcomes.iter();
        let summaries = outcomes.filter_map(|outcome| outcome.summary.as_ref());
        summaries.map(|summary| summary.text.len()).sum()
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        encode_version(VERSION, self)
    }

    /// Reads a stored form; empty bytes mean that there are no commands.
    ///
    /// # Errors
    /// For anything but the whole output of [`Self::to_bytes`] of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        match bytes {
            [] => Ok(Self::default()),
            _ => decode_version(VERSION, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn commands() -> SessionCommands {
        SessionCommands {
            clears: u32::MAX,
            clear_for: GenerationId([255; 8]),
            compacts: u32::MAX,
            compact_for: GenerationId([255; 8]),
            auto_compact: Some(false),
            outcomes: Vec::new(),
        }
    }

    #[test]
    fn stored_commands_are_read_back() {
        let bytes = commands().to_bytes().unwrap();
        assert_eq!(SessionCommands::from_bytes(&bytes).unwrap(), commands());
        assert!(bytes.len() <= 40, "{}", bytes.len());
        let empty = SessionCommands::from_bytes(&[]).unwrap();
        assert_eq!(empty, SessionCommands::default());
    }

    #[test]
    fn other_versions_and_trailing_bytes_are_refused() {
        let mut bytes = commands().to_bytes().unwrap();
        bytes.push(0);
        let trailing = SessionCommands::from_bytes(&bytes);
        assert!(matches!(trailing, Err(StateError::Length)));
        bytes[0] = VERSION + 1;
        let newer = SessionCommands::from_bytes(&bytes);
        assert!(matches!(newer, Err(StateError::Newer(_))));
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
