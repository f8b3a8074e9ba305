//! Finds the fold of a conversation: what everything weighs, what the session remembers, and the
//! replay of what it does not.

use super::{
    Policy, Recall, budget,
    clear::{
        self,
        sweep::{Sweep, SweptMark},
    },
    cuts::{Cuts, sum_tokens},
    fold::Fold,
    ground::Ground,
    measured_request::MeasuredRequest,
    placed_injections::{InjectedWeight, with_injected},
    preface::PrefaceBase,
    priority::removable_texts::RemovableTexts,
    replay::{Replay, Start},
    role_alternation,
    view::RequestView,
};
use crate::conversation::units::{self, UnitKind};

/// The part of the usual budget that a ledger may take, and the most that it may; raw tokens.
const LEDGER_SHARE: u32 = 10;
const MAX_LEDGER_TOKENS: u32 = 4_000;
/// Raw tokens that frame a preface.
pub(super) const PREFACE_FRAME: u32 = 8;

/// A conversation that was replayed, and where it is folded.
pub(super) struct FoldDecision<'a> {
    pub(super) replay: Replay<'a>,
    pub(super) fold: Fold,
    pub(super) ground: Ground,
    /// Raw tokens that the provider has not counted yet.
    pub(super) added: u32,
    /// Raw tokens that the request may have.
    pub(super) high: u32,
}

impl FoldDecision<'_> {
    /// Whether the conversation alternates before the first place at which something is cut; `None` where
    /// nothing is.
    pub(super) fn alternates_before_cut(&self) -> Option<bool> {
        let view = self.replay.view;
        let first = units::count_messages_before(view.units, self.fold.first?);
        Some(role_alternation::has_alternating_roles(
            view.conversation,
            first as usize,
        ))
    }
}

/// Replays the conversation and finds the fold.
pub(super) fn find_fold<'a>(
    view: RequestView<'a>,
    measured: &MeasuredRequest<'_>,
    mut cuts: Cuts<'a>,
    injected: InjectedWeight,
    recall: &Recall,
) -> FoldDecision<'a> {
    let tools = measured.shares.tools;
    let ground = Ground::from_policy(
        &view.policy,
        weigh_fixed_messages(view, &cuts).saturating_add(tools),
    );
    let ground = ground.or_previous(recall.memory.ground);
    if ground == recall.memory.ground {
        cuts.recall_texts(&recall.memory);
    }
    let added = count_added_tokens(view, &cuts, &injected, recall);
    let raw = |tokens| recall.calibration.to_raw_tokens(tokens, added);
    let weights = view.token_weights();
    let base = PrefaceBase::from_injections(&recall.injections);
    let mut replay = Replay {
        view,
        // What is injected moves no grid, so it counts only from here on.
        tokens: view
            .units
            .iter()
            .zip(&injected.units)
            .map(|(unit, &more)| with_injected(cuts.weigh_unit(unit), more))
            .collect(),
        beside: with_injected(tools, injected.beside),
        high: compute_high_marks(view, measured, raw),
        preface: weights
            .count_plain_tokens(&base.text)
            .saturating_add(PREFACE_FRAME),
        ledger: ledger_room(&view.policy),
        based: view.count_pinned(),
        prefaced: base.boundary.is_some(),
        step: ground.grid_step(),
        sweep: None,
        spares: RemovableTexts::new(
            cuts.texts.list_removable_texts(),
            clear::least_freed(&view.policy),
        ),
        injected: injected.units,
        cuts,
    };
    let steady = raw(measured.budgets.clearing_budget().tokens);
    replay.sweep = prepare_sweep(&replay, ground, steady, &injected.turns, recall);
    let start = find_replay_start(&mut replay, ground, base.boundary, recall);
    let fold = replay.run(start);
    FoldDecision {
        replay,
        fold,
        ground,
        added,
        high: raw(measured.budgets.current_budget().tokens),
    }
}

/// Raw tokens that the request may have that ended at each unit; `raw` makes them of a budget's tokens.
fn compute_high_marks(
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    raw: impl Fn(u32) -> u32,
) -> Vec<u32> {
    // Budgets change with the longest answer so far: seldom.
    let mut before = None;
    let ends = view.units.iter().map(|unit| unit.messages.end);
    ends.map(|end| {
        let budget = measured.budgets.budget_at(end).tokens;
        let high = match before {
            Some((same, high)) if same == budget => high,
            _ => raw(budget),
        };
        before = Some((budget, high));
        high
    })
    .collect()
}

