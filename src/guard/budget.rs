//! Window, reserve and budget: how many tokens a prompt may use.

use serde::Serialize;

use super::{Policy, estimate};
use crate::{
    config::profile::AnswerRoom,
    conversation::{Author, Conversation},
};

/// One part in so many of every limit stays free: an estimate is a guess.
pub(super) const MARGIN: u32 = 64;

/// The budget of one request; everything in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    pub window: u32,
    /// Kept free for the answer; 0 where the profile counts answers apart from the window. Where the request's
    /// answer cap may be lowered, this is the expected answer length.
    pub reserve: u32,
    /// The largest prompt.
    pub tokens: u32,
}

/// The budget of a request whose answer cap goes out as asked.
pub fn compute_request_budget(conversation: &Conversation, policy: &Policy<'_>) -> Budget {
    let asked = conversation.max_answer_tokens();
    match asked.filter(|_| policy.profile.checks_answer_cap()) {
        Some(asked) => budget_with_reserve(u32::try_from(asked).unwrap_or(u32::MAX), policy),
        None => default_budget(policy),
    }
}

/// The budget of a request without an answer cap, before any answer. The shares of named texts and of the ledger
/// stand on it, so that they do not move.
pub fn default_budget(policy: &Policy<'_>) -> Budget {
    let reserve = match policy.profile.answer_room {
        AnswerRoom::Checked | AnswerRoom::Shared => policy.settings.default_reserve(policy.window),
        AnswerRoom::Apart => 0,
    };
    budget_with_reserve(reserve, policy)
}

/// The budget beside an answer of `reserve` tokens, which counts up to half of the window.
pub(super) fn budget_with_reserve(reserve: u32, policy: &Policy<'_>) -> Budget {
    let window = policy.window;
    // A request that asks for more goes out all the same: the provider decides.
    let reserve = reserve.min(window / 2);
    let most = (window - reserve)
        .min(policy.input_limit.unwrap_or(u32::MAX))
        .min(policy.settings.max_prompt_tokens.unwrap_or(u32::MAX));
    Budget {
        window,
        reserve,
        tokens: most - most / MARGIN,
    }
}

/// Raw tokens of a request by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenShares {
    pub system: u32,
    /// Tool schemas and the response format, with what a request costs by itself.
    pub tools: u32,
    /// User and assistant messages, calls included.
    pub history: u32,
    pub tool_results: u32,
    pub images: u32,
}

impl TokenShares {
    pub const fn total(&self) -> u32 {
        let messages = self.system.saturating_add(self.history);
        let rest = self.tool_results.saturating_add(self.images);
        messages.saturating_add(rest).saturating_add(self.tools)
    }
}

/// The shares of a request whose tools weigh `tools` raw tokens. `tokens` is 0 for a message that does not go out.
pub(super) fn measure_shares(
    tools: u32,
    conversation: &Conversation,
    policy: &Policy<'_>,
    tokens: &[u32],
) -> TokenShares {
    let weights = policy.token_weights();
    let mut shares = TokenShares {
        tools,
        ..TokenShares::default()
    };
    for (message, &tokens) in conversation.items.iter().zip(tokens) {
        let media = estimate::estimate_media(conversation, message, &weights, policy.profile);
        let media = media.min(tokens);
        shares.images = shares.images.saturating_add(media);
        let share = match message.author {
            Author::System => &mut shares.system,
            Author::Tool => &mut shares.tool_results,
            Author::User | Author::Model | Author::Unknown => &mut shares.history,
        };
        *share = share.saturating_add(tokens - media);
    }
    shares
}
