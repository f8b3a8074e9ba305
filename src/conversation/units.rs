//! Units of a conversation: steps and single messages. Only whole units are ever removed.
//!
//! Messages that belong together but are apart (a call and its late result, the calls of a program) are several units with a
//! [`Bond`]: they are removed together, or all stay.

mod split;

use std::{collections::BTreeSet, iter, ops::Range};

pub use self::split::split_units;
use super::Conversation;

/// Most bytes of a pinned message that follows the first one of the user. A longer one is material rather than the task.
pub const MAX_TASK_BYTES: usize = 16 << 10;

/// Most units that are left out together with one unit. A unit with more of them is not left out.
pub(crate) const MAX_DEPENDENTS: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// A `system` or `developer` message.
    System,
    User,
    /// An assistant message without results directly after it.
    Assistant,
    /// An assistant message with calls, and their results directly after it.
    Step,
    /// Consecutive results of one message that do not directly follow it.
    Results,
    /// A message of an unknown role, or one whose calls or results do not pair, with the results directly after it.
    Other,
}

/// A link in a ring of units that are removed together or stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bond {
    /// The next unit of the ring; for the last unit, the first.
    pub next: usize,
    pub last: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub kind: UnitKind,
    /// Indices of its messages, with the system messages that are bound to the last of them.
    pub messages: Range<usize>,
    /// Its messages without system messages.
    pub counted: usize,
    /// A message in the user's place without words of the user: it begins a turn, but asks nothing.
    pub says_nothing: bool,
    /// Messages before it, without system messages. These come and go between requests, so stored
    /// positions do not count them.
    pub messages_before: usize,
    /// Pinned as a whole: a system message that is not bound, a message of an unknown role, the task, or a unit with a
    /// message that stays. If any other unit is removed, only its bound messages stay.
    pub is_pinned: bool,
    /// It holds the provider's own summary of all before it.
    pub is_history_summary: bool,
    /// The reasoning of the previous answer led to it: if that answer is removed, this unit is removed too.
    pub follows_reasoning: bool,
    /// It waits for a result, it refers to something that is not in the conversation, or a unit that stays needs it. Its
    /// results may still be cleared.
    pub is_needed: bool,
    pub bond: Option<Bond>,
    pub loader: Option<Box<Loader>>,
}

/// What a unit that loads tools is needed for. The model may call these tools as long as it sees the unit. The unit stays
/// until later units have loaded each of its tools anew, or until `MAX_LOADERS` later units have loaded tools. It also stays
/// as long as a call is sent for which it loaded the tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loader {
    /// How many of its tools no later unit loads.
    pub newest: usize,
    /// The index of the unit from which on it is no longer needed for its other tools, those that later units loaded anew.
    pub until: usize,
    /// Later units with calls of the tools before they are loaded anew, in order.
    pub callers: Vec<usize>,
}

/// Most units that load tools and stay although no call of these tools is sent: more could fill the window.
pub(crate) const MAX_LOADERS: usize = 8;

impl Loader {
    /// Whether one of its tools may still be called by the units before `limit`, since none of them loads that tool anew.
    const fn is_current(&self, limit: usize) -> bool {
        self.newest > 0 || self.until >= limit
    }

    fn has_kept_caller(&self, removed: &[bool]) -> bool {
        self.callers.iter().any(|&caller| !removed[caller])
    }
}

impl Unit {
    /// Messages up to its end, without system messages.
    pub const fn messages_through(&self) -> usize {
        self.messages_before + self.counted
    }

    /// Whether it may be left out, bound messages apart.
    pub const fn is_removable(&self) -> bool {
        !self.is_pinned && !self.is_needed
    }

    pub(crate) const fn is_user(&self) -> bool {
        matches!(self.kind, UnitKind::User)
    }

    /// Whether the user says something in it.
    pub(crate) const fn is_question(&self) -> bool {
        self.is_user() && !self.says_nothing
    }

    pub(crate) const fn has_results(&self) -> bool {
        matches!(self.kind, UnitKind::Step | UnitKind::Results)
    }

    /// Whether the unit may count as the newest of a request. Every request repeats the pinned units, so these do not count,
    /// except user messages.
    pub(crate) fn may_be_newest(&self) -> bool {
        !self.is_pinned || self.kind == UnitKind::User
    }

    /// Its messages without those that are bound to the last of them: the messages that are removed with the unit.
    pub(crate) fn unbound_messages(&self) -> Range<usize> {
        match self.kind {
            UnitKind::System => self.messages.clone(),
            _ => self.messages.start..self.messages.start + self.counted,
        }
    }

    /// The system messages that are bound to the last of its messages. They stay if the unit is removed.
    pub(crate) fn bound_messages(&self) -> Range<usize> {
        self.unbound_messages().end..self.messages.end
    }
}

