//! Where a new course begins, and what lies before a boundary.

use super::{
    Memory, Policy, budget,
    clear::{Clearing, sweep::Swept},
    estimate, fold,
    preface::Base,
    priority::Priorities,
    record::Ours,
    results::Results,
    rounds, stands_back,
    units::{self, Unit, UnitKind},
};
use crate::{json::text, wire::chat::Conversation};

/// The part of the budget that the newest steps may take with them into a new course.
const SHARE: u32 = 8;
/// The part of the budget that a preface may take.
const PREFACE_SHARE: u32 = 4;

/// The boundary of a course that begins with this request, in messages without system ones: as
/// many of the newest whole units are kept as fit into an eighth of the budget, in raw tokens,
/// and always the newest one.
///
/// `None` where the guard does nothing to this conversation.
pub fn tail(conversation: &Conversation, policy: &Policy<'_>) -> Option<u32> {
    let units = stands_back(conversation, policy).ok()?;
    let last = units.len().checked_sub(1)?;
    let mut results = Results::new(conversation, policy);
    Priorities::decide(conversation, policy, &mut results.tokens);
    results.first_line();
    let weight = |unit: &Unit| {
        let tokens = unit.messages.clone().map(|at| results.tokens[at]);
        tokens.fold(0, u32::saturating_add)
    };
    let pinned = units::pinned(&units);
    let room = budget::budget(conversation, policy).tokens / SHARE;
    let mut first = fold::newest(&units, last, pinned);
    let mut kept = units[first.min(units.len())..]
        .iter()
        .fold(0, |sum: u32, unit| sum.saturating_add(weight(unit)));
    while first > pinned {
        kept = kept.saturating_add(weight(&units[first - 1]));
        if kept > room {
            break;
        }
        first -= 1;
    }
    let before = units[..first].iter();
    let said = before.filter(|unit| unit.kind != UnitKind::System);
    u32::try_from(said.map(|unit| unit.messages.len()).sum::<usize>()).ok()
}

/// Raw tokens of what still goes out between the pinned start and a boundary: the messages beyond
/// what is folded, as they are cut, and what stands in the place of the folded ones, but for its
/// ledger. 0 where the guard does nothing to this conversation.
pub fn weigh_before(
    conversation: &Conversation,
    policy: &Policy<'_>,
    memory: &Memory,
    ours: &Ours,
    boundary: u32,
) -> u32 {
    let Ok(units) = stands_back(conversation, policy) else {
        return 0;
    };
    let mut results = Results::new(conversation, policy);
    let mut texts = Priorities::decide(conversation, policy, &mut results.tokens);
    results.first_line();
    let clearing = Clearing::new(conversation, &units, policy, &results.tokens);
    results.remembered(&memory.tight);
    texts.recall(&memory.tight, &mut results.tokens);
    let swept = Swept {
        rounds: fold::at_said(&units, memory.swept.rounds),
        media: fold::at_said(&units, memory.swept.media),
    };
    let base = Base::of(ours);
    let folded = memory.boundary().max(base.boundary);
    let from = folded.map_or_else(
        || units::pinned(&units),
        |folded| fold::at_said(&units, folded),
    );
    let part = (from..fold::at_said(&units, boundary)).filter(|&at| !units[at].stays);
    let preface = match folded {
        Some(_) => rounds::tokens(&text::escape(&base.text), &policy.weights()),
        None => 0,
    };
    let weigh = |at: usize| match swept.covers(at, units[at].kind) {
        true => clearing.weigh(&units[at], &results, 0),
        false => units[at]
            .messages
            .clone()
            .fold(0, |sum: u32, at| sum.saturating_add(results.tokens[at])),
    };
    part.fold(preface, |sum, at| sum.saturating_add(weigh(at)))
}

/// What a course's preface may be: in raw tokens a quarter of the budget, and half of what the pinned
/// messages and the tools leave of it, so that in a small window there is room for work beside it.
pub fn room<'a>(
    conversation: &Conversation,
    policy: &Policy<'a>,
) -> impl Fn(&str) -> bool + use<'a> {
    let weights = policy.weights();
    let units = units::split(conversation).unwrap_or_default();
    let mut tokens = Results::new(conversation, policy).tokens;
    let texts = Priorities::decide(conversation, policy, &mut tokens);
    let pinned = units.iter().filter(|unit| unit.stays);
    // Annotated texts go before a preface is too long.
    let pinned = pinned.map(|unit| texts.least(unit, &tokens));
    let beside = estimate::beside(conversation, &weights);
    let taken = pinned.fold(beside, u32::saturating_add);
    let budget = budget::budget(conversation, policy).tokens;
    let most = (budget / PREFACE_SHARE).min(budget.saturating_sub(taken) / 2);
    move |text| rounds::tokens(&text::escape(text), &weights) <= most
}

/// The messages that a course with this boundary leaves out, in order; none where the conversation
/// is invalid.
pub fn removed_by(conversation: &Conversation, boundary: u32) -> Vec<usize> {
    let Ok(units) = units::split(conversation) else {
        return Vec::new();
    };
    let gone = units::pinned(&units)..fold::at_said(&units, boundary);
    units[gone]
        .iter()
        .filter(|unit| !unit.stays)
        .flat_map(|unit| unit.messages.clone())
        .collect()
}
