//! The replay: decides which units are left out and which results are cleared.
//!
//! A conversation is replayed unit by unit from its start, as its requests came when it grew. A request for
//! which a cut is due is cut once, deeply, so that the provider's cache stays warm until the next cut. The cuts of a request
//! are tried in the order of `rules::RULES`.
//!
//! Cuts depend only on earlier messages, so any process with the same counts finds the same ones, without any state; the
//! cut of a request whose cache is cold is the one exception.
//! A stored state spares the replay. It also keeps a cut in place if the counts change.
//!
//! Units are *pinned* (never left out, by what they are), *lasting* (never left out, also since something needs them:
//! `units::list_lasting`), *open* (a cut may change them now), *waiting* (for a later unit that must go first) or *settled*
//! (no cut can change them any more).

mod budgets;
mod clear_units;
mod deep_cut;
mod due;
mod kept_units;
mod last_resorts;
mod question;
mod reasoning;
mod turn_rules;
mod unit_weights;
mod worth;

use self::{
    budgets::ReplayBudgets,
    kept_units::{KeptCounts, KeptUnits},
    reasoning::BoundReasoning,
    turn_rules::TurnRules,
    unit_weights::UnitWeights,
    worth::VisibleWords,
};
use crate::{
    conversation::units::{self, RequiredTail, Unit, UnitKind},
    guard::{
        fold::{
            basis::CutBasis,
            cut_state::CutState,
            memory::SessionKnowledge,
            note::{Note, PrefaceBase},
            vocabulary::Vocabulary,
        },
        inject::placed_injections::{InjectedWeight, with_injected},
        order::{Due, RequestCut},
        request::{estimate::sum_tokens, measured_request::MeasuredRequest, view::RequestView},
        shrink::{
            clearing::{self, Clearing, RecentUnits},
            message_cuts::MessageCuts,
            priority::removable_texts::{RemovableText, RemovableTexts},
            shortened_messages::ShortenedMessages,
        },
    },
};

/// A conversation that was replayed, and what is cut of it.
pub(in crate::guard) struct ReplayedConversation<'a> {
    pub(in crate::guard) replay: Replay<'a>,
    pub(in crate::guard) state: CutState,
    pub(in crate::guard) basis: CutBasis,
    /// Raw tokens that the provider has not counted yet.
    pub(in crate::guard) added: u32,
    /// The most raw tokens of the request: its budget, with the tolerance while it lasts.
    pub(in crate::guard) most: u32,
}

impl ReplayedConversation<'_> {
    /// Whether user and assistant alternate; `None` if nothing has settled it.
    pub(in crate::guard) fn alternates(&self) -> Option<bool> {
        self.replay.turn_rules.alternates
    }
}

/// A conversation that is being replayed.
pub(in crate::guard) struct Replay<'a> {
    view: RequestView<'a>,
    knowledge: &'a SessionKnowledge,
    pub(in crate::guard) cuts: MessageCuts<'a>,
    /// What results, media and arguments become if they are cleared.
    pub(in crate::guard) clearing: Clearing,
    weights: UnitWeights,
    reasoning: BoundReasoning,
    budgets: ReplayBudgets,
    pub(in crate::guard) note: Note<'a>,
    turn_rules: TurnRules<'a>,
    /// The annotated texts that may be left out.
    texts: RemovableTexts,
    vocabulary: Vocabulary,
    /// A request was over its budget before any deep cut: tool definitions get shorter with it, if they may.
    pub(in crate::guard) shortens_tools: bool,
    /// Why the request that is planned is cut, also where it is over its budget and nothing can go. `None`: what is missing was
    /// cut for an earlier request of the conversation.
    pub(in crate::guard) due: Option<Due>,
}

/// A conversation at one moment of its replay.
///
/// `kept`, `visible` and `live` follow from `state` and from what is shortened. `add_unit` adds the next unit; the cuts
/// `clear_unit`, `fold_unit` and `tighten`, and `return_question`, change all that follows from them; `leave_out_texts` and
/// `drop_reasoning` change `live` alone. `read_words` brings `visible` up to date before a cut after which the words of the
/// ledger are chosen, `drop_settled` and `open_waiting_before` the lists of `kept`.
struct Moment {
    state: CutState,
    kept: KeptUnits,
    visible: VisibleWords,
    /// Raw tokens of the request, the preface apart.
    live: u32,
    /// The user's newest message, while no step follows it: nothing of it is old enough to be cleared.
    asked: Option<usize>,
    /// The words of the ledger are not chosen yet since the last cut.
    ledger_is_due: bool,
    /// At what a cut found nothing that could go. While that is the same, no cut looks again.
    stuck: Option<CutLimits>,
}