/// Pins the task: the first user message. In some formats, clients such as Codex describe only their environment in that
/// message; then the last of the user messages that directly follow it is pinned too. If many follow in a row, then those in
/// between are not pinned, and neither is a last one of more than [`MAX_TASK_BYTES`], so that they can still be fitted.
fn pin_task(conversation: &Conversation, units: &mut [Unit]) {
    let is_user = |unit: &Unit| unit.kind == UnitKind::User;
    let Some(first) = units.iter().position(is_user) else {
        return;
    };
    units[first].is_pinned = true;
    // The provider's own summary may be in a user message before the task.
    let pinned = find_pinned_end(units);
    let pinned = units[..pinned].iter_mut().filter(|unit| is_user(unit));
    pinned.for_each(|unit| unit.is_pinned = true);
    if !conversation.format.rules().may_split_task {
        return;
    }
    let row = units[first..].iter_mut();
    let row = row.take_while(|unit| matches!(unit.kind, UnitKind::User | UnitKind::System));
    let last = row.filter(|unit| is_user(unit)).last();
    let length = |unit: &Unit| conversation.items[unit.messages.start].span.len();
    if let Some(last) = last.filter(|unit| length(unit) <= MAX_TASK_BYTES) {
        last.is_pinned = true;
    }
}

/// The answer whose reasoning led to a unit.
fn find_leader(units: &[Unit], at: usize) -> Option<usize> {
    let before = units[..at].iter().rev();
    let between = before.take_while(|unit| unit.kind == UnitKind::Results);
    let leader = || at.checked_sub(between.count() + 1);
    units[at].follows_reasoning.then(leader).flatten()
}

/// The first answer of the chain to unit `at` in which the reasoning of each answer led to the next; `at` itself if there is
/// no such chain.
pub(crate) fn find_first_leader(units: &[Unit], at: usize) -> usize {
    let results = units[..=at].iter().rev();
    let results = results.take_while(|unit| unit.kind == UnitKind::Results);
    let answer = at.saturating_sub(results.count());
    let leaders = iter::successors(Some(answer), |&at| find_leader(units, at));
    leaders.skip(1).last().unwrap_or(at)
}

/// Unmarks those of the `removed` units that a kept unit needs.
pub(crate) fn keep_needed(units: &[Unit], removed: &mut [bool]) {
    let is_tied = |unit: &Unit| unit.bond.is_some() || unit.follows_reasoning;
    let mut kept: Vec<usize> = (0..units.len())
        .filter(|&at| !removed[at] && is_tied(&units[at]))
        .collect();
    let loaders: Vec<usize> = (0..units.len())
        .rev()
        .filter(|&at| units[at].loader.is_some())
        .collect();
    loop {
        while let Some(at) = kept.pop() {
            let next = units[at].bond.map(|bond| bond.next);
            for needed in find_leader(units, at).into_iter().chain(next) {
                if std::mem::take(&mut removed[needed]) {
                    kept.push(needed);
                }
            }
        }
        for &at in &loaders {
            let loader = units[at].loader.as_ref().filter(|_| removed[at]);
            if loader.is_some_and(|it| it.has_kept_caller(removed)) {
                removed[at] = false;
                kept.push(at);
            }
        }
        if kept.is_empty() {
            break;
        }
    }
}

/// Whether a unit loads a tool that a kept unit calls, or that the units before `limit` may still call.
pub(crate) fn is_loading(unit: &Unit, limit: usize, removed: &[bool]) -> bool {
    let loader = unit.loader.as_ref();
    loader.is_some_and(|it| it.is_current(limit) || it.has_kept_caller(removed))
}

/// The user message that the units from `end` on answer: it stays if everything before `end` is removed. `None` if these
/// units begin with a question of their own.
pub(crate) fn find_question_before(units: &[Unit], end: usize) -> Option<usize> {
    let mut next = units[end..].iter();
    let next = next.find(|unit| unit.kind != UnitKind::System);
    if next.is_some_and(Unit::is_question) {
        None
    } else {
        units[..end].iter().rposition(Unit::is_question)
    }
}

/// The messages of the user with which the newest turn begins.
pub(crate) fn list_newest_questions(units: &[Unit]) -> impl Iterator<Item = Range<usize>> {
    let end = units.iter().rposition(Unit::is_user);
    let end = end.map_or(0, |last| last + 1);
    let is_other = |unit: &Unit| !unit.is_user() && unit.kind != UnitKind::System;
    let begun = units[..end].iter().rposition(is_other);
    let asked = units[begun.map_or(0, |last| last + 1)..end].iter();
    let asked = asked.filter(|unit| unit.is_user());
    asked.map(|unit| unit.messages.clone())
}

/// For each unit, whether it is left out if everything between the pinned start and unit `end` is removed. The question that
/// the remaining units answer stays. Units after `end` do not change what is left out.
pub(crate) fn list_removed_before(units: &[Unit], end: usize) -> Vec<bool> {
    let gone = find_pinned_end(units)..end;
    let asked = find_question_before(units, end);
    let units_with_place = units.iter().enumerate();
    let mut removed: Vec<bool> = units_with_place
        .map(|(at, unit)| {
            let is_current = unit.loader.as_ref().is_some_and(|it| it.is_current(end));
            gone.contains(&at) && unit.is_removable() && asked != Some(at) && !is_current
        })
        .collect();
    keep_needed(units, &mut removed);
    removed
}

