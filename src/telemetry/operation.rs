//! The kind of a generation, in the words of OpenTelemetry's conventions.

use crate::conversation::Format;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Chat,
    Embeddings,
    TextCompletion,
}

impl Operation {
    /// `path` is the part behind `/v1`.
    pub fn from_path(path: &str) -> Option<Self> {
        match path {
            "/embeddings" => Some(Self::Embeddings),
            "/completions" => Some(Self::TextCompletion),
            path => Format::from_path(path).map(|_| Self::Chat),
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
            Self::TextCompletion => "text_completion",
        }
    }
}
