//! Wishes about a session from outside, carried out by its next request.
//!
//! The store keeps them beside the session's states, as a version byte and a compact encoding.
//! Reading anything else is an error, never a panic.
//!
//! SECURITY: a hint may group conversations in one session, such as an agent's and those of its
//! sub-agents, which may even begin alike. So a wish names the generation that was the session's
//! newest when it was made, and counts only for what goes on from that one.

use serde::{Deserialize, Serialize};

use super::state::{GenerationId, State, StateError};

/// First byte of all stored orders; changes with the meaning of any byte after it.
const VERSION: u8 = 1;

/// What is asked for, of one session. Without any, the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// A new course is asked for until the conversation's state counts so many clears from
    /// outside: a retry of the request that carried it out clears again, one after it does not.
    pub clears: u32,
    pub(super) made_for: GenerationId,
}

impl Orders {
    /// A new course for the conversation of the session's newest generation, whose state this is.
    /// Asked for twice before it was carried out, it is one.
    pub const fn clear(newest: &State) -> Self {
        Self {
            clears: newest.recovery.clears.saturating_add(1),
            made_for: newest.id,
        }
    }

    /// Whether a new course is asked for of what goes on from this state, and was not begun yet.
    ///
    /// The order may have come while the request of this state was under way: then it was made for
    /// the generation before.
    pub fn ask_clear_after(&self, state: &State) -> bool {
        self.clears > state.recovery.clears && [state.id, state.follows].contains(&self.made_for)
    }

    /// The stored form.
    ///
    /// # Errors
    /// Where the encoding fails.
    pub fn encode(&self) -> Result<Vec<u8>, StateError> {
        postcard::to_extend(self, vec![VERSION]).map_err(StateError::Malformed)
    }

    /// Reads a stored form; no bytes are no orders.
    ///
    /// # Errors
    /// For anything else than the whole of what [`Self::encode`] of this version wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
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

    fn orders() -> Orders {
        Orders {
            clears: u32::MAX,
            made_for: GenerationId::from_bytes([255; 8]),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = orders().encode().unwrap();
        assert_eq!(Orders::decode(&bytes).unwrap(), orders());
        assert!(bytes.len() <= 16, "{}", bytes.len());
        assert_eq!(Orders::decode(&[]).unwrap(), Orders::default());
    }

    #[test]
    fn other_versions_and_leftovers_are_refused() {
        let mut bytes = orders().encode().unwrap();
        bytes.push(0);
        assert!(matches!(Orders::decode(&bytes), Err(StateError::Length)));
        bytes[0] = VERSION + 1;
        let other = Orders::decode(&bytes);
        assert!(matches!(other, Err(StateError::Version(_))));
    }

    proptest! {
        #[test]
        fn reading_anything_never_panics(mut bytes: Vec<u8>, versioned: bool) {
            if versioned {
                bytes.insert(0, VERSION);
            }
            let _ = Orders::decode(&bytes);
        }
    }
}