/// The answers that the reasoning of unit `at` led to.
pub(crate) fn list_followers(units: &[Unit], at: usize) -> impl Iterator<Item = usize> {
    let is_answer = units[at].kind != UnitKind::Results;
    let behind = (at + 1..units.len()).take_while(move |&at| {
        is_answer && (units[at].follows_reasoning || units[at].kind == UnitKind::Results)
    });
    behind.filter(|&at| units[at].follows_reasoning)
}

/// The units that cannot stay if unit `at` is removed, without `at` itself; at most one more than [`MAX_DEPENDENTS`].
pub(crate) fn list_dependents(units: &[Unit], at: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    if units[at].bond.is_none() && list_followers(units, at).next().is_none() {
        // Most units.
        return found;
    }
    let mut open = vec![at];
    while let Some(unit) = open.pop() {
        let next = units[unit].bond.map(|bond| bond.next);
        for dependent in list_followers(units, unit).chain(next) {
            if found.len() > MAX_DEPENDENTS {
                return found;
            }
            if dependent != at && found.insert(dependent) {
                open.push(dependent);
            }
        }
    }
    found
}

/// For each unit, whether it is never left out; its results may still be cleared.
pub(crate) fn list_lasting(units: &[Unit]) -> Vec<bool> {
    let mut lasting: Vec<bool> = units.iter().map(|unit| !unit.is_removable()).collect();
    let next = |at: usize| units[at].bond.map(|bond| bond.next);
    let last_of_rings =
        (0..units.len()).filter(|&at| units[at].bond.is_some_and(|it| it.last == at));
    for last in last_of_rings {
        let ring = || iter::successors(next(last), |&at| next(at).filter(|_| at != last));
        if ring().count() > MAX_DEPENDENTS + 1 {
            ring().for_each(|at| lasting[at] = true);
        }
    }
    lasting
}

/// The end of the pinned start, in units: everything up to the first user message, which may follow a greeting. If a step
/// comes before that message, or if there is none, then only the leading system messages are pinned: a late question must
/// not pin all that came before it. A summary of the provider's own, which comes first, is pinned too.
pub fn find_pinned_end(units: &[Unit]) -> usize {
    let summary = units.iter().position(|unit| unit.is_history_summary);
    let begin = summary.map_or(0, |summary| summary + 1);
    let rest = &units[begin..];
    let position = |matches: fn(&Unit) -> bool| rest.iter().position(matches);
    let end = match position(|unit| matches!(unit.kind, UnitKind::User | UnitKind::Step)) {
        Some(first) if rest[first].kind == UnitKind::User => first + 1,
        _ => position(|unit| unit.kind != UnitKind::System).unwrap_or(rest.len()),
    };
    begin + end
}

/// The unit that a message belongs to.
pub(crate) fn find_unit_of_message(units: &[Unit], message: usize) -> usize {
    units.partition_point(|unit| unit.messages.end <= message)
}

/// The first answer of the chain to unit `at` in which the reasoning of each answer led to the next.
fn find_leading_unit(units: &[Unit], mut at: usize) -> usize {
    while let Some(leader) = units.get(at).and_then(|_| find_leader(units, at)) {
        at = leader;
    }
    at
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

/// Finds the units that must stay in a request that ends with the units that were added: its last step or user message; or,
/// if it ends with late results, the row of answers before them. An answer at the end begins nothing of its own, since it
/// continues what comes before it.
#[derive(Default)]
pub(crate) struct RequiredTail {
    first: Option<usize>,
    /// The first answer of the row at the end.
    answers: Option<usize>,
}

impl RequiredTail {
    pub(crate) fn add_unit(&mut self, at: usize, unit: &Unit) {
        if !unit.may_be_newest() {
            return;
        }
        let begun = match unit.kind {
            UnitKind::Assistant => {
                self.answers.get_or_insert(at);
                None
            }
            UnitKind::Results => self.answers.take(),
            _ => {
                self.answers = None;
                Some(at)
            }
        };
        self.first = begun.or(self.first).or(Some(at));
    }

    pub(crate) const fn first(&self) -> Option<usize> {
        self.first
    }
}

/// The first unit that must stay in the request that ended at unit `at`; at the earliest the one after the pinned start.
pub(crate) fn find_first_required_unit(units: &[Unit], at: usize) -> usize {
    let pinned = find_pinned_end(units);
    let mut newest = RequiredTail::default();
    (pinned..=at).for_each(|at| newest.add_unit(at, &units[at]));
    let mut first = newest.first().unwrap_or(at);
    let last_before = |end: usize| (pinned..end).rev().find(|&at| units[at].may_be_newest());
    while units[first].follows_reasoning
        && let Some(before) = last_before(first)
    {
        first = before;
    }
    first.max(pinned)
}

/// The first unit of a course that keeps the messages after the first `count`, counted without system messages: the unit
/// that holds the next message, or the earlier unit whose reasoning led to that unit. It is never in the pinned start, and
/// never after the newest step.
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

#[cfg(test)]
mod tests;
