//! The paths of the wire formats.

use http::HeaderMap;

use super::rules::FormatRules;
use crate::conversation::{FORMATS, Format};

impl Format {
    /// The path of a request, behind `/v1`.
    pub fn path(self) -> &'static str {
        &self.rules().route["/v1".len()..]
    }

    /// The format whose guarded requests have this path behind `/v1`.
    pub fn from_path(path: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.path() == path)
    }

    /// The format whose requests have their tokens counted at this path behind `/v1`.
    pub fn from_count_path(path: &str) -> Option<Self> {
        Self::find(|rules| rules.count_path == Some(path))
    }

    /// The format whose conversations are compacted to a list at this path behind `/v1`.
    pub fn from_compact_path(path: &str) -> Option<Self> {
        Self::find(|rules| rules.compact_path == Some(path))
    }

    fn find(has: impl Fn(&FormatRules) -> bool) -> Option<Self> {
        FORMATS.into_iter().find(|format| has(format.rules()))
    }

    /// Finds the format of a request by its whole path: the format whose path is this path or a parent of it, else the
    /// format of the client. Clients get errors in the shape of this format.
    pub fn of_request(path: &str, headers: &HeaderMap) -> Self {
        // A provider's name may come before `/v1/`, and may itself begin with `v1`.
        let start = path.rfind("/v1/").map_or(path.len(), |at| at + "/v1".len());
        let is_below = |format: &Self| {
            let rest = path[start..].strip_prefix(format.path());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let of_path = FORMATS.into_iter().find(is_below);
        of_path.unwrap_or_else(|| Self::of_client(headers))
    }

    /// Finds the format that a client uses by its headers, for paths that serve all formats.
    pub fn of_client(headers: &HeaderMap) -> Self {
        let sends = |header| headers.contains_key(header);
        Self::find(|rules| rules.client_header.is_some_and(sends)).unwrap_or_default()
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
        anthropic.insert("anthropic-version", "2023-06-01".parse().unwrap());
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
