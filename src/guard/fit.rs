//! Finds the fold of a conversation: what everything weighs, what the session remembers, and the
//! replay of what it does not.

use super::{
    Policy, Recall,
    budget::{self, Shares},
    cap::Room,
    clear::{
        self, Clearing,
        sweep::{Swept, SweptMark},
    },
    fold::{Fold, Replay, Shrink},
    ground::Ground,
    preface::Base,
    priority::{Priorities, spare::Spares},
    putback::Weighed,
    results::Results,
    rounds,
    units::{self, Unit, UnitKind},
};
use crate::{json::text, wire::chat::Conversation};

/// The part of the usual budget that a ledger may take, and the most that it may; raw tokens.
const LEDGER_SHARE: u32 = 10;
const MAX_LEDGER_TOKENS: u32 = 4_000;

/// A conversation that was replayed, and where it is folded.
pub(super) struct Fit<'a> {
    pub(super) replay: Replay<'a>,
    pub(super) fold: Fold,
    pub(super) ground: Ground,
    /// None where there was nothing to clear.
    pub(super) clearing: Option<Clearing>,
    /// Raw tokens that the provider has not counted yet.
    pub(super) added: u32,
    /// Raw tokens that the request may have.
    pub(super) high: u32,
}

/// What is ours; raw tokens.
pub(super) struct Ours {
    pub(super) records: Weighed,
    /// Units after which a turn of ours begins.
    pub(super) turns: Vec<usize>,
    pub(super) tools: u32,
}

/// What is cut of single messages, before the replay and by it.
pub(super) struct Cuts<'r, 'a> {
    pub(super) results: &'r mut Results<'a>,
    pub(super) texts: &'r mut Priorities<'a>,
    /// Raw tokens of every message as the first line leaves it.
    pub(super) first: &'r [u32],
}

/// Replays the conversation and finds the fold.
pub(super) fn fit<'a>(
    (conversation, units): (&Conversation, &'a [Unit]),
    (shares, ours): (Shares, &Ours),
    cuts: Cuts<'_, '_>,
    policy: &Policy<'_>,
    recall: &Recall,
    room: &Room<'_>,
) -> Fit<'a> {
    let Cuts {
        results,
        texts,
        first,
    } = cuts;
    let least = |unit: &Unit| texts.least(unit, &results.tokens);
    let fixed = fixed(units, least).saturating_add(shares.tools);
    let ground = Ground::of(policy, fixed).or(recall.memory.ground);
    if ground == recall.memory.ground {
        texts.recall(&recall.memory.tight, &mut results.tokens);
    }
    let of = |unit: &Unit| {
        unit.messages
            .clone()
            .map(|at| results.tokens[at])
            .fold(0, u32::saturating_add)
    };
    let tokens: Vec<u32> = units.iter().map(of).collect();
    let fresh = fresh(units, recall.messages);
    let added = match recall.counted {
        true => 0,
        false => results.tokens[fresh..]
            .iter()
            .fold(0, |sum: u32, &tokens| sum.saturating_add(tokens))
            .saturating_add_signed(narrow(ours.records.fresh)),
    };
    let weights = policy.weights();
    let base = Base::of(&recall.ours);
    let raw = |tokens| recall.calibration.raw(tokens, added);
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
        high: units
            .iter()
            .map(|unit| raw(room.at(unit.messages.end).tokens))
            .collect(),
        preface: rounds::tokens(&text::escape(&base.text), &weights).saturating_add(8),
        ledger: ledger_room(policy),
        based: 0,
        prefaced: base.boundary.is_some(),
        step: ground.step(),
        grids: None,
        spares: Spares::new(texts.spares(units), clear::least_freed(policy)),
    };
    let beside: Vec<i32> = ours.records.units.iter().map(|&it| narrow(it)).collect();
    let steady = raw(room.steady().tokens);
    let mark = |high: u32| (f64::from(steady.min(high)) * policy.settings.clear.at) as u32;
    let marks: Vec<u32> = replay.high.iter().map(|&high| mark(high)).collect();
    let lowest = marks.iter().min().copied().unwrap_or(0);
    let clears = replay.full() > lowest || recall.memory.swept != SweptMark::default();
    let clearing = ground.clear_step().filter(|_| clears).map(|step| {
        let clearing = Clearing::new(conversation, units, policy, first);
        let turns = (first, &ours.turns[..]);
        let mut grids = clearing.grids(conversation, (units, policy), turns, step);
        grids.marks.clone_from(&marks);
        let units = units.iter().zip(&beside);
        grids.small = units
            .map(|(unit, &beside)| clearing.weigh(unit, results, beside))
            .collect();
        replay.grids = Some(grids);
        clearing
    });
    let start = start(&mut replay, (units, fresh), (recall, ground), base.boundary);
    let mut shrinking = Shrinking {
        units,
        results,
        texts,
        clearing: clearing.as_ref(),
        beside: &beside,
    };
    let fold = replay.run(start.from, (start.base, start.swept), &mut shrinking);
    Fit {
        replay,
        fold,
        ground,
        clearing,
        added,
        high: raw(room.now().tokens),
    }
}

