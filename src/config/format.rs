//! The wire formats by name.

use serde::{Deserialize, Serialize};

/// The wire format of a request. Stored in session states, so the order of variants never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// The API that a format is a part of: its keys, its errors, its lists of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Most providers have it.
    OpenAi,
    Anthropic,
}

/// The formats that clients may ask in.
pub const FORMATS: [Format; 3] = [Format::Chat, Format::Messages, Format::Responses];

/// A format that is missing in the list does not compile.
#[cfg(test)]
const _: () = assert!(Format::Toy as usize == FORMATS.len());

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

    pub const fn api(self) -> Api {
        match self {
            Self::Chat | Self::Responses => Api::OpenAi,
            Self::Messages => Api::Anthropic,
            #[cfg(test)]
            Self::Toy => Api::OpenAi,
        }
    }
}
