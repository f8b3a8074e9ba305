//! Window, reserve and budget: how many tokens a prompt may use.

use serde::Serialize;

pub(in crate::guard) use crate::config::PROMPT_MARGIN as MARGIN;
use crate::{
    config::profile::AnswerRoom,
    conversation::{Author, Conversation},
    guard::request::{estimate, policy::Policy},
};

/// The largest window that is called medium; tokens.
pub(in crate::guard) const MEDIUM_WINDOW: u32 = 65_536;

/// The budget of one request; everything in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    pub window: u32,
    /// Kept free for the answer; 0 where the profile counts answers apart from the window. Where the request's
    /// answer cap may be lowered, this is the expected answer length.
    pub reserve: u32,
    /// By how much the reserve is less than usual, because system messages and tools leave little of the window.
    pub reserve_given_up: u32,
    /// The largest prompt.
    pub tokens: u32,
    /// The window is only guessed, and nothing else limits the prompt: shares are computed from `tokens`, but cuts are not.
    pub is_open: bool,
}

impl Budget {
    /// Returns the budget with what its reserve is short of the `usual` one, of which half of the window counts at most.
    pub(in crate::guard) fn with_usual_reserve(self, usual: u32) -> Self {
        let most = self.window / 2;
        Self {
            reserve_given_up: usual.min(most).saturating_sub(self.reserve),
            ..self
        }
    }

    /// The largest prompt that is not cut.
    pub const fn uncut_tokens(&self) -> u32 {
        if self.is_open { u32::MAX } else { self.tokens }
    }
}

/// The budget of a request whose answer cap is sent as asked.
pub fn compute_request_budget(conversation: &Conversation, policy: &Policy<'_>) -> Budget {
    let asked = conversation.max_answer_tokens();
    match asked.filter(|_| policy.profile.checks_answer_cap()) {
        Some(asked) => budget_with_reserve(u32::try_from(asked).unwrap_or(u32::MAX), policy),
        None => default_budget(policy),
    }
}

/// The budget of a request without an answer cap, before any answer. The shares of named texts and of the ledger are parts
/// of it, so that they do not change.
pub fn default_budget(policy: &Policy<'_>) -> Budget {
    let reserve = match policy.profile.answer_room {
        AnswerRoom::Checked | AnswerRoom::Shared => policy.settings.default_reserve(policy.window),
        AnswerRoom::Apart => 0,
    };
    budget_with_reserve(reserve, policy)
}

/// The budget if `reserve` tokens stay free for the answer; at most half of the window counts as the reserve.
pub(in crate::guard) fn budget_with_reserve(reserve: u32, policy: &Policy<'_>) -> Budget {
    let window = policy.window;
    // A request that asks for more is sent all the same: the provider decides.
    let reserve = reserve.min(window / 2);
    let is_open = policy.is_open();
    let room = if policy.cuts_by_window() || is_open {
        window - reserve
    } else {
        u32::MAX
    };
    Budget {
        window,
        reserve,
        reserve_given_up: 0,
        tokens: policy.settings.limit_prompt(room, policy.input_limit),
        is_open,
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

/// The shares of a request whose tools weigh `tools` raw tokens. `tokens` is 0 for a message that is not sent.
pub(in crate::guard) fn measure_shares(
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
        let media = estimate::estimate_media(conversation, message, &weights);
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

#[cfg(test)]
mod tests {
    use super::{Budget, budget_with_reserve};
    use crate::{
        config::{GuardConfig, tokens::unknown_model},
        guard::{Policy, profile::find_profile},
    };

    fn budget(profile: &str, guessed: bool, input: Option<u32>, cap: Option<u32>) -> Budget {
        let settings = GuardConfig {
            max_prompt_tokens: cap,
            ..GuardConfig::default()
        };
        let policy = Policy {
            window_is_guessed: guessed,
            input_limit: input,
            ..Policy::new(
                find_profile(profile).unwrap(),
                96_000,
                unknown_model(),
                &settings,
            )
        };
        budget_with_reserve(0, &policy)
    }

    #[track_caller]
    fn check(found: Budget, tokens: u32, uncut: u32) {
        assert_eq!((found.tokens, found.uncut_tokens()), (tokens, uncut));
    }

    #[test]
    fn a_guessed_window_cuts_only_where_the_front_is_dropped_in_silence() {
        for profile in ["openai", "anthropic", "template"] {
            check(budget(profile, true, None, None), 94_500, u32::MAX);
            check(budget(profile, false, None, None), 94_500, 94_500);
        }
        check(budget("ollama", true, None, None), 94_500, 94_500);
    }

    #[test]
    fn what_is_known_of_the_prompt_alone_limits_it_beyond_a_guessed_window() {
        check(
            budget("openai", true, Some(200_000), None),
            196_875,
            196_875,
        );
        check(
            budget("openai", true, Some(200_000), Some(64_000)),
            63_000,
            63_000,
        );
        check(budget("openai", true, None, Some(6_400)), 6_300, 6_300);
        check(budget("ollama", true, Some(200_000), None), 94_500, 94_500);
        check(budget("openai", false, Some(200_000), None), 94_500, 94_500);
    }
}