/// On what it depends whether a cut that is needed can free anything.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CutLimits {
    counts: KeptCounts,
    /// [`Moment::asked`].
    asked: Option<usize>,
    recent: Option<RecentUnits>,
}

/// A request of the replay.
#[derive(Clone, Copy)]
struct Request {
    /// The unit that it ended at.
    at: usize,
    /// The first unit that the request needs: its newest step or message. Units from this one on stay.
    newest: usize,
    /// It is the request that is planned.
    is_last: bool,
}

/// Replays the conversation and finds the cuts. `alternates`: whether user and assistant alternate, if that is settled.
pub(in crate::guard) fn replay_conversation<'a>(
    view: RequestView<'a>,
    measured: &MeasuredRequest<'_>,
    cuts: MessageCuts<'a>,
    injected: InjectedWeight,
    knowledge: &'a SessionKnowledge,
    alternates: Option<bool>,
) -> ReplayedConversation<'a> {
    let basis = CutBasis::from_policy(&view.policy);
    let added = count_added_tokens(view, &cuts, &injected, knowledge);
    let raw = |tokens| knowledge.calibration.to_raw_tokens(tokens, added);
    let is_counted = knowledge.calibration.is_counted() || knowledge.refused.was_too_long;
    let low_water = basis.low_water();
    let turn_rules = TurnRules::new(view, alternates);
    let base = PrefaceBase::new(&knowledge.injections, view.names_ids.first);
    let begun = base.boundary.map(|boundary| {
        let begun = units::find_boundary_unit(view.units, boundary);
        turn_rules.begin_with_thinking(begun)
    });
    let removable = cuts.texts.list_removable_texts();
    let mut replay = Replay {
        view,
        knowledge,
        clearing: Clearing::nothing(view.conversation.items.len()),
        weights: UnitWeights::new(view, &cuts, injected, measured.shares.tools),
        reasoning: BoundReasoning::weigh(view, knowledge.refused.reasoning_density),
        budgets: ReplayBudgets::new(view, measured, &cuts, low_water, is_counted, raw),
        note: Note::new(view, base, begun),
        turn_rules,
        texts: RemovableTexts::new(removable, clearing::least_freed(&view.policy)),
        vocabulary: Vocabulary::default(),
        shortens_tools: false,
        due: None,
        cuts,
    };
    let state = replay.run(basis, begun);
    let budget = raw(measured.budgets.current_budget().uncut_tokens());
    ReplayedConversation {
        most: replay.budgets.add_tolerance(budget),
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
    knowledge: &SessionKnowledge,
) -> u32 {
    if knowledge.refused.was_counted {
        return 0;
    }
    let fresh = units::first_new_message(view.units, knowledge.sent_messages);
    with_injected(sum_tokens(&cuts.messages.tokens[fresh..]), injected.fresh)
}

