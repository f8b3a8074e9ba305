//! The kind of a generation, in the words of OpenTelemetry's conventions.

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
            "/chat/completions" | "/messages" | "/responses" => Some(Self::Chat),
            "/embeddings" => Some(Self::Embeddings),
            "/completions" => Some(Self::TextCompletion),
            _ => None,
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
