//! Wishes about a session from outside, carried out by its next request.
//!
//! The store keeps them beside the session's states, as a version byte and a compact encoding.
//! Reading anything else is an error, never a panic.
//!
//! SECURITY: a hint may group conversations in one session, such as an agent's and those of its
//! sub-agents. So a wish names the generation that was the session's newest when it was made, and
//! counts only for conversations that continue it.

use serde::{Deserialize, Serialize};

use super::{
    Lineage,
    lineage::Keys,
    state::{State, StateError},
};
use crate::store::Row;

/// First byte of all stored orders; changes with the meaning of any byte after it.
const VERSION: u8 = 1;

/// What is asked for, of one session. Without any, the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// A new course is asked for until the conversation's state counts so many clears from
    /// outside: a retry of the request that carried it out clears again, one after it does not.
    pub clears: u32,
    made_for: Option<MadeFor>,
}

/// The generation that was the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MadeFor {
    keys: Keys,
    opening: u64,
}

impl Orders {
    /// A new course for the conversation of the session's newest generation. Asked for twice
    /// before it was carried out, it is one.
    pub fn clear(newest: &Row, state: &State) -> Self {
        Self {
            clears: state.recovery.clears.saturating_add(1),
            made_for: Some(MadeFor {
                keys: newest.keys,
                opening: newest.opening,
            }),
        }
    }

    /// Whether a request is to begin a new course, which continues `state`.
    pub fn ask_clear_of(&self, lineage: &Lineage, state: &State) -> bool {
        self.clears > state.recovery.clears
            && self
                .made_for
                .is_some_and(|made_for| lineage.continues(&made_for.keys))
    }

    /// Whether a clear is asked for and not yet carried out, by the session's newest generation.
    ///
    /// It may have been made by a request that was under way when the clear was asked for, so its
    /// conversation is compared, not the generation.
    pub fn clear_pending(&self, newest: &Row, state: &State) -> bool {
        self.clears > state.recovery.clears
            && self
                .made_for
                .is_some_and(|made_for| made_for.opening == newest.opening)
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
    use crate::store::suite::key;

    fn orders() -> Orders {
        Orders {
            clears: 3,
            made_for: Some(MadeFor {
                keys: Keys {
                    exact: key(1),
                    gap: None,
                    bare: key(2),
                },
                opening: u64::MAX,
            }),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = orders().encode().unwrap();
        assert_eq!(Orders::decode(&bytes).unwrap(), orders());
        assert!(bytes.len() <= 64, "{}", bytes.len());
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
