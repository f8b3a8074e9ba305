//! Finds the fold of a conversation: what everything weighs, what the session remembers, and the
//! replay of what it does not.

use crate::{
    config::profile::PastReasoning,
    conversation::units::{self, Unit, UnitKind},
    guard::{
        fold::{
            cut_state::CutState,
            ground::Ground,
            ledger,
            memory::Recall,
            preface::PrefaceBase,
            replay::{EarlyMasking, Replay, ReplayStart},
            vocabulary::Vocabulary,
        },
        grammar::running_turn,
        inject::placed_injections::{InjectedWeight, with_injected},
        request::{
            budget, estimate, measured_request::MeasuredRequest, policy::Policy, view::RequestView,
        },
        shrink::{
            clear::{self, Clearing},
            cuts::{Cuts, sum_tokens},
            priority::removable_texts::RemovableTexts,
        },
    },
};

/// The part of the usual budget that what the user said may take, and the most that it may; raw tokens.
const SAID_SHARE: u32 = 10;
/// The part of the usual budget that words may take, and the most; raw tokens.
const WORDS_SHARE: u32 = 50;
const MAX_WORDS_TOKENS: u32 = 2_000;
const MAX_SAID_TOKENS: u32 = 4_000;
/// Raw tokens that frame a preface.
pub(in crate::guard) const PREFACE_FRAME: u32 = 8;

/// The part of a budget that an estimate without any usage may pass by its error: that of 95 % of the recorded requests
/// of 2 kB and more lies within it (`tests/it/estimate.rs`).
const UNCOUNTED_ERROR: f64 = 0.07;

/// A conversation that was replayed, and what is cut of it.
pub(in crate::guard) struct FoldDecision<'a> {
    pub(in crate::guard) replay: Replay<'a>,
    pub(in crate::guard) state: CutState,
    pub(in crate::guard) ground: Ground,
    /// Raw tokens of the ledger as it is written.
    pub(in crate::guard) ledger: u32,
    /// Raw tokens that the provider has not counted yet.
    pub(in crate::guard) added: u32,
    /// Raw tokens that the request may have.
    pub(in crate::guard) high: u32,
}

/// Replays the conversation and finds the cuts. `alternates`: whether user and assistant take turns, where
/// that is settled.
pub(in crate::guard) fn find_fold<'a>(
    view: RequestView<'a>,
    measured: &MeasuredRequest<'_>,
    mut cuts: Cuts<'a>,
    injected: InjectedWeight,
    recall: &Recall,
    alternates: Option<bool>,
) -> FoldDecision<'a> {
    let tools = measured.shares.tools;
    let ground = Ground::from_policy(&view.policy);
    let memory = recall.kept_memory();
    if ground == memory.ground {
        cuts.recall_texts(&memory.tight);
    }
    let added = count_added_tokens(view, &cuts, &injected, recall);
    let is_unsure = !recall.calibration.is_counted() && !recall.was_refused;
    let raw = |tokens| recall.calibration.to_raw_tokens(tokens, added);
    let weights = view.token_weights();
    let base = PrefaceBase::new(&recall.injections, view.names_ids);
    let words_room = words_room(&view.policy);
    let steady = raw(measured.budgets.clearing_budget().uncut_tokens());
    let high = compute_high_marks(view, measured, raw);
    let reasoning = weigh_reasoning(view);
    let mut replay = Replay {
        view,
        tokens: view
            .units
            .iter()
            .zip(&injected.units)
            .map(|(unit, &more)| with_injected(cuts.weigh_unit(unit), more))
            .collect(),
        bound_tokens: view
            .units
            .iter()
            .map(|unit| cuts.weigh_bound(unit))
            .collect(),
        reasons_from: reasoning
            .iter()
            .position(|it| *it > 0)
            .unwrap_or(usize::MAX),
        reasoning,
        reasoned: 0,
        leaves_out_reasoning: false,
        masks: Clearing::nothing(view.conversation.items.len()),
        masked_tokens: Vec::new(),
        beside: with_injected(tools, injected.beside),
        recent: None,
        early: early_masking(&view.policy, steady, &high),
        high,
        fixed: sum_fixed_messages(view, &cuts, tools),
        low_water: ground.low_water(),
        preface: weights
            .count_plain_tokens(&base.text)
            .saturating_add(PREFACE_FRAME),
        said_room: said_room(&view.policy),
        words_room,
        ledger_frame: ledger::weigh_frame(&base.ledger_head(), &weights),
        based: view.count_pinned(),
        question: None,
        prefaced: base.boundary.is_some(),
        spares: RemovableTexts::new(
            cuts.texts.list_removable_texts(),
            clear::least_freed(&view.policy),
        ),
        injected: injected.units,
        gaps: injected.gaps,
        vocabulary: Vocabulary::default(),
        free_tokens: 0,
        profile: *view.policy.profile,
        alternates,
        is_cold: recall.is_cold,
        keeps_least: recall.keeps_least,
        thinking: running_turn::find_thinking_units(view),
        tolerance: match is_unsure && view.policy.sends_when_unsure() {
            true => UNCOUNTED_ERROR,
            false => 0.0,
        },
        cuts,
    };
    replay.prepare_masks(memory.cut.is_some());
    let start = find_replay_start(&mut replay, ground, base.boundary, recall);
    let state = replay.run(start);
    FoldDecision {
        ledger: replay.ledger_tokens(&state),
        high: replay.add_tolerance(raw(measured.budgets.current_budget().uncut_tokens())),
        replay,
        state,
        ground,
        added,
    }
}