impl Replay<'_> {
    /// Takes up which units the session remembers as cut. Returns the cuts, if there are any, and the first unit to replay.
    /// Requests whose cuts are remembered are not replayed, unless they were cut for another window. Requests before unit
    /// `begun`, the first one of a course or behind a summary, are not replayed either.
    fn take_up_cuts(&mut self, basis: CutBasis, begun: Option<usize>) -> (Option<CutState>, usize) {
        let (view, knowledge) = (self.view, self.knowledge);
        let units = view.units;
        let memory = knowledge.kept_memory();
        let mark = memory.cut.as_ref().filter(|_| basis == memory.basis);
        let mut state = mark.and_then(|mark| mark.find_cut(view.conversation, units));
        // A provider with other rules of turns may have got the last request. A replay finds cuts for this one.
        state = state.filter(|state| self.turn_rules.accept_cut(state));
        if let Some(begun) = begun {
            let state = state.get_or_insert_with(|| CutState::new(units.len()));
            state.fold_before(begun, view);
        }
        if let Some(state) = &mut state {
            self.keep_short_question(state);
        }
        let is_known = match memory.cut {
            None => basis == memory.basis,
            Some(_) => mark.is_some() && state.is_some(),
        };
        let mut from = begun.unwrap_or(0);
        if is_known {
            self.begin_reasoning(knowledge.history.replayed);
            let known = knowledge.sent_messages.min(memory.planned as usize);
            let fresh = units::first_new_message(units, known);
            let first =
                units::find_unit_of_message(units, fresh).min(units.len().saturating_sub(1));
            from = from.max(first);
        }
        (state, from)
    }

    /// Replays the requests whose cuts are not known.
    fn run(&mut self, basis: CutBasis, begun: Option<usize>) -> CutState {
        self.prepare_clearing();
        let pinned = self.view.count_pinned();
        let units = self.view.units;
        let (state, from) = self.take_up_cuts(basis, begun);
        if state.is_some() {
            self.budgets.end_tolerance();
        }
        let state = state.unwrap_or_else(|| CutState::new(units.len()));
        for unit in (0..units.len()).filter(|&unit| state.folded[unit]) {
            self.weights.drop_injections_before(unit, &state);
        }
        self.note.set_folded(&state.folded);
        if self.texts.is_empty() && !self.may_be_due() {
            return state;
        }
        // If the replay begins within the pinned start, no text was sent before.
        let decided = if from < pinned { 0 } else { from };
        let is_kept = |at: usize| !state.folded[at];
        self.texts.mark_sent_until(decided, is_kept);
        let mut now = Moment {
            live: self.weights.beside,
            state,
            kept: KeptUnits::new(units),
            visible: VisibleWords::default(),
            asked: None,
            ledger_is_due: false,
            stuck: None,
        };
        // Kept up to date unit by unit: a search for each request would walk a long row of what stays again and again.
        let mut newest = RequiredTail::default();
        for (at, unit) in units.iter().enumerate() {
            if at >= pinned {
                newest.add_unit(at, unit);
            }
            self.add_unit(at, at < pinned, &mut now);
            let is_last = at + 1 == units.len();
            // A request ends with any unit except an answer. Late results in a row came with one request. The last request
            // ends with the last unit, whatever that is.
            let is_late = |unit: &Unit| unit.kind == UnitKind::Results;
            let goes_on = is_late(unit) && units.get(at + 1).is_some_and(is_late);
            let asks = unit.kind != UnitKind::Assistant && !goes_on;
            if at < from || !(asks || is_last) {
                continue;
            }
            // The pinned start was sent in one request.
            if at + 1 < pinned && !is_last {
                continue;
            }
            let newest = newest.first().unwrap_or(at).max(pinned.min(at));
            now.kept.open_waiting_before(newest);
            let request = Request {
                at,
                newest,
                is_last,
            };
            for &cut in self.view.policy.rules.order.requests {
                self.try_cut(cut, request, &mut now);
            }
            self.try_last_resorts(request, &mut now);
        }
        self.settle_ledger(&mut now);
        now.state
    }

    /// Makes a cut of a request, if it is due.
    fn try_cut(&mut self, cut: RequestCut, request: Request, now: &mut Moment) {
        let Request { at, newest, .. } = request;
        let excess = self.over(at, now);
        if excess > 0 && request.is_last && self.due.is_none() {
            self.due = Some(Due::OverBudget);
        }
        if cut.changes_newest() && (excess == 0 || self.knowledge.refused.sends_only_required) {
            return;
        }
        match cut {
            RequestCut::ShortenTools => {
                self.shortens_tools |= excess > 0 && now.state.is_before_deep_cuts();
            }
            RequestCut::ClearEarly => {
                let lacks_reason = request.is_last && self.due.is_none();
                if self.clear_early(at, newest, now) && lacks_reason {
                    self.due = Some(Due::EarlyClearing);
                }
            }
            RequestCut::LeaveOutTexts => self.leave_out_texts(at, now),
            RequestCut::CutDeeply => {
                let Some((due, question)) = self.find_due(request, now) else {
                    return;
                };
                if let Some(question) = question {
                    self.return_question(at, question, now);
                }
                // A request that earlier cuts brought within its budget was over it.
                let was_over = self.due == Some(Due::OverBudget) && due != Due::QuestionReturns;
                if self.make_deep_cut(request, now) && request.is_last && !was_over {
                    self.due = Some(due);
                }
            }
            RequestCut::DropLedger => self.drop_ledger(at, now),
            RequestCut::ShortenNewestStep => self.shorten_newest_step(at, newest, now),
            RequestCut::ShortenNewestAttachments => {
                let clears = self.view.policy.settings.clear.enabled;
                if let Some(asked) = now.asked.filter(|_| clears) {
                    self.tighten(asked..=asked, excess, ShortenedMessages::tighten_step, now);
                }
            }
            RequestCut::FoldNewestQuestion => self.fold_newest_question(at, newest, now),
        }
    }

    /// Leaves the ledger out until the next deep cut, if the request is over its budget. There is no ledger without facts.
    fn drop_ledger(&mut self, at: usize, now: &mut Moment) {
        if self.note.has_facts && self.over(at, now) > 0 {
            now.state.lacks_ledger = true;
            self.budgets.end_tolerance();
        }
    }

    /// Chooses the words of the ledger if there was a cut since the last choice. Only the ledger of the last cut is ever
    /// sent, so no words are chosen for the cuts before it.
    fn settle_ledger(&self, now: &mut Moment) {
        if std::mem::take(&mut now.ledger_is_due) {
            now.state.words = self.choose_ledger_words(now);
        }
    }

    /// Adds the next unit to the conversation.
    fn add_unit(&self, at: usize, is_in_start: bool, now: &mut Moment) {
        let (unit, is_kept) = (&self.view.units[at], !now.state.folded[at]);
        // Of the units before a course or a summary, only a question of the user that was kept may still be left out.
        let is_open = at >= self.note.begins || unit.is_user();
        let may_go = is_kept && !is_in_start && !unit.is_pinned && is_open;
        if is_kept && !may_go && is_open && unit.is_user() && self.can_shrink(at, at) {
            now.kept.open_attachments(at);
        }
        let last = unit.bond.map(|bond| bond.last).filter(|&last| last > at);
        let waits_for = last.filter(|_| !self.can_shrink(at, at));
        now.kept
            .add_unit(unit, is_kept, may_go, waits_for, is_in_start);
        if unit.has_results() || unit.is_question() || now.asked.is_none() {
            now.asked = unit.is_user().then_some(at);
        }
        now.live = now.live.saturating_add(self.weights.of_bound(at));
        if is_kept {
            let tokens = self.weights.of_unit(at, &now.state);
            now.live = now.live.saturating_add(tokens);
        }
    }

    /// Leaves annotated texts out while the request at `at` is over its budget.
    fn leave_out_texts(&mut self, at: usize, now: &mut Moment) {
        if self.texts.is_empty() {
            return;
        }
        let mut search = self.texts.begin_search(at + 1);
        loop {
            let over = self.over(at, now);
            let Some(RemovableText {
                text,
                unit,
                is_bound,
                ..
            }) = self.texts.take_next(&mut search, over)
            else {
                break;
            };
            let freed = self.cuts.leave_out_text(text);
            let taken = self.weights.take_text(unit, is_bound, freed);
            now.live = now.live.saturating_sub(taken);
        }
        self.texts.end_search(search);
    }

    /// Raw tokens by which the request that ended at a unit is over its budget.
    fn over(&self, at: usize, now: &Moment) -> u32 {
        let most = self.budgets.budget_with_tolerance(at);
        self.sent_now(now).saturating_sub(most)
    }

    /// Whether the request has no more than so many raw tokens.
    fn meets(&self, tokens: u32, now: &Moment) -> bool {
        self.sent_now(now) <= tokens
    }

    fn sent_now(&self, now: &Moment) -> u32 {
        let ledger = self.note.most_of_ledger(&now.state);
        now.live.saturating_add(self.note.weigh(ledger))
    }

    /// Raw tokens of what no cut can take.
    pub(in crate::guard) fn fixed_tokens(&self) -> u32 {
        self.budgets.fixed_tokens()
    }

    /// Raw tokens of the conversation with these cuts and a ledger of so many.
    pub(in crate::guard) fn sent_tokens(&self, state: &CutState, ledger: u32) -> u32 {
        let sent = self.weights.sum_sent(state);
        sent.saturating_add(self.note.weigh(ledger))
    }
}
