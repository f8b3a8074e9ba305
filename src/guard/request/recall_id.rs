//! The ids by which a model looks up what was cut, and the words by which placeholders name them.
//!
//! An id follows from the place of its message, counted without system messages, since these come and go. It therefore means
//! the same in every request, on any replica and after a restart.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of everything that was left out. It has no number, since a preface is the same in every request.
pub const EARLIER: &str = "earlier";

/// The id of one message: `m1` is the first one that is no system message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecallId(usize);

impl RecallId {
    /// The id of the message that `before` messages precede, system messages not counted.
    pub const fn of_message(before: usize) -> Self {
        Self(before + 1)
    }

    /// Parses the id of a message: how many messages precede it, system messages not counted; `None` for other texts.
    pub fn parse_place(id: &str) -> Option<usize> {
        let number = id.strip_prefix(['m', 'M']).unwrap_or(id);
        number.parse::<usize>().ok()?.checked_sub(1)
    }
}

impl fmt::Display for RecallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// Most changes that are remembered. From then on new messages name no ids, whatever their request may offer.
const MAX_CHANGES: usize = 32;

/// Which cuts name ids. A cut keeps the words that it was made with, so that the front of the prompt stays. If a request
/// without the tool follows one with it, or the other way round, only the cuts of its new messages have other words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedIds {
    /// Whether the cuts of the first messages name ids, and the note that replaces what is left out.
    pub(in crate::guard) first: bool,
    /// The messages from which on this is reversed, counted without system messages.
    changes: Vec<u32>,
}

impl NamedIds {
    pub(in crate::guard) const NONE: &'static Self = &Self::all(false);

    pub(in crate::guard) const fn all(first: bool) -> Self {
        let changes = Vec::new();
        Self { first, changes }
    }

    /// Whether the cut of a message names its id.
    pub(in crate::guard) fn names(&self, place: usize) -> bool {
        let changes = self.changes.iter().filter(|&&it| it as usize <= place);
        self.first != (changes.count() % 2 == 1)
    }

    /// The next value, for a request whose messages from `place` on are new. `offer`: it may offer the tool.
    pub(in crate::guard) fn go_on(&self, place: u32, offer: bool) -> Self {
        let mut next = self.clone();
        next.changes.retain(|&it| it < place);
        let is_last = next.changes.len() + 1 >= MAX_CHANGES;
        // The last change must be one to no ids: otherwise placeholders would offer for ever what cannot be recalled.
        if next.names(place as usize) != offer
            && (!is_last || !offer && next.changes.len() < MAX_CHANGES)
        {
            next.changes.push(place);
        }
        next
    }
}

/// Most characters that [`write_pointer`] adds.
pub(in crate::guard) const MAX_POINTER_CHARS: usize = 23;

/// Writes what the marker of a truncated result adds: nothing without an id. The text needs no escapes.
pub(in crate::guard) fn write_pointer(id: Option<RecallId>) -> String {
    id.map_or_else(String::new, |id| format!("; recall id {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_messages_are_cut_by_their_own_request() {
        let list = |ids: &NamedIds| (0..8).map(|at| ids.names(at)).collect::<Vec<_>>();
        let mut ids = NamedIds::all(true).go_on(3, true);
        assert_eq!(list(&ids), [true; 8]);
        ids = ids.go_on(5, false);
        assert_eq!(
            list(&ids),
            [true, true, true, true, true, false, false, false]
        );
        // A round without the tool, and the request after it with it.
        assert_eq!(ids.go_on(5, true), NamedIds::all(true));
        assert_eq!(
            list(&ids.go_on(7, true)),
            [true, true, true, true, true, false, false, true]
        );
        for place in 8..10_000 {
            ids = ids.go_on(place, place % 2 == 0);
        }
        assert!(ids.changes.len() <= MAX_CHANGES && !ids.names(10_000));
    }

    #[test]
    fn an_id_is_the_place_of_its_message() {
        let id = RecallId::of_message(16);
        assert_eq!(id.to_string(), "m17");
        for spelled in ["m17", "M17", "17"] {
            assert_eq!(RecallId::parse_place(spelled), Some(16), "{spelled}");
        }
        for other in ["", "m", "m0", "-1", "earlier", "m99999999999999999999"] {
            assert_eq!(RecallId::parse_place(other), None, "{other}");
        }
        let longest = RecallId::of_message(u32::MAX as usize - 1);
        assert_eq!(write_pointer(Some(longest)).len(), MAX_POINTER_CHARS);
    }
}
