//! Rounds of ours as messages: read by the same index as the client's, so that what is put back
//! weighs what it weighs, and nothing is put back that is no whole round.

use bytes::Bytes;

use super::{
    estimate::{self, Weights},
    lint::Item,
    profile::{PROFILES, Profile},
    record::{By, OwnCall, Said},
    units::{self, UnitKind},
};
use crate::{
    json::text,
    wire::chat::{self, Conversation, Role},
};

/// Messages of a round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) roles: Vec<Role>,
    pub(super) items: Vec<Item>,
    /// Raw tokens.
    pub(super) tokens: u32,
}

/// Reads a round; `None` where its messages are not what the record says, or a call of it is not
/// answered in it.
pub(super) fn round(said: &[Said], weights: &Weights, profile: &Profile) -> Option<Round> {
    let messages: Vec<&str> = said.iter().map(|message| &*message.json).collect();
    let read = read(&messages.join(","), said.len())?;
    units::split(&read).ok()?;
    let mut round = Round {
        roles: Vec::with_capacity(said.len()),
        items: Vec::with_capacity(said.len()),
        tokens: 0,
    };
    for (message, said) in read.messages.iter().zip(said) {
        let (item, fits) = match said.by {
            By::User => (Item::Ours(Role::User), message.role == Role::User),
            By::Tool => (Item::Answers, message.role.answers()),
            By::Model { calls } => {
                let same = message.calls.len() == calls as usize;
                (Item::Asks(calls), same && message.role == Role::Assistant)
            }
        };
        if !fits {
            return None;
        }
        round.roles.push(message.role);
        round.items.push(item);
        let tokens = estimate::message(&read, message, &message.sizes, weights, profile);
        round.tokens = round.tokens.saturating_add(tokens);
    }
    (!said.is_empty()).then_some(round)
}

/// Raw tokens of calls of ours with their results; `None` where they do not answer each other.
pub(super) fn step(calls: &[OwnCall], results: &[Box<str>], weights: &Weights) -> Option<u32> {
    let listed: Vec<&str> = calls.iter().map(|call| &*call.json).collect();
    let asks = format!(
        r#"{{"role":"assistant","tool_calls":[{}]}}"#,
        listed.join(",")
    );
    let messages: Vec<&str> = std::iter::once(&*asks)
        .chain(results.iter().map(|result| &**result))
        .collect();
    let read = read(&messages.join(","), messages.len())?;
    let units = units::split(&read).ok()?;
    let whole = matches!(&units[..], [unit] if unit.kind == UnitKind::Step);
    if !whole || read.calls.len() != calls.len() || results.len() != calls.len() {
        return None;
    }
    // No media here, so that any profile will do.
    let profile = PROFILES.first()?;
    let tokens = read
        .messages
        .iter()
        .map(|message| estimate::message(&read, message, &message.sizes, weights, profile));
    Some(tokens.fold(0, u32::saturating_add))
}

/// The messages, where they are so many and nothing else.
fn read(messages: &str, count: usize) -> Option<Conversation> {
    let body = format!(r#"{{"messages":[{messages}]}}"#);
    let read = chat::index(Bytes::from(body)).ok()?;
    (read.messages.len() == count && read.fields.len() == 1).then_some(read)
}

/// Raw tokens of a text of ours.
pub(super) fn tokens(escaped: &str, weights: &Weights) -> u32 {
    weights.text(&text::measure(escaped.as_bytes())).ceil() as u32
}
