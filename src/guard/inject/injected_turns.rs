//! Reads injected turns by the same index as the client's messages, so that their tokens count alike. Only whole
//! turns are put back.

use crate::{
    config::profile::PROFILES,
    conversation::{
        Author, Conversation, Format,
        units::{self, UnitKind},
    },
    guard::{
        grammar::lint::{self, OutlineItem},
        inject::{
            echo,
            injections::{InjectedAuthor, InjectedCall, InjectedMessage},
        },
        request::{
            estimate::{self, Weights},
            view::RequestView,
        },
    },
};

/// The messages of an injected turn.
#[derive(Clone, Debug)]
pub(in crate::guard) struct InjectedTurn {
    pub(in crate::guard) items: Vec<OutlineItem>,
    /// Raw tokens.
    pub(in crate::guard) tokens: u32,
    /// Those of its reasoning.
    pub(in crate::guard) reasoning_tokens: u32,
    /// Digests of the blocks of its answers that the client has too: thinking, and whatever the server made.
    pub(in crate::guard) blocks: Vec<u128>,
}

/// Reads a recorded turn. `None` where a message is not what the record says, or a call has no result.
pub(in crate::guard) fn parse_turn(
    recorded: &[InjectedMessage],
    view: RequestView<'_>,
) -> Option<InjectedTurn> {
    let (weights, profile) = (view.token_weights(), view.policy.profile);
    let items: Vec<&str> = recorded.iter().map(|message| &*message.json).collect();
    let indexed = view.conversation.format.index_items(&items)?;
    let indexed = Some(indexed).filter(|it| lint::has_paired_calls(it, profile))?;
    let mut turn = InjectedTurn {
        items: Vec::with_capacity(recorded.len()),
        tokens: 0,
        reasoning_tokens: 0,
        blocks: digest_repeatable_blocks(&indexed).collect(),
    };
    for (message, recorded) in indexed.items.iter().zip(recorded) {
        let item = match recorded.by {
            InjectedAuthor::User => OutlineItem::Injected(Author::User),
            InjectedAuthor::Tool => OutlineItem::InjectedResult,
            InjectedAuthor::Model { calls } if message.calls.len() == calls as usize => {
                OutlineItem::InjectedAssistant(calls)
            }
            InjectedAuthor::Model { .. } => return None,
        };
        if message.author != item.role(&indexed) {
            return None;
        }
        turn.items.push(item);
        let tokens =
            estimate::estimate_message(&indexed, message, &message.sizes, &weights, profile);
        turn.tokens = turn.tokens.saturating_add(tokens);
        let reasoning = estimate::estimate_reasoning(&indexed, message, &weights);
        let reasoning = reasoning.unwrap_or(0);
        turn.reasoning_tokens = turn.reasoning_tokens.saturating_add(reasoning);
    }
    (!recorded.is_empty()).then_some(turn)
}

/// Digests of the blocks in the answers of a turn that the client got too.
pub(in crate::guard) fn digest_repeatable_blocks(
    turn: &Conversation,
) -> impl Iterator<Item = u128> {
    let answers = turn.items.iter();
    let answers = answers.filter(|message| message.author == Author::Model);
    let blocks = answers.flat_map(|message| turn.blocks_of(message));
    let blocks = blocks.filter(|block| echo::may_repeat(block));
    blocks.map(|block| turn.digest_block(block))
}

/// Raw tokens of injected calls with their results; `None` where they do not pair.
pub(in crate::guard) fn weigh_step(
    format: Format,
    calls: &[InjectedCall],
    results: &[Box<str>],
    weights: &Weights,
) -> Option<u32> {
    let call_texts: Vec<&str> = calls.iter().map(|call| &*call.json).collect();
    let call_item = format.calls_item(&call_texts);
    let mut items = vec![&*call_item];
    items.extend(results.iter().map(|result| &**result));
    let indexed = format.index_items(&items)?;
    let units = units::split_units(&indexed);
    let is_step =
        matches!(&units[..], [unit] if unit.kind == UnitKind::Step && unit.is_removable());
    if !is_step || indexed.calls.len() != calls.len() || results.len() != calls.len() {
        return None;
    }
    // Profiles differ in the tokens of media, and there are no media here.
    let profile = PROFILES.first()?;
    let tokens = indexed.items.iter().map(|message| {
        estimate::estimate_message(&indexed, message, &message.sizes, weights, profile)
    });
    Some(tokens.fold(0, u32::saturating_add))
}
