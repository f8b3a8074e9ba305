//! The rule of older models that the running turn begins with thinking: Anthropic's Messages with
//! `thinking.type: "enabled"` refuse a request whose newest turn, all that follows the last entry of the user's own,
//! begins with an answer without thinking. Thinking of an answer that stays is never touched, so only the first answer
//! of the turn matters. A turn that the client itself begins without thinking is not judged.

use crate::{
    config::profile::{PastReasoning, Profile},
    conversation::{Author, BlockKind, Conversation, Item},
    guard::{
        grammar::outline::OutlineItem,
        request::{answer_place::count_places, view::RequestView},
    },
};

/// Whether the rule applies to a request. It does not apply to a model that refuses thinking if something before the
/// thinking was changed.
fn is_bound(conversation: &Conversation, profile: &Profile) -> bool {
    profile.past_reasoning == PastReasoning::Read && conversation.begins_turns_with_thinking()
}

/// The number of the client's messages, without system messages, before the running turn.
pub fn find_running_turn(conversation: &Conversation) -> u32 {
    let places = count_places(conversation);
    let mut items = conversation.items.iter().zip(&places).rev();
    let own = items.find(|(item, _)| item.author == Author::User);
    own.map_or(0, |(_, place)| place + 1)
}

fn begins_with_thinking(conversation: &Conversation, item: &Item) -> bool {
    let first = conversation.blocks_of(item).first();
    first.is_some_and(|block| matches!(block.kind, BlockKind::Reasoning(_)))
}

/// For each unit, whether it begins with thinking; empty if the rule does not apply.
pub(in crate::guard) fn find_thinking_units(view: RequestView<'_>) -> Vec<bool> {
    if !is_bound(view.conversation, view.policy.profile) {
        return Vec::new();
    }
    let units = view.units.iter();
    let begins =
        units.map(|unit| begins_with_thinking(view.conversation, view.item(unit.messages.start)));
    begins.collect()
}

/// Whether the running turn of an outline begins with an answer that does not begin with thinking.
pub(in crate::guard) fn begins_without_thinking(
    conversation: &Conversation,
    items: &[OutlineItem],
    profile: &Profile,
) -> bool {
    if !is_bound(conversation, profile) {
        return false;
    }
    let author = |item: &&OutlineItem| item.role(conversation);
    let turn = items.iter().rev();
    let turn = turn.take_while(|item| author(item) != Author::User);
    let is_summary = |item: &&OutlineItem| matches!(item, OutlineItem::Client(at) if conversation.items[*at].is_history_summary);
    let answers = turn.filter(|item| author(item) == Author::Model && !is_summary(item));
    let first = answers.last();
    first.is_some_and(|item| match *item {
        OutlineItem::Client(at) | OutlineItem::ClientWithCalls(at, _) => {
            !begins_with_thinking(conversation, &conversation.items[at])
        }
        // An injected answer of a tool round is put back as the model made it.
        _ => false,
    })
}
