//! The paths of the wire formats.

use http::HeaderMap;

use crate::conversation::{FORMATS, Format};

/// The header that every client of Messages sends, on any path.
const ANTHROPIC_VERSION: &str = "anthropic-version";

/// The path behind `/v1` where a conversation in Responses is compacted.
pub const COMPACT_PATH: &str = "/responses/compact";

impl Format {
    /// The path of a request, behind `/v1`.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Messages => "/messages",
            Self::Responses => "/responses",
            #[cfg(test)]
            Self::Toy => "/toy",
        }
    }

    /// The path behind `/v1` where the tokens of a request are counted.
    pub const fn count_path(self) -> Option<&'static str> {
        match self {
            Self::Messages => Some("/messages/count_tokens"),
            Self::Responses => Some("/responses/input_tokens"),
            Self::Chat => None,
            #[cfg(test)]
            Self::Toy => None,
        }
    }

    /// The format whose requests have their tokens counted at this path behind `/v1`.
    pub fn from_count_path(path: &str) -> Option<Self> {
        let mut formats = FORMATS.into_iter();
        formats.find(|format| format.count_path() == Some(path))
    }

    /// The format whose guarded requests have this path behind `/v1`.
    pub fn from_path(path: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.path() == path)
    }

    /// The format of a request with this whole path: that whose path is this or above it, else that of the client.
    /// Clients read errors in its shape.
    pub fn of_request(path: &str, headers: &HeaderMap) -> Self {
        // A provider's name, which may begin with `v1`, stands before it.
        let start = path.rfind("/v1/").map_or(path.len(), |at| at + "/v1".len());
        let is_below = |format: &Self| {
            let rest = path[start..].strip_prefix(format.path());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_a_path_is_found_behind_any_provider() {
        let none = HeaderMap::new();
        for (path, format) in [
            ("/v1/messages", Format::Messages),
            ("/v1/messages/count_tokens", Format::Messages),
            ("/v1-eu/v1/messages", Format::Messages),
            ("/v1/messagesx", Format::Chat),
            ("/messages/v1/chat/completions", Format::Chat),
            ("/v1/models", Format::Chat),
            ("/v1/responses", Format::Responses),
            ("/v1/responses/input_tokens", Format::Responses),
            ("/", Format::Chat),
        ] {
            assert_eq!(Format::of_request(path, &none), format, "{path}");
        }
        let mut anthropic = HeaderMap::new();
        anthropic.insert(ANTHROPIC_VERSION, "2023-06-01".parse().unwrap());
        assert_eq!(
            Format::of_request("/v1/models", &anthropic),
            Format::Messages
        );
        assert_eq!(
            Format::of_request("/v1/chat/completions", &anthropic),
            Format::Chat
        );
    }
}
