//! Finds the fold of a conversation: what everything weighs, what the session remembers, and the
//! replay of what it does not.

use super::{
    Policy, Recall,
    budget::{self, Budget, Shares},
    fold::{Fold, Ground, Replay},
    preface::Base,
    putback::Weighed,
    results::Results,
    rounds,
    units::{self, Unit, UnitKind},
};
use crate::wire::text;

/// The part of the usual budget that a ledger may take, and the most that it may; raw tokens.
const LEDGER_SHARE: u32 = 10;
const MAX_LEDGER_TOKENS: u32 = 4_000;

/// A conversation that was replayed, and where it is folded.
pub(super) struct Fit<'a> {
    pub(super) replay: Replay<'a>,
    pub(super) fold: Fold,
    pub(super) ground: Ground,
}

/// Raw tokens of what is ours.
pub(super) struct Ours {
    pub(super) records: Weighed,
    pub(super) tools: u32,
}

/// Replays the conversation and finds the fold.
pub(super) fn fit<'a>(
    units: &'a [Unit],
    (shares, ours): (Shares, &Ours),
    results: &mut Results<'_>,
    policy: &Policy<'_>,
    recall: &Recall,
    budget: &Budget,
) -> Fit<'a> {
    let of = |unit: &Unit| {
        unit.messages
            .clone()
            .map(|at| results.tokens[at])
            .fold(0, u32::saturating_add)
    };
    let tokens: Vec<u32> = units.iter().map(of).collect();
    let fresh = fresh(units, recall.messages);
    let added = results.tokens[fresh..]
        .iter()
        .fold(0, |sum: u32, &tokens| sum.saturating_add(tokens))
        .saturating_add_signed(narrow(ours.records.fresh));
    let fixed = fixed(units, &tokens).saturating_add(shares.tools);
    let ground = Ground::of(policy, fixed).or(recall.memory.ground);
    let weights = policy.weights();
    let base = Base::of(&recall.ours);
    let mut replay = Replay {
        units,
        // What is ours moves no grid, so it counts only from here on.
        tokens: tokens
            .iter()
            .zip(&ours.records.units)
            .map(|(tokens, &more)| tokens.saturating_add_signed(narrow(more)))
            .collect(),
        beside: shares
            .tools
            .saturating_add(ours.tools)
            .saturating_add_signed(narrow(ours.records.beside)),
        high: recall.calibration.raw(budget.tokens, added),
        preface: rounds::tokens(&text::escape(&base.text), &weights).saturating_add(8),
        ledger: ledger_room(policy),
        based: 0,
        prefaced: base.boundary.is_some(),
        step: ground.step(),
    };
    // Requests whose cuts are remembered are not replayed, unless they were cut on another grid.
    let same_grid = recall.memory.ground == ground;
    let remembered = replay.recall(recall.memory.fold.filter(|_| same_grid));
    let lost = recall.memory.fold.is_some() && remembered.is_none();
    let from = if !same_grid || lost {
        0
    } else {
        units
            .iter()
            .position(|unit| unit.messages.end > fresh)
            .unwrap_or(units.len().saturating_sub(1))
    };
    let begun = base.boundary.map(|boundary| replay.begin(boundary));
    replay.based = begun.map_or_else(|| units::pinned(units), |fold| fold.boundary);
    // Requests from before a course, or a summary, are none of its own.
    let from = from.max(begun.map_or(0, |fold| fold.boundary));
    let base = match (remembered, begun) {
        (Some(mark), Some(begun)) if mark.boundary < begun.boundary => Some(begun),
        (mark, begun) => mark.or(begun),
    };
    let fold = replay.run(from, base, |unit, excess| {
        results.tighten(units[unit].messages.clone(), excess)
    });
    Fit {
        replay,
        fold,
        ground,
    }
}

/// Raw tokens that a ledger may take: a tenth of the usual budget, so that it is the same in every
/// process.
pub(super) fn ledger_room(policy: &Policy<'_>) -> u32 {
    (budget::usual(policy) / LEDGER_SHARE).min(MAX_LEDGER_TOKENS)
}

/// Raw tokens of the system messages and of the first user message.
fn fixed(units: &[Unit], tokens: &[u32]) -> u32 {
    let first_user = units.iter().position(|unit| unit.kind == UnitKind::User);
    let system = units.iter().zip(tokens);
    system
        .filter(|(unit, _)| unit.kind == UnitKind::System)
        .map(|(_, &tokens)| tokens)
        .chain(first_user.map(|unit| tokens[unit]))
        .fold(0, u32::saturating_add)
}

/// The first message that was not part of the last request.
pub(super) fn fresh(units: &[Unit], known: usize) -> usize {
    let mut said = 0;
    for unit in units.iter().filter(|unit| unit.kind != UnitKind::System) {
        if said + unit.messages.len() > known {
            return unit.messages.start + (known - said);
        }
        said += unit.messages.len();
    }
    units.last().map_or(0, |unit| unit.messages.end)
}

fn narrow(tokens: i64) -> i32 {
    tokens.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}
