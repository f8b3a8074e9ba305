//! Units of a conversation: steps and single messages. Only whole units are ever removed.
//!
//! Calls and results are paired by position, never by a map of ids: clients reuse an id in later
//! turns, even for another call.

use std::ops::Range;

use thiserror::Error;

use super::{Author, Conversation};
use crate::json::{scan::JsonString, text};

/// Most bytes of a pinned message that follows the first one of the user. A longer one is material rather than the task.
pub const MAX_TASK_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// A `system` or `developer` message.
    System,
    User,
    /// An assistant message without calls.
    Assistant,
    /// An assistant message with calls, and all the results directly after it.
    Step,
    /// A message of an unknown role.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub kind: UnitKind,
    /// Indices of its messages, with the system messages that are bound to the last of them.
    pub messages: Range<usize>,
    /// Its messages without system messages.
    pub counted: usize,
    /// Messages before it, without system messages. These come and go between requests, so stored
    /// positions do not count them.
    pub messages_before: usize,
    /// Pinned as a whole: a system message that is not bound, a message of an unknown role, the task, or a unit with a
    /// message that stays. Of any other unit, only the bound messages stay.
    pub stays: bool,
    /// The reasoning of the unit before led to it: where that goes, this goes.
    pub follows_reasoning: bool,
    /// A unit that stays follows its reasoning. Its results may be masked all the same.
    pub leads_to_kept: bool,
}

impl Unit {
    /// Messages up to its end, without system messages.
    pub const fn messages_through(&self) -> usize {
        self.messages_before + self.counted
    }

    /// Whether it may be left out, bound messages apart.
    pub const fn is_removable(&self) -> bool {
        !self.stays && !self.leads_to_kept
    }

    /// Whether a request may end with it: what is pinned is asked with again and again, but for the user's.
    pub(crate) fn may_be_newest(&self) -> bool {
        !self.stays || self.kind == UnitKind::User
    }

    /// Its messages without those that are bound to the last of them: what goes with the unit.
    pub(crate) fn unbound_messages(&self) -> Range<usize> {
        match self.kind {
            UnitKind::System => self.messages.clone(),
            _ => self.messages.start..self.messages.start + self.counted,
        }
    }

    /// The system messages that are bound to the last of its messages. They stay where the unit goes.
    pub(crate) fn bound_messages(&self) -> Range<usize> {
        self.unbound_messages().end..self.messages.end
    }
}

/// Why a conversation cannot be divided. It is forwarded as it came, so that the client reads the
/// provider's error.
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
        let counted = if kind == UnitKind::System {
            0
        } else {
            end - at
        };
        let rest = messages[end..].iter();
        end += rest.take_while(|item| item.is_bound).count();
        let stays = messages[at..end].iter().any(|item| item.stays);
        let stays = stays || matches!(kind, UnitKind::System | UnitKind::Other);
        if stays && message.follows_reasoning {
            mark_leaders(&mut units);
        }
        units.push(Unit {
            kind,
            messages: at..end,
            counted,
            messages_before: units.last().map_or(0, Unit::messages_through),
            follows_reasoning: message.follows_reasoning,
            stays,
            leads_to_kept: false,
        });
        at = end;
    }
    pin_task(conversation, &mut units);
    Ok(units)
}

/// Pins the task: the first user message, and the last one that follows it directly where the format's clients, such as
/// Codex, say in the first only where they run. Of many in a row, those between are not pinned, nor is a long last one,
/// so that they can still be fitted.
fn pin_task(conversation: &Conversation, units: &mut [Unit]) {
    let is_user = |unit: &Unit| unit.kind == UnitKind::User;
    let Some(first) = units.iter().position(is_user) else {
        return;
    };
    units[first].stays = true;
    if !conversation.format.states_task_apart() {
        return;
    }
    let row = units[first..].iter_mut();
    let row = row.take_while(|unit| matches!(unit.kind, UnitKind::User | UnitKind::System));
    let last = row.filter(|unit| is_user(unit)).last();
    let length = |unit: &Unit| conversation.items[unit.messages.start].span.len();
    if let Some(last) = last.filter(|unit| length(unit) <= MAX_TASK_BYTES) {
        last.stays = true;
    }
}

/// Marks the units whose reasoning led to the one that comes next.
fn mark_leaders(units: &mut [Unit]) {
    for unit in units.iter_mut().rev() {
        unit.leads_to_kept = true;
        if !unit.follows_reasoning {
            break;
        }
    }
}

/// The end of the pinned start, in units: all up to the first user message, which may follow a
/// greeting. If a step comes before it, or there is none, only the leading system messages: a late
/// question must not pin all that came before it.
pub fn find_pinned_end(units: &[Unit]) -> usize {
    let position = |matches: fn(&Unit) -> bool| units.iter().position(matches);
    match position(|unit| matches!(unit.kind, UnitKind::User | UnitKind::Step)) {
        Some(first) if units[first].kind == UnitKind::User => first + 1,
        _ => position(|unit| unit.kind != UnitKind::System).unwrap_or(units.len()),
    }
}

