//! What is known of an answer when it is over.

use crate::relay::ResponseSummary;

/// What an answer says, and what follows from comparing it with the one before it.
#[derive(Clone, Copy)]
pub struct AnswerFacts<'a> {
    pub heard: &'a ResponseSummary,
    /// The provider was found to cut prompts in silence: what it counted is not what was sent.
    pub cut_in_silence: bool,
}

/// Tokens of the prompt. No prompt has none: servers that do not count report a zero.
pub fn reported_tokens(heard: &ResponseSummary) -> Option<u32> {
    let tokens = heard.usage.map(|usage| usage.prompt_tokens);
    tokens.filter(|&tokens| tokens > 0)
}
