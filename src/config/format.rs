//! The wire formats by name.

use serde::{Deserialize, Serialize};

/// The wire format of a request. Stored in session states, so the order of variants never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// OpenAI's chat completions.
    #[default]
    Chat,
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
    /// A format of the tests, see `format/tests/toy.rs`.
    #[cfg(test)]
    Toy,
}

/// The formats that clients may ask in.
pub const FORMATS: [Format; 3] = [Format::Chat, Format::Messages, Format::Responses];

impl Format {
    /// The name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::Responses => "responses",
            #[cfg(test)]
            Self::Toy => "toy",
        }
    }
}
