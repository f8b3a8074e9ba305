//! Reads injected tool rounds with the same index as the client's messages, so that their tokens count alike. Only whole
//! rounds are put back.

use crate::{
    conversation::Author,
    guard::{
        grammar::{lint, outline::OutlineItem},
        inject::{
            echo,
            injections::{InjectedAuthor, InjectedMessage},
        },
        request::{estimate, view::RequestView},
    },
};

/// The messages of an injected tool round.
#[derive(Clone, Debug)]
pub(in crate::guard) struct InjectedRound {
    pub(in crate::guard) items: Vec<OutlineItem>,
    /// Raw tokens.
    pub(in crate::guard) tokens: u32,
    /// Raw tokens of its reasoning.
    pub(in crate::guard) reasoning_tokens: u32,
    /// Digests of the blocks of its answers that the client has too: thinking, and the blocks that the server made.
    pub(in crate::guard) blocks: Vec<u128>,
}

/// Reads a recorded tool round. `None` if a message is not what the record says, or a call has no result.
pub(in crate::guard) fn parse_round(
    recorded: &[InjectedMessage],
    view: RequestView<'_>,
) -> Option<InjectedRound> {
    let (weights, profile) = (view.token_weights(), view.policy.profile);
    let items: Vec<&str> = recorded.iter().map(|message| &*message.json).collect();
    let indexed = view.conversation.format.index_items(&items)?;
    let indexed = Some(indexed).filter(|it| lint::has_paired_calls(it, profile))?;
    let mut turn = InjectedRound {
        items: Vec::with_capacity(recorded.len()),
        tokens: 0,
        reasoning_tokens: 0,
        blocks: echo::digest_repeatable_blocks(&indexed).collect(),
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
        let tokens = estimate::estimate_message(&indexed, message, &message.sizes, &weights);
        turn.tokens = turn.tokens.saturating_add(tokens);
        let reasoning = estimate::estimate_reasoning(&indexed, message, &weights);
        let reasoning = reasoning.unwrap_or(0);
        turn.reasoning_tokens = turn.reasoning_tokens.saturating_add(reasoning);
    }
    (!recorded.is_empty()).then_some(turn)
}