/// Raw tokens that came since the last request that the provider counted.
fn count_added_tokens(
    view: RequestView<'_>,
    cuts: &Cuts<'_>,
    injected: &InjectedWeight,
    recall: &Recall,
) -> u32 {
    if recall.counted {
        return 0;
    }
    let fresh = units::first_new_message(view.units, recall.messages);
    with_injected(sum_tokens(&cuts.results.tokens[fresh..]), injected.fresh)
}

/// What can be cleared, where the request may be past the mark of clearing or was before. `steady`: the raw
/// tokens by which clearing goes. `turns`: the units after which an injected turn begins.
fn prepare_sweep(
    replay: &Replay<'_>,
    ground: Ground,
    steady: u32,
    turns: &[usize],
    recall: &Recall,
) -> Option<Sweep> {
    let step = ground.clear_step()?;
    let view = replay.view;
    let at = view.policy.settings.clear.at;
    let mark = |high: &u32| (f64::from(steady.min(*high)) * at) as u32;
    let marks: Vec<u32> = replay.high.iter().map(mark).collect();
    let lowest = marks.iter().min().copied().unwrap_or(0);
    if replay.full() <= lowest && recall.memory.swept == SweptMark::default() {
        return None;
    }
    let mut sweep = Sweep::new(view, &replay.cuts.first_line_tokens, step, turns, marks);
    let units = view.units.iter().zip(&replay.injected);
    let results = &replay.cuts.results;
    sweep.small = units
        .map(|(unit, &more)| with_injected(sweep.clearing.weigh(unit, results), more))
        .collect();
    Some(sweep)
}

/// Requests whose cuts are remembered are not replayed, unless they were cut on another grid; nor are
/// those from before a course or a summary, which begins at `boundary`.
fn find_replay_start(
    replay: &mut Replay<'_>,
    ground: Ground,
    boundary: Option<u32>,
    recall: &Recall,
) -> Start {
    let units = replay.view.units;
    let memory = &recall.memory;
    let same_grid = memory.ground == ground;
    let mark = memory.fold.filter(|_| same_grid);
    let remembered = mark.and_then(|mark| mark.to_fold(units));
    let swept = memory.swept.find_units(units).filter(|_| same_grid);
    // Where the remembered fold or the remembered clearing has no place here, the replay begins at the start.
    let lost = (memory.fold.is_some() && remembered.is_none()) || swept.is_none();
    let begun = boundary.map(|boundary| make_course_fold(replay, boundary));
    if let Some(begun) = begun {
        replay.based = begun.boundary;
    }
    let fresh = units::first_new_message(units, recall.messages);
    let from = match lost {
        true => 0,
        false => units::find_unit_of_message(units, fresh).min(units.len().saturating_sub(1)),
    };
    Start {
        from: from.max(begun.map_or(0, |fold| fold.boundary)),
        fold: match (remembered, begun) {
            (Some(mark), Some(begun)) if mark.boundary < begun.boundary => Some(begun),
            (mark, begun) => mark.or(begun),
        },
        swept: swept.filter(|_| !lost).unwrap_or_default(),
    }
}

/// The fold that a course begins with: all up to message `said` is gone, system messages apart,
/// whatever the grid says.
fn make_course_fold(replay: &Replay<'_>, said: u32) -> Fold {
    let units = replay.view.units;
    let boundary = units::find_boundary_unit(units, said);
    let removed = (replay.view.count_pinned()..boundary)
        .filter(|&unit| !units[unit].stays)
        .fold(0u32, |sum, unit| sum.saturating_add(replay.tokens[unit]));
    Fold {
        k: removed / replay.step,
        boundary,
        removed,
        ..Fold::default()
    }
}

/// Raw tokens that a ledger may take: a tenth of the usual budget, so that it is the same in every
/// process.
fn ledger_room(policy: &Policy<'_>) -> u32 {
    (budget::default_budget(policy).tokens / LEDGER_SHARE).min(MAX_LEDGER_TOKENS)
}

/// Raw tokens of the system messages and of the first user message: what no cut can take. Annotated texts
/// that may go are none of it, so that the grid is the same whether they went.
fn weigh_fixed_messages(view: RequestView<'_>, cuts: &Cuts<'_>) -> u32 {
    let first_user = view.units.iter().find(|unit| unit.kind == UnitKind::User);
    let system = view.units.iter().filter(|it| it.kind == UnitKind::System);
    system
        .chain(first_user)
        .map(|unit| cuts.weigh_unit_least(unit))
        .fold(0, u32::saturating_add)
}
