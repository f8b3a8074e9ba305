//! The paths of the wire formats.

use http::HeaderMap;

use crate::conversation::{FORMATS, Format};

/// Behind `/v1`, where the tokens of a Messages request are counted.
pub const COUNT_TOKENS_PATH: &str = "/messages/count_tokens";

/// The header that every client of Messages sends, on any path.
const ANTHROPIC_VERSION: &str = "anthropic-version";

impl Format {
    /// The path of a request, behind `/v1`.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Messages => "/messages",
            #[cfg(test)]
            Self::Toy => "/toy",
        }
    }

    /// The format whose requests have this path behind `/v1`.
    pub fn from_path(path: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.path() == path)
    }

    /// The format of a request with this whole path: that whose path is this or above it, else that of the client.
    /// Clients read errors in its shape.
    pub fn of_request(path: &str, headers: &HeaderMap) -> Self {
        let is_below = |format: &Self| {
            let (_, rest) = path.split_once("/v1").unwrap_or_default();
            let rest = rest.strip_prefix(format.path());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let of_path = FORMATS.into_iter().find(is_below);
        of_path.unwrap_or_else(|| Self::of_client(headers))
    }

    /// The format that a client speaks, by its headers; for paths that serve all formats.
    pub fn of_client(headers: &HeaderMap) -> Self {
        match headers.contains_key(ANTHROPIC_VERSION) {
            true => Self::Messages,
            false => Self::Chat,
        }
    }

    /// The format with this name in settings and options.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut formats = FORMATS.into_iter();
        formats.find(|format| format.name() == name)
    }
}
