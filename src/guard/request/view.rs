//! A request as every step of the guard reads it.

use crate::{
    config::profile::PastReasoning,
    conversation::{
        Block, Conversation, Item,
        units::{self, Unit},
    },
    guard::request::{
        answer_place::AnswerPlace,
        estimate::{self, TokenScale, Weights},
        policy::Policy,
        recall_id::{NamedIds, RecallId},
    },
    json::text::TextSizes,
};

#[derive(Clone, Copy)]
pub(in crate::guard) struct RequestView<'a> {
    pub(in crate::guard) conversation: &'a Conversation,
    pub(in crate::guard) units: &'a [Unit],
    pub(in crate::guard) policy: Policy<'a>,
    /// Which placeholders and notes name the id by which `recall` finds what they replace.
    pub(in crate::guard) names_ids: &'a NamedIds,
    /// The scale of caps and shares.
    pub(in crate::guard) scale: TokenScale,
}

impl<'a> RequestView<'a> {
    pub(in crate::guard) fn item(self, at: usize) -> &'a Item {
        &self.conversation.items[at]
    }

    /// The id that the placeholder of item `at` names.
    pub(in crate::guard) fn recall_id(self, at: usize) -> Option<RecallId> {
        let unit = self
            .units
            .get(units::find_unit_of_message(self.units, at))?;
        let before = unit.messages_before + at.saturating_sub(unit.messages.start);
        let is_named = self.names_ids.names(before);
        is_named.then(|| RecallId::of_message(before))
    }

    /// Whether the reasoning of an answer made at `made` is left out, because it is stale before `epoch`.
    pub(in crate::guard) fn leaves_out(self, made: AnswerPlace, epoch: AnswerPlace) -> bool {
        made < epoch && self.refuses_stale_reasoning()
    }

    /// Whether a request with stale reasoning is refused, so that stale reasoning is left out.
    pub(in crate::guard) fn refuses_stale_reasoning(self) -> bool {
        self.policy.profile.past_reasoning == PastReasoning::Refused
    }

    pub(in crate::guard) fn token_weights(self) -> Weights {
        self.policy.token_weights()
    }

    /// The number of units in the pinned start.
    pub(in crate::guard) fn count_pinned(self) -> usize {
        units::find_pinned_end(self.units)
    }

    /// Raw tokens of item `at` with text of these sizes.
    pub(in crate::guard) fn weigh_item(self, at: usize, sizes: &TextSizes) -> u32 {
        estimate::estimate_message(
            self.conversation,
            self.item(at),
            sizes,
            &self.token_weights(),
        )
    }

    /// Raw tokens of a medium.
    pub(in crate::guard) fn weigh_media(self, block: &Block) -> u32 {
        estimate::estimate_media_block(self.conversation, block, &self.token_weights())
    }
}