/// The unit that a message belongs to.
pub(crate) fn find_unit_of_message(units: &[Unit], message: usize) -> usize {
    units.partition_point(|unit| unit.messages.end <= message)
}

/// The first of the units that cannot stay without one another.
fn find_leading_unit(units: &[Unit], at: usize) -> usize {
    let until = units.iter().take(at + 1).rev();
    at - until.take_while(|unit| unit.follows_reasoning).count()
}

/// The unit that begins after `count` messages, not counting system messages.
pub(crate) fn find_unit_after(units: &[Unit], count: u32) -> Option<usize> {
    let first = units.partition_point(|unit| unit.messages_before < count as usize);
    let same = units[first..].iter();
    let mut same = same.take_while(|unit| unit.messages_before == count as usize);
    Some(first + same.position(|unit| unit.kind != UnitKind::System)?)
}

/// Messages before a unit, without system messages; all of them for an index past the end.
pub(crate) fn count_messages_before(units: &[Unit], unit: usize) -> u32 {
    let before = match units.get(unit) {
        Some(unit) => unit.messages_before,
        None => units.last().map_or(0, Unit::messages_through),
    };
    before as u32
}

/// The first message that was not in a request with `known` messages, not counting system messages.
pub(crate) fn first_new_message(units: &[Unit], known: usize) -> usize {
    let mut counted = units.iter().filter(|unit| unit.kind != UnitKind::System);
    match counted.find(|unit| unit.messages_through() > known) {
        Some(unit) => unit.messages.start + known.saturating_sub(unit.messages_before),
        None => units.last().map_or(0, |unit| unit.messages.end),
    }
}

/// The first unit that must stay in the request that ended at unit `at`: its last unit that is not
/// pinned, or the task. If that is an assistant message, which the answer continues, the unit it answers.
pub(crate) fn find_first_required_unit(units: &[Unit], at: usize) -> usize {
    let pinned = find_pinned_end(units);
    let last_before = |end: usize| {
        (pinned..end)
            .rev()
            .find(|&unit| units[unit].may_be_newest())
    };
    let mut first = last_before(at + 1).unwrap_or(at);
    // An answer may have been begun in several messages, or before the results of its first calls.
    while (units[first].kind == UnitKind::Assistant || units[first].follows_reasoning)
        && let Some(before) = last_before(first)
    {
        first = before;
    }
    first.max(pinned)
}

/// The first unit of a course that keeps what follows the first `count` messages (without system
/// messages): the unit that holds the next one, or whose reasoning led to it, but neither pinned nor after the newest.
pub(crate) fn find_boundary_unit(units: &[Unit], count: u32) -> usize {
    let Some(last) = units.len().checked_sub(1) else {
        return 0;
    };
    let holds =
        |unit: &Unit| unit.kind != UnitKind::System && unit.messages_through() > count as usize;
    let holder = units.iter().position(holds).unwrap_or(units.len());
    let first = holder.min(find_first_required_unit(units, last));
    find_leading_unit(units, first).max(find_pinned_end(units))
}

/// How many results follow the calls of message `at`; they must answer all of its calls.
fn count_results(conversation: &Conversation, at: usize) -> Result<usize, UnitError> {
    let digest_id = |id: JsonString| text::digest_text(conversation.raw_bytes(id));
    let calls = conversation.calls_of(&conversation.items[at]);
    // Each id with the number of its open calls, sorted, since one message may make very many calls.
    let mut open_by_id: Vec<(Option<u128>, usize)> = calls
        .iter()
        .map(|call| (call.id.map(digest_id), 1))
        .collect();
    open_by_id.sort_unstable();
    open_by_id.dedup_by(|next, first| {
        let same = next.0 == first.0;
        first.1 += if same { next.1 } else { 0 };
        same
    });
    let mut open = calls.len();
    let mut count = 0;
    let results = conversation.items[at + 1..].iter();
    for result in results.take_while(|item| item.author.is_tool()) {
        // A result without an id answers a call without one.
        let id = result.call_id.map(digest_id);
        let Ok(found) = open_by_id.binary_search_by_key(&id, |call| call.0) else {
            return Err(UnitError::Orphan(at + 1 + count));
        };
        // The same id twice in one message: each result answers one of the calls.
        if open_by_id[found].1 > 0 {
            open_by_id[found].1 -= 1;
            open -= 1;
        }
        count += 1;
    }
    match open {
        0 => Ok(count),
        _ => Err(UnitError::Unanswered(at)),
    }
}

#[cfg(test)]
mod tests;
