//! The ids by which a model looks up what was cut, and the words by which placeholders name them.
//!
//! An id follows from the place of its message, counted without system messages, since these come and go. So it
//! means the same in every request, on any replica and after a restart.

use std::fmt;

/// The id of everything that was left out. It has no number, since a preface is the same in every request.
pub const EARLIER: &str = "earlier";

/// The id of one message: `m1` is the first one that is no system message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecallId(usize);

impl RecallId {
    /// Of the message after so many others.
    pub const fn of_message(before: usize) -> Self {
        Self(before + 1)
    }

    /// The messages before it, without system messages; `None` for what is no id of a message.
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

/// Most characters that [`write_pointer`] adds.
pub(in crate::guard) const MAX_POINTER_CHARS: usize = 23;

/// What the marker of a truncated result adds; nothing without an id. Needs no escapes.
pub(in crate::guard) fn write_pointer(id: Option<RecallId>) -> String {
    id.map_or_else(String::new, |id| format!("; recall id {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
