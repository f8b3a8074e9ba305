//! A request as it came: what it weighs, and what it may use.

use super::{
    Plan, Policy, Recall,
    budget::{self, Shares},
    cap::Room,
    estimate,
    report::{Report, StoodBack},
};
use crate::conversation::Conversation;

/// A request as it came.
pub(super) struct Measured<'a> {
    /// Raw tokens of every message.
    pub(super) tokens: Vec<u32>,
    pub(super) shares: Shares,
    pub(super) room: Room<'a>,
}

impl<'a> Measured<'a> {
    pub(super) fn new(
        conversation: &Conversation,
        policy: &'a Policy<'a>,
        recall: &Recall,
    ) -> Self {
        let tokens = estimate::messages(conversation, policy);
        Self {
            shares: budget::shares(conversation, policy, &tokens),
            room: Room::new(conversation, policy, recall, &tokens),
            tokens,
        }
    }

    /// The report of a request that goes as it came.
    pub(super) fn report(&self, recall: &Recall) -> Report {
        let raw = self.shares.total();
        Report {
            raw_before: raw,
            raw_after: raw,
            expected: recall.calibration.tokens(raw),
            budget: self.room.now(),
            shares: self.shares,
            sent: self.shares,
            ..Report::default()
        }
    }

    /// The plan of a request that the guard does nothing to.
    pub(super) fn stand_back(&self, reason: StoodBack, recall: &Recall) -> Plan {
        Plan {
            report: Report {
                stood_back: Some(reason),
                ..self.report(recall)
            },
            memory: recall.memory.clone(),
            ..Plan::default()
        }
    }
}
