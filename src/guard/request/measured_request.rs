//! A request with its tools as they are sent: its tokens and its budgets.

use crate::{
    conversation::Conversation,
    guard::request::{
        answer_cap::{PastAnswers, SessionBudgets},
        budget::{self, TokenShares},
        estimate,
        policy::Policy,
        short_tools::ShortTools,
    },
};

pub(in crate::guard) struct MeasuredRequest<'a> {
    /// Raw tokens of every message.
    pub(in crate::guard) tokens: Vec<u32>,
    pub(in crate::guard) shares: TokenShares,
    /// The shares of the request as it came.
    pub(in crate::guard) came: TokenShares,
    pub(in crate::guard) budgets: SessionBudgets<'a>,
    pub(in crate::guard) tools: ShortTools,
}

impl<'a> MeasuredRequest<'a> {
    /// The request with its tools as they came.
    pub(in crate::guard) fn new(
        conversation: &Conversation,
        policy: &'a Policy<'a>,
        past: &PastAnswers,
    ) -> Self {
        Self::with_tools(conversation, policy, past, ShortTools::default())
    }

    pub(in crate::guard) fn with_tools(
        conversation: &Conversation,
        policy: &'a Policy<'a>,
        past: &PastAnswers,
        tools: ShortTools,
    ) -> Self {
        let weights = policy.token_weights();
        let mut tokens = estimate::estimate_messages(conversation, &weights);
        let beside = estimate::estimate_outside_messages(conversation, &weights);
        let came = budget::measure_shares(beside, conversation, policy, &tokens);
        for item in &tools.items {
            tokens[item.at] = tokens[item.at].saturating_sub(item.tokens);
        }
        let beside = beside.saturating_sub(tools.freed);
        let shares = match tools.brevity {
            None => came,
            Some(_) => budget::measure_shares(beside, conversation, policy, &tokens),
        };
        Self {
            shares,
            came,
            budgets: SessionBudgets::new(conversation, policy, past, &tokens, beside),
            tokens,
            tools,
        }
    }
}
