//! A request as every step of the guard reads it.

use super::{
    Policy,
    estimate::{self, Weights},
};
use crate::{
    conversation::{
        Conversation, Item,
        units::{self, Unit},
    },
    json::text::Sizes,
};

/// A request as every step of the guard reads it.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) units: &'a [Unit],
    pub(super) policy: Policy<'a>,
}

impl<'a> View<'a> {
    pub(super) fn item(self, at: usize) -> &'a Item {
        &self.conversation.items[at]
    }

    pub(super) fn weights(self) -> Weights {
        self.policy.weights()
    }

    /// Units of the pinned start.
    pub(super) fn pinned(self) -> usize {
        units::pinned(self.units)
    }

    /// Raw tokens of item `at`, if its text had these sizes.
    pub(super) fn weigh(self, at: usize, sizes: &Sizes) -> u32 {
        let (weights, profile) = (self.weights(), self.policy.profile);
        estimate::message(self.conversation, self.item(at), sizes, &weights, profile)
    }
}
