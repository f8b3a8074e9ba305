//! Finds what is folded and cleared of a conversation: what everything weighs, what the session remembers, and the
//! replay of what it does not.

use crate::{
    conversation::units,
    guard::{
        fold::{
            basis::CutBasis,
            cut_state::CutState,
            memory::Recall,
            preface::PrefaceBase,
            replay::{
                BoundReasoning, NoteWeights, Replay, ReplayBudgets, ReplayStart, TurnRules,
                UnitWeights,
            },
            vocabulary::Vocabulary,
        },
        inject::placed_injections::{InjectedWeight, with_injected},
        request::{estimate::sum_tokens, measured_request::MeasuredRequest, view::RequestView},
        shrink::{
            clear::{self, Clearing},
            cuts::MessageCuts,
            priority::removable_texts::RemovableTexts,
        },
    },
};

/// A conversation that was replayed, and what is cut of it.
pub(in crate::guard) struct ReplayedConversation<'a> {
    pub(in crate::guard) replay: Replay<'a>,
    pub(in crate::guard) state: CutState,
    pub(in crate::guard) basis: CutBasis,
    /// Raw tokens of the ledger as it is written.
    pub(in crate::guard) ledger: u32,
    /// Raw tokens that the provider has not counted yet.
    pub(in crate::guard) added: u32,
    /// Raw tokens that the request may have.
    pub(in crate::guard) high: u32,
}

/// Replays the conversation and finds the cuts. `alternates`: whether user and assistant take turns, if that is settled.
pub(in crate::guard) fn replay_conversation<'a>(
    view: RequestView<'a>,
    measured: &MeasuredRequest<'_>,
    cuts: MessageCuts<'a>,
    injected: InjectedWeight,
    recall: &'a Recall,
    alternates: Option<bool>,
) -> ReplayedConversation<'a> {
    let basis = CutBasis::from_policy(&view.policy);
    let added = count_added_tokens(view, &cuts, &injected, recall);
    let raw = |tokens| recall.calibration.to_raw_tokens(tokens, added);
    let is_counted = recall.calibration.is_counted() || recall.was_refused;
    let low_water = basis.low_water();
    let base = PrefaceBase::new(&recall.injections, view.names_ids);
    let removable = cuts.texts.list_removable_texts();
    let mut replay = Replay {
        view,
        recall,
        clearing: Clearing::nothing(view.conversation.items.len()),
        weights: UnitWeights::new(view, &cuts, injected, measured.shares.tools),
        reasoning: BoundReasoning::weigh(view),
        budgets: ReplayBudgets::new(view, measured, &cuts, low_water, is_counted, raw),
        note: NoteWeights::new(view, &base),
        rules: TurnRules::new(view, alternates),
        texts: RemovableTexts::new(removable, clear::least_freed(&view.policy)),
        vocabulary: Vocabulary::default(),
        cuts,
    };
    replay.prepare_clearing(recall.kept_memory().cut.is_some());
    let start = find_replay_start(&mut replay, basis, base.boundary);
    let state = replay.run(start);
    let budget = raw(measured.budgets.current_budget().uncut_tokens());
    ReplayedConversation {
        ledger: replay.note.of_ledger(&state),
        high: replay.budgets.add_tolerance(budget),
        replay,
        state,
        basis,
        added,
    }
}

/// Raw tokens that came since the last request that the provider counted.
pub(in crate::guard) fn count_added_tokens(
    view: RequestView<'_>,
    cuts: &MessageCuts<'_>,
    injected: &InjectedWeight,
    recall: &Recall,
) -> u32 {
    if recall.counted {
        return 0;
    }
    let fresh = units::first_new_message(view.units, recall.messages);
    with_injected(sum_tokens(&cuts.messages.tokens[fresh..]), injected.fresh)
}

/// Requests whose cuts are remembered are not replayed, unless they were cut for another window; nor are
/// those from before a course or a summary, which begins at `boundary`.
fn find_replay_start(
    replay: &mut Replay<'_>,
    basis: CutBasis,
    boundary: Option<u32>,
) -> ReplayStart {
    let (view, recall) = (replay.view, replay.recall);
    let units = view.units;
    let memory = recall.kept_memory();
    let mark = memory.cut.as_ref().filter(|_| basis == memory.basis);
    let mut state = mark.and_then(|mark| mark.find_cut(view.conversation, units));
    let begun = boundary.map(|boundary| {
        let begun = units::find_boundary_unit(units, boundary);
        replay.rules.begin_with_thinking(view, begun)
    });
    if let Some(begun) = begun {
        replay.note.begins = begun;
        replay.note.question = units::find_question_before(units, begun);
        let state = state.get_or_insert_with(|| CutState::new(units.len()));
        state.fold_before(begun, view);
    }
    let fresh = units::first_new_message(units, recall.messages.min(memory.planned as usize));
    let is_known =
        memory.cut.is_none() && basis == memory.basis || state.is_some() && mark.is_some();
    let from = if is_known {
        units::find_unit_of_message(units, fresh).min(units.len().saturating_sub(1))
    } else {
        0
    };
    if is_known {
        replay.begin_reasoning(recall.history.replayed);
    }
    ReplayStart {
        from: from.max(begun.unwrap_or(0)),
        state,
    }
}