/// Of each unit, raw tokens of the reasoning that is bound to what stands before it; none where there is no such
/// reasoning.
fn weigh_reasoning(view: RequestView<'_>) -> Vec<u32> {
    if view.policy.profile.past_reasoning == PastReasoning::Read {
        return Vec::new();
    }
    let weights = view.token_weights();
    let mut has_any = false;
    let mut weigh = |unit: &Unit| {
        let items = view.conversation.items[unit.messages.clone()].iter();
        let tokens = items
            .filter_map(|item| estimate::estimate_reasoning(view.conversation, item, &weights));
        tokens.fold(0u32, |sum, tokens| {
            has_any = true;
            sum.saturating_add(tokens)
        })
    };
    let reasoning: Vec<u32> = view.units.iter().map(&mut weigh).collect();
    match has_any {
        true => reasoning,
        false => Vec::new(),
    }
}

/// Masking before the budget is reached, where the settings ask for it. `steady`: the raw tokens by which it
/// goes.
fn early_masking(policy: &Policy<'_>, steady: u32, high: &[u32]) -> Option<EarlyMasking> {
    let settings = &policy.settings.clear;
    let at = settings.at.filter(|_| settings.enabled)?;
    let mark = |high: &u32| (f64::from(steady.min(*high)) * at) as u32;
    Some(EarlyMasking {
        marks: high.iter().map(mark).collect(),
        least_freed: match (at, settings.at_least) {
            (0.0, None) => 1,
            _ => clear::least_freed(policy),
        },
    })
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
        let budget = measured.budgets.budget_at(end).uncut_tokens();
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
pub(in crate::guard) fn count_added_tokens(
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

/// Requests whose cuts are remembered are not replayed, unless they were cut for another window; nor are
/// those from before a course or a summary, which begins at `boundary`.
fn find_replay_start(
    replay: &mut Replay<'_>,
    ground: Ground,
    boundary: Option<u32>,
    recall: &Recall,
) -> ReplayStart {
    let units = replay.view.units;
    let memory = recall.kept_memory();
    let mark = memory.cut.as_ref().filter(|_| ground == memory.ground);
    let mut state = mark.and_then(|mark| mark.find_cut(replay.view.conversation, units));
    let begun = boundary.map(|boundary| units::find_boundary_unit(units, boundary));
    let begun = begun.map(|begun| begin_with_thinking(replay, begun));
    if let Some(begun) = begun {
        replay.based = begun;
        replay.question = units::find_question_before(units, begun);
        let state = state.get_or_insert_with(|| CutState::new(units.len()));
        state.fold_before(begun, replay.view);
    }
    let fresh = units::first_new_message(units, recall.messages.min(memory.planned as usize));
    let is_known =
        memory.cut.is_none() && ground == memory.ground || state.is_some() && mark.is_some();
    let from = match is_known {
        false => 0,
        true => units::find_unit_of_message(units, fresh).min(units.len().saturating_sub(1)),
    };
    if is_known {
        replay.begin_reasoning(recall.history.replayed);
    }
    ReplayStart {
        from: from.max(begun.unwrap_or(0)),
        state,
    }
}

/// Raw tokens that the words of a ledger may take.
fn words_room(policy: &Policy<'_>) -> u32 {
    (budget::default_budget(policy).tokens / WORDS_SHARE).min(MAX_WORDS_TOKENS)
}

/// Raw tokens that a ledger may take for what the user said: a tenth of the usual budget, so that it is the same in
/// every process.
fn said_room(policy: &Policy<'_>) -> u32 {
    (budget::default_budget(policy).tokens / SAID_SHARE).min(MAX_SAID_TOKENS)
}

/// Of the request that ended at each unit, raw tokens of the system messages and of the task, and of what stands
/// `beside` the messages: what no cut can take. Annotated texts that may go are none of it, so that a cut goes as deep
/// whether they went or not.
fn sum_fixed_messages(view: RequestView<'_>, cuts: &Cuts<'_>, beside: u32) -> Vec<u32> {
    let sums = view.units.iter().scan(beside, |sum, unit| {
        let is_task = unit.kind == UnitKind::User && unit.stays;
        let fixed = match is_task || unit.kind == UnitKind::System {
            true => unit.messages.clone(),
            false => unit.bound_messages(),
        };
        *sum = sum.saturating_add(cuts.weigh_least(fixed));
        Some(*sum)
    });
    sums.collect()
}

/// Where a course begins that leaves out all units before `begun`: earlier where the running turn would begin with an
/// answer without thinking.
fn begin_with_thinking(replay: &Replay<'_>, begun: usize) -> usize {
    let (units, thinking) = (replay.view.units, &replay.thinking);
    let is_user = |unit: &Unit| unit.kind == UnitKind::User;
    let answers = |unit: &Unit| matches!(unit.kind, UnitKind::Assistant | UnitKind::Step);
    if thinking.is_empty() || units[begun..].iter().any(is_user) {
        return begun;
    }
    let first = units[begun..].iter().position(answers);
    if first.is_none_or(|first| thinking[begun + first]) {
        return begun;
    }
    let turn = units[..begun]
        .iter()
        .rposition(is_user)
        .map_or(0, |it| it + 1);
    let mut earlier = (turn.max(replay.view.count_pinned())..begun).rev();
    earlier.find(|&unit| thinking[unit]).unwrap_or(begun)
}
