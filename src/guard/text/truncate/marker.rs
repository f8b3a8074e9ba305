//! The marker in the place of characters that were truncated.

use crate::guard::request::recall_id::{self, RecallId};

/// What takes the place of the removed characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationMarker {
    Plain,
    /// Says that the window is nearly full, so that the model asks for less.
    NearlyFull,
}

/// The longest plain marker: its words, the number, two line ends.
pub(super) const MARKER_CHARS: usize = 52;
/// The bytes of a marker less its characters: each of its two line ends is escaped as two bytes.
pub(in crate::guard) const MARKER_BYTES: usize = 2;

impl TruncationMarker {
    /// The longest marker of this kind without an id.
    pub(in crate::guard) const fn max_chars(self) -> usize {
        MARKER_CHARS + self.advice().len()
    }

    /// The longest marker of this kind.
    pub(super) const fn max_chars_with(self, id: Option<RecallId>) -> usize {
        let pointer = if id.is_some() {
            recall_id::MAX_POINTER_CHARS
        } else {
            0
        };
        self.max_chars() + pointer
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::NearlyFull => ": the context window is nearly full, read smaller parts",
        }
    }

    /// The marker for `chars` removed characters, escaped.
    pub(in crate::guard) fn format_marker(self, chars: usize, id: Option<RecallId>) -> String {
        let (advice, pointer) = (self.advice(), recall_id::write_pointer(id));
        format!("\\n... [{chars} characters truncated{advice}{pointer}] ...\\n")
    }
}