/// Makes messages smaller as the replay asks for it.
struct Shrinking<'r, 'a> {
    units: &'r [Unit],
    results: &'r mut Results<'a>,
    texts: &'r mut Priorities<'a>,
    clearing: Option<&'r Clearing>,
    /// Raw tokens of what is ours beside each unit.
    beside: &'r [i32],
}

impl Shrink for Shrinking<'_, '_> {
    fn tighten(&mut self, unit: usize, excess: u32) -> (u32, u32) {
        let taken = self
            .results
            .tighten(self.units[unit].messages.clone(), excess);
        let small = self.clearing.map_or(0, |clearing| {
            clearing.weigh(&self.units[unit], self.results, self.beside[unit])
        });
        (taken, small)
    }

    fn leave_out(&mut self, text: usize) -> u32 {
        self.texts.leave_out_text(text, &mut self.results.tokens)
    }
}

/// Where a replay begins, and with what.
struct Start {
    /// The first unit that is looked at.
    from: usize,
    base: Option<Fold>,
    swept: Swept,
}

/// Requests whose cuts are remembered are not replayed, unless they were cut on another grid; nor are
/// those from before a course or a summary, which begins at `boundary`. `fresh`: the first message
/// that was not part of the last request.
fn start(
    replay: &mut Replay<'_>,
    (units, fresh): (&[Unit], usize),
    (recall, ground): (&Recall, Ground),
    boundary: Option<u32>,
) -> Start {
    let same_grid = recall.memory.ground == ground;
    let remembered = replay.recall(recall.memory.fold.filter(|_| same_grid));
    let swept = replay.recall_swept(recall.memory.swept);
    let swept = swept.filter(|_| same_grid);
    // Where one of the two cannot be found, both are.
    let lost = (recall.memory.fold.is_some() && remembered.is_none()) || swept.is_none();
    let from = if !same_grid || lost {
        0
    } else {
        units
            .iter()
            .position(|unit| unit.messages.end > fresh)
            .unwrap_or(units.len().saturating_sub(1))
    };
    let begun = boundary.map(|boundary| replay.begin(boundary));
    replay.based = begun.map_or_else(|| units::pinned(units), |fold| fold.boundary);
    Start {
        from: from.max(begun.map_or(0, |fold| fold.boundary)),
        base: match (remembered, begun) {
            (Some(mark), Some(begun)) if mark.boundary < begun.boundary => Some(begun),
            (mark, begun) => mark.or(begun),
        },
        swept: swept.filter(|_| !lost).unwrap_or_default(),
    }
}

/// Raw tokens that a ledger may take: a tenth of the usual budget, so that it is the same in every
/// process.
pub(super) fn ledger_room(policy: &Policy<'_>) -> u32 {
    (budget::usual(policy) / LEDGER_SHARE).min(MAX_LEDGER_TOKENS)
}

/// Raw tokens of the system messages and of the first user message: what no cut can take. Annotated texts
/// that may go are none of it, so that the grid is the same whether they went.
fn fixed(units: &[Unit], least: impl Fn(&Unit) -> u32) -> u32 {
    let first_user = units.iter().find(|unit| unit.kind == UnitKind::User);
    let system = units.iter().filter(|unit| unit.kind == UnitKind::System);
    system
        .chain(first_user)
        .map(least)
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
