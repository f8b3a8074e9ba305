//! Injected turns as messages: read by the same index as the client's, so that what is put back
//! weighs what it weighs, and nothing is put back that is no whole turn.

use super::{
    estimate::{self, Weights},
    injections::{InjectedAuthor, InjectedCall, InjectedMessage},
    lint::OutlineItem,
    profile::PROFILES,
    view::RequestView,
};
use crate::conversation::{
    Author, Format,
    units::{self, UnitKind},
};

/// The messages of an injected turn.
#[derive(Clone, Debug)]
pub(super) struct InjectedTurn {
    pub(super) items: Vec<OutlineItem>,
    /// Raw tokens.
    pub(super) tokens: u32,
}

/// Reads a recorded turn; `None` where its messages are not what the record says, or a call of it is
/// not answered in it.
pub(super) fn parse_turn(said: &[InjectedMessage], view: RequestView<'_>) -> Option<InjectedTurn> {
    let (weights, profile) = (view.token_weights(), view.policy.profile);
    let items: Vec<&str> = said.iter().map(|message| &*message.json).collect();
    let read = view.conversation.format.index_items(&items)?;
    units::split_units(&read).ok()?;
    let mut turn = InjectedTurn {
        items: Vec::with_capacity(said.len()),
        tokens: 0,
    };
    for (message, said) in read.items.iter().zip(said) {
        let (item, fits) = match said.by {
            InjectedAuthor::User => (
                OutlineItem::Injected(Author::User),
                message.author == Author::User,
            ),
            InjectedAuthor::Tool => (OutlineItem::InjectedResult, message.author.is_tool()),
            InjectedAuthor::Model { calls } => {
                let same = message.calls.len() == calls as usize;
                (
                    OutlineItem::InjectedAssistant(calls),
                    same && message.author == Author::Model,
                )
            }
        };
        if !fits {
            return None;
        }
        turn.items.push(item);
        let tokens = estimate::estimate_message(&read, message, &message.sizes, &weights, profile);
        turn.tokens = turn.tokens.saturating_add(tokens);
    }
    (!said.is_empty()).then_some(turn)
}

/// Raw tokens of injected calls with their results; `None` where they do not answer each other.
pub(super) fn weigh_step(
    format: Format,
    calls: &[InjectedCall],
    results: &[Box<str>],
    weights: &Weights,
) -> Option<u32> {
    let listed: Vec<&str> = calls.iter().map(|call| &*call.json).collect();
    let asks = format.calls_item(&listed);
    let items: Vec<&str> = std::iter::once(&*asks)
        .chain(results.iter().map(|result| &**result))
        .collect();
    let read = format.index_items(&items)?;
    let units = units::split_units(&read).ok()?;
    let whole = matches!(&units[..], [unit] if unit.kind == UnitKind::Step);
    if !whole || read.calls.len() != calls.len() || results.len() != calls.len() {
        return None;
    }
    // No media here, so that any profile will do.
    let profile = PROFILES.first()?;
    let tokens = read.items.iter().map(|message| {
        estimate::estimate_message(&read, message, &message.sizes, weights, profile)
    });
    Some(tokens.fold(0, u32::saturating_add))
}
