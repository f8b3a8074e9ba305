//! When a conversation is summarised, and which part of it.

use crate::{
    config::CompactionConfig,
    guard::{self, Policy, budget, record::Ours},
    wire::chat::Conversation,
};

/// The part of the budget below which a summary is not worth its price.
const LEAST_SHARE: u32 = 10;

/// The part before the newest steps, which a summary is to take the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The first message that is kept after the pinned start, counted without system messages.
    pub boundary: u32,
    /// Raw tokens that the summary takes the place of.
    pub replaced: u32,
}

/// The tokens from which on a conversation is summarised: (window - reserve) × threshold.
pub fn threshold(budget: &budget::Budget, settings: &CompactionConfig) -> u32 {
    let room = budget.window.saturating_sub(budget.reserve);
    (f64::from(room) * settings.threshold) as u32
}

/// What would be summarised of a conversation as it goes out now: all that is still in it between
/// the pinned start and the newest steps, an earlier summary included.
///
/// `None` where that is less than a tenth of the budget, or does not go beyond the earlier
/// summary, or where the guard stands back from this conversation.
pub fn due(
    conversation: &Conversation,
    policy: &Policy<'_>,
    memory: &guard::Memory,
    ours: &Ours,
) -> Option<Due> {
    let boundary = guard::tail(conversation, policy)?;
    let begun = ours.course.as_ref().map(|course| course.boundary);
    let earlier = ours.summary.as_ref().map(|summary| summary.boundary);
    let least = begun.max(earlier).max(memory.boundary());
    if least.is_some_and(|least| boundary <= least) {
        return None;
    }
    let replaced = guard::weigh_before(conversation, policy, memory, ours, boundary);
    let budget = budget::budget(conversation, policy).tokens;
    (replaced >= budget / LEAST_SHARE && replaced > 0).then_some(Due { boundary, replaced })
}
