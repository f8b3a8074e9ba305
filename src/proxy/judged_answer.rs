//! What is known of an answer at its end.

use crate::relay::ResponseSummary;

/// An answer, and the result of comparing it with the session's previous one.
#[derive(Clone, Copy)]
pub struct JudgedAnswer<'a> {
    pub response: &'a ResponseSummary,
    /// The provider truncates prompts silently: it counted fewer tokens than were sent.
    pub silently_truncated: bool,
}

/// The prompt tokens that the provider reported. Zero counts as no report: servers that do not count send it.
pub fn reported_tokens(response: &ResponseSummary) -> Option<u32> {
    let tokens = response.usage.map(|usage| usage.prompt_tokens);
    tokens.filter(|&tokens| tokens > 0)
}

/// Returns the tokens of everything that was sent: those that the provider reported, and those that the provider says it
/// cleared before it counted. Use this number to compare an estimate with a count.
pub fn counted_tokens(response: &ResponseSummary) -> Option<u32> {
    reported_tokens(response).map(|tokens| tokens.saturating_add(response.cleared_tokens))
}
