//! What a request asks of a model, in the words of OpenTelemetry's conventions.

/// A kind of generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Chat,
    Embeddings,
    TextCompletion,
}

impl Operation {
    /// Of a path; what follows `/v1`. `None`: something else.
    pub fn from_path(path: &str) -> Option<Self> {
        match path {
            "/chat/completions" => Some(Self::Chat),
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
