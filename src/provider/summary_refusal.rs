//! Detects that a provider refuses a summary of its own: to make one, or one that it made.

use http::StatusCode;

use super::overflow::{has_code, read_error_sentences};

/// Why a provider refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryRefusal {
    /// None is to be had for now.
    Unavailable,
    /// By a code of its own: this conversation has none, or it is not as it was made.
    Invalid,
    /// The error names the member or the block, so that the provider does not know it.
    Unknown,
}

/// Judges an error by its status and its decoded body.
pub fn detect_summary_refusal(status: StatusCode, body: &[u8]) -> Option<SummaryRefusal> {
    if !matches!(status.as_u16(), 400 | 422) {
        return None;
    }
    let is_named = |word: &str| read_error_sentences(body).any(|text| text.contains(word));
    let is_told = |code: &str| has_code(body, code) || is_named(code);
    Some(match () {
        () if is_told("compaction_unavailable") => SummaryRefusal::Unavailable,
        () if is_told("compaction_") => SummaryRefusal::Invalid,
        () if is_named("compaction") => SummaryRefusal::Unknown,
        () => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_code_is_told_from_a_member_that_the_provider_does_not_know() {
        let detect = |status, message: &str, code: &str| {
            let details = json!({"error_code": code});
            let error =
                json!({"type": "invalid_request_error", "message": message, "details": details});
            let body = json!({"type": "error", "error": error}).to_string();
            detect_summary_refusal(StatusCode::from_u16(status).unwrap(), body.as_bytes())
        };
        for (status, message, code, expected) in [
            (
                400,
                "compaction: Extra inputs are not permitted",
                "",
                Some(SummaryRefusal::Unknown),
            ),
            (
                422,
                "messages.0.content.0: 'compaction' is not one of the expected content block types",
                "",
                Some(SummaryRefusal::Unknown),
            ),
            (
                400,
                "Try again.",
                "compaction_unavailable",
                Some(SummaryRefusal::Unavailable),
            ),
            (
                400,
                "No.",
                "compaction_signature_invalid",
                Some(SummaryRefusal::Invalid),
            ),
            (
                400,
                "compaction_incomplete_turn",
                "",
                Some(SummaryRefusal::Invalid),
            ),
            (529, "compaction: overloaded", "", None),
            (400, "prompt is too long", "", None),
        ] {
            assert_eq!(detect(status, message, code), expected, "{message} {code}");
        }
    }
}
