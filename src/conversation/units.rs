//! Units of a conversation: steps and single messages. Only whole units are ever removed.
//!
//! Calls and results are paired by position, never by a map of ids: clients use the same id again
//! in later turns, even for another call.

use std::ops::Range;

use thiserror::Error;

use super::{Author, Conversation, Item};
use crate::json::text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// A `system` or `developer` message.
    System,
    User,
    /// An assistant message without calls.
    Assistant,
    /// An assistant message with calls, and all the results directly after it.
    Step,
    /// A message of a role we do not know.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub kind: UnitKind,
    /// Indices of its messages.
    pub messages: Range<usize>,
    /// Messages before it, system messages apart: these come and go between requests, so places that
    /// are remembered are counted without them.
    pub messages_before: usize,
    /// Never removed: an instruction, what we do not know, and the task (the first user message).
    pub stays: bool,
}

impl Unit {
    /// Messages up to its end, system messages apart.
    pub fn messages_through(&self) -> usize {
        match self.kind {
            UnitKind::System => self.messages_before,
            _ => self.messages_before + self.messages.len(),
        }
    }
}

/// Why a conversation cannot be divided: it goes on as it came, and the provider's own error is
/// the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    #[error("message {0} is a tool result that answers no call before it")]
    Orphan(usize),
    #[error("message {0} makes a call that is not answered directly after it")]
    Unanswered(usize),
}

/// Divides a conversation into its units.
pub fn split_units(conversation: &Conversation) -> Result<Vec<Unit>, UnitError> {
    let messages = &conversation.items;
    let mut units: Vec<Unit> = Vec::with_capacity(messages.len());
    let mut at = 0;
    let mut asked = false;
    while let Some(message) = messages.get(at) {
        let mut end = at + 1;
        let kind = match message.author {
            Author::System => UnitKind::System,
            Author::User => UnitKind::User,
            Author::Model if message.calls.is_empty() => UnitKind::Assistant,
            Author::Model => {
                end += count_results(conversation, at)?;
                UnitKind::Step
            }
            Author::Tool => return Err(UnitError::Orphan(at)),
            Author::Unknown => UnitKind::Other,
        };
        let task = kind == UnitKind::User && !std::mem::replace(&mut asked, true);
        units.push(Unit {
            kind,
            messages: at..end,
            messages_before: units.last().map_or(0, Unit::messages_through),
            stays: task || matches!(kind, UnitKind::System | UnitKind::Other),
        });
        at = end;
    }
    Ok(units)
}

/// The pinned start, in units: all up to the first user message, a greeting before it included.
/// Where work was done before anybody asked, or nobody asks at all, the leading instructions only,
/// so that a question that comes late does not pin all that came before it.
pub fn find_pinned_end(units: &[Unit]) -> usize {
    let task = units.iter().position(|unit| unit.kind == UnitKind::User);
    let worked = |end: usize| units[..end].iter().any(|unit| unit.kind == UnitKind::Step);
    task.filter(|&task| !worked(task)).map_or_else(
        || {
            let other = |unit: &Unit| unit.kind != UnitKind::System;
            units.iter().position(other).unwrap_or(units.len())
        },
        |task| task + 1,
    )
}

/// The unit that a message is part of.
pub(crate) fn find_unit_of_message(units: &[Unit], message: usize) -> usize {
    units.partition_point(|unit| unit.messages.end <= message)
}

/// The unit that begins after so many messages, system messages apart.
pub(crate) fn find_unit_after(units: &[Unit], said: u32) -> Option<usize> {
    let mut counted = units.iter();
    counted.position(|unit| unit.kind != UnitKind::System && unit.messages_before == said as usize)
}

/// Messages before a unit, system messages apart.
pub(crate) fn count_messages_before(units: &[Unit], unit: usize) -> u32 {
    let end = || units.last().map_or(0, Unit::messages_through);
    units
        .get(unit)
        .map_or_else(end, |unit| unit.messages_before) as u32
}

/// The first message that was not part of a request with `known` messages, system messages apart.
pub(crate) fn first_new_message(units: &[Unit], known: usize) -> usize {
    let mut counted = units.iter().filter(|unit| unit.kind != UnitKind::System);
    match counted.find(|unit| unit.messages_through() > known) {
        Some(unit) => unit.messages.start + known.saturating_sub(unit.messages_before),
        None => units.last().map_or(0, |unit| unit.messages.end),
    }
}

/// The first unit that must stay in the request that ended at unit `at`: the last one that is
/// said and not an instruction, and with the beginning of an answer what it answers.
pub(crate) fn find_first_required_unit(units: &[Unit], at: usize) -> usize {
    let pinned = find_pinned_end(units);
    let said = |before: usize| (pinned..before).rev().find(|&unit| !units[unit].stays);
    let mut first = said(at + 1).unwrap_or(at);
    // An answer may have been begun in several messages.
    while units[first].kind == UnitKind::Assistant
        && let Some(before) = said(first)
    {
        first = before;
    }
    first.max(pinned)
}

/// The unit with which a course begins that keeps message `said` and what follows, counted without
/// system messages: the one that holds it, but neither pinned nor after the newest.
pub(crate) fn find_boundary_unit(units: &[Unit], said: u32) -> usize {
    let Some(last) = units.len().checked_sub(1) else {
        return 0;
    };
    let holds =
        |unit: &Unit| unit.kind != UnitKind::System && unit.messages_through() > said as usize;
    let place = units.iter().position(holds).unwrap_or(units.len());
    place
        .min(find_first_required_unit(units, last))
        .max(find_pinned_end(units))
}

/// How many results follow the calls of message `at`; all calls must be answered by them.
fn count_results(conversation: &Conversation, at: usize) -> Result<usize, UnitError> {
    let calls = conversation.calls_of(&conversation.items[at]);
    // Each id, and how many of its calls are open; in order, since one message may make very
    // many calls.
    let mut asked: Vec<(Option<u128>, usize)> = calls
        .iter()
        .map(|call| {
            (
                call.id
                    .map(|id| text::digest_text(conversation.raw_bytes(id))),
                1,
            )
        })
        .collect();
    asked.sort_unstable();
    asked.dedup_by(|next, first| {
        let same = next.0 == first.0;
        first.1 += if same { next.1 } else { 0 };
        same
    });
    let mut open = calls.len();
    let mut count = 0;
    for (offset, result) in conversation.items[at + 1..].iter().enumerate() {
        if !result.author.is_tool() {
            break;
        }
        let id = digest_call_id(conversation, result);
        let Ok(place) = asked.binary_search_by_key(&id, |call| call.0) else {
            return Err(UnitError::Orphan(at + 1 + offset));
        };
        // The same id twice in one message: each result answers one of the calls.
        if asked[place].1 > 0 {
            asked[place].1 -= 1;
            open -= 1;
        }
        count += 1;
    }
    if open == 0 {
        Ok(count)
    } else {
        Err(UnitError::Unanswered(at))
    }
}

/// The id a result answers; one without it answers the call without one.
fn digest_call_id(conversation: &Conversation, result: &Item) -> Option<u128> {
    result
        .call_id
        .map(|id| text::digest_text(conversation.raw_bytes(id)))
}

#[cfg(test)]
mod tests;
