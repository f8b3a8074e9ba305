//! A request as it came: its tokens and its budgets.

use super::{
    Plan, Policy, Recall,
    answer_cap::SessionBudgets,
    budget::{self, TokenShares},
    estimate,
    report::{Report, StandBackReason},
};
use crate::conversation::Conversation;

pub(super) struct MeasuredRequest<'a> {
    /// Raw tokens of every message.
    pub(super) tokens: Vec<u32>,
    pub(super) shares: TokenShares,
    pub(super) budgets: SessionBudgets<'a>,
}

impl<'a> MeasuredRequest<'a> {
    pub(super) fn new(
        conversation: &Conversation,
        policy: &'a Policy<'a>,
        recall: &Recall,
    ) -> Self {
        let tokens = estimate::estimate_messages(conversation, policy);
        let tools = estimate::estimate_beside_messages(conversation, &policy.token_weights());
        Self {
            shares: budget::measure_shares(tools, conversation, policy, &tokens),
            budgets: SessionBudgets::new(conversation, policy, recall, &tokens),
            tokens,
        }
    }

    /// The report of a request that goes out unchanged.
    pub(super) fn report_untouched(&self, recall: &Recall) -> Report {
        let raw = self.shares.total();
        Report {
            raw_before: raw,
            raw_after: raw,
            expected: recall.calibration.to_expected_tokens(raw),
            budget: self.budgets.current_budget(),
            shares: self.shares,
            sent: self.shares,
            ..Report::default()
        }
    }

    /// The plan without edits, for a request that goes out unchanged.
    pub(super) fn stand_back(&self, reason: StandBackReason, recall: &Recall) -> Plan {
        Plan {
            report: Report {
                stood_back: Some(reason),
                ..self.report_untouched(recall)
            },
            memory: recall.memory.clone(),
            history: recall.history,
            ..Plan::default()
        }
    }
}
