//! Detects that a provider refuses the beta by which a model has its larger window: the account does not have it, or the
//! provider does not know it.
//!
//! The wordings are those of Anthropic's API, as users of Claude Code report them (anthropics/claude-code 23822 and 42616),
//! and of Amazon Bedrock.

use http::StatusCode;

use super::overflow::read_error_sentences;

/// Parts of a sentence that refuses the beta.
const WORDS: &[&str] = &[
    "long context beta",
    "extra usage is required for long context",
];
/// A part of one that refuses some beta.
const WORDS_OF_ANY: &str = "invalid beta flag";

/// Judges an error by its status and its decoded body. `names`: the betas of windows that the proxy added to the request.
/// `has_others`: the client sent others.
pub fn refuses_window_beta<'a>(
    status: StatusCode,
    body: &[u8],
    names: impl Iterator<Item = &'a str>,
    has_others: bool,
) -> bool {
    if !matches!(status.as_u16(), 400 | 403 | 422 | 429) {
        return false;
    }
    let names: Vec<&str> = names.collect();
    let is_refusal = |text: String| {
        names.iter().any(|name| is_named(&text, name))
            || WORDS.iter().any(|word| text.contains(word))
            || !has_others && text.contains(WORDS_OF_ANY)
    };
    read_error_sentences(body).any(is_refusal)
}

/// Whether a text has the name, and not as the beginning of a longer one.
fn is_named(text: &str, name: &str) -> bool {
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut found = text.match_indices(name);
    found.any(|(at, _)| !text[at + name.len()..].starts_with(goes_on))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_is_known_by_its_words() {
        for (status, message, expected) in [
            (
                400,
                "The long context beta is not yet available for this subscription.",
                true,
            ),
            (
                429,
                "Extra usage is required for long context requests.",
                true,
            ),
            (
                400,
                "Unexpected value(s) `context-1m-2025-08-07` for the `anthropic-beta` header.",
                true,
            ),
            (
                400,
                "Unexpected value(s) `context-1m-2025-08-07x` for the `anthropic-beta` header.",
                false,
            ),
            (400, "invalid beta flag", true),
            (
                400,
                "prompt is too long: 210000 tokens > 200000 maximum",
                false,
            ),
            (429, "This request would exceed your rate limit.", false),
            (500, "The long context beta is not yet available.", false),
        ] {
            let error = json!({"type": "invalid_request_error", "message": message});
            let body = json!({"type": "error", "error": error}).to_string();
            let status = StatusCode::from_u16(status).unwrap();
            let names = ["context-1m-2025-08-07"].into_iter();
            let found = refuses_window_beta(status, body.as_bytes(), names.clone(), false);
            assert_eq!(found, expected, "{message}");
            let beside = refuses_window_beta(status, body.as_bytes(), names, true);
            let names_none = message == WORDS_OF_ANY;
            assert_eq!(beside, expected && !names_none, "{message}");
        }
    }
}
