//! A request as it came: its tokens and its budgets.

use crate::{
    conversation::Conversation,
    guard::request::{
        answer_cap::{PastAnswers, SessionBudgets},
        budget::{self, TokenShares},
        estimate,
        policy::Policy,
    },
};

pub(in crate::guard) struct MeasuredRequest<'a> {
    /// Raw tokens of every message.
    pub(in crate::guard) tokens: Vec<u32>,
    pub(in crate::guard) shares: TokenShares,
    pub(in crate::guard) budgets: SessionBudgets<'a>,
}

impl<'a> MeasuredRequest<'a> {
    pub(in crate::guard) fn new(
        conversation: &Conversation,
        policy: &'a Policy<'a>,
        past: &PastAnswers,
    ) -> Self {
        let weights = policy.token_weights();
        let tokens = estimate::estimate_messages(conversation, &weights);
        let tools = estimate::estimate_beside_messages(conversation, &weights);
        Self {
            shares: budget::measure_shares(tools, conversation, policy, &tokens),
            budgets: SessionBudgets::new(conversation, policy, past, &tokens),
            tokens,
        }
    }
}
