//! A request as every step of the guard reads it.

use super::{
    Policy,
    estimate::{self, TokenScale, Weights},
    recall_id::RecallId,
    sent_history::Epoch,
};
use crate::{
    config::profile::PastReasoning,
    conversation::{
        Conversation, Item,
        units::{self, Unit},
    },
    json::text::TextSizes,
};

#[derive(Clone, Copy)]
pub(super) struct RequestView<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) units: &'a [Unit],
    pub(super) policy: Policy<'a>,
    /// Placeholders and notes name the id by which `recall` finds what they stand for.
    pub(super) names_ids: bool,
    /// Of caps and shares.
    pub(super) scale: TokenScale,
}

impl<'a> RequestView<'a> {
    pub(super) fn item(self, at: usize) -> &'a Item {
        &self.conversation.items[at]
    }

    /// The id that the placeholder of item `at` names.
    pub(super) fn recall_id(self, at: usize) -> Option<RecallId> {
        let unit = self
            .units
            .get(units::find_unit_of_message(self.units, at))?;
        let before = unit.messages_before + at.saturating_sub(unit.messages.start);
        self.names_ids.then(|| RecallId::of_message(before))
    }

    /// Whether the reasoning of an answer made at `made` is left out, where it is stale before `epoch`.
    pub(super) fn leaves_out(self, made: Epoch, epoch: Epoch) -> bool {
        made < epoch && self.refuses_stale_reasoning()
    }

    /// Whether a request with stale reasoning is refused, so that it is left out.
    pub(super) fn refuses_stale_reasoning(self) -> bool {
        self.policy.profile.past_reasoning == PastReasoning::Refused
    }

    pub(super) fn token_weights(self) -> Weights {
        self.policy.token_weights()
    }

    /// The number of units in the pinned start.
    pub(super) fn count_pinned(self) -> usize {
        units::find_pinned_end(self.units)
    }

    /// Raw tokens of item `at` with text of these sizes.
    pub(super) fn weigh_item(self, at: usize, sizes: &TextSizes) -> u32 {
        let (weights, profile) = (self.token_weights(), self.policy.profile);
        estimate::estimate_message(self.conversation, self.item(at), sizes, &weights, profile)
    }
}
