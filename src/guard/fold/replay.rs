//! The replay: decides which units go and which results are cleared.
//!
//! A conversation is replayed unit by unit from its start, as its requests came when it grew. A request that is
//! over its budget is cut once, deeply, so that the provider's cache stays warm until the next cut. The cuts of a request
//! are tried in the order of [`ORDER`].
//!
//! Cuts depend only on earlier messages, so any process with the same counts finds the same ones, without any state; the
//! cut of a request whose cache is cold is the one exception.
//! A stored state spares the replay. It also keeps a cut in place if the counts change.

mod budgets;
mod cut;
mod kept_units;
mod note_weights;
mod reasoning;
mod turn_rules;
mod unit_weights;
mod worth;

pub(in crate::guard) use self::{
    budgets::ReplayBudgets,
    note_weights::{NoteWeights, PREFACE_FRAME},
    reasoning::BoundReasoning,
    turn_rules::TurnRules,
    unit_weights::UnitWeights,
};
use self::{
    kept_units::{KeptCounts, KeptUnits},
    worth::VisibleWords,
};
use crate::{
    conversation::units::{RequiredTail, Unit, UnitKind},
    guard::{
        fold::{cut_state::CutState, memory::Recall, vocabulary::Vocabulary},
        order::{ORDER, RequestCut},
        request::view::RequestView,
        shrink::{
            clear::{Clearing, RecentUnits},
            cuts::MessageCuts,
            priority::removable_texts::{RemovableText, RemovableTexts},
        },
    },
};

/// A conversation on its way through its requests.
pub(in crate::guard) struct Replay<'a> {
    pub(in crate::guard) view: RequestView<'a>,
    pub(in crate::guard) recall: &'a Recall,
    pub(in crate::guard) cuts: MessageCuts<'a>,
    /// What results, media and arguments become if they are cleared.
    pub(in crate::guard) clearing: Clearing,
    pub(in crate::guard) weights: UnitWeights,
    pub(in crate::guard) reasoning: BoundReasoning,
    pub(in crate::guard) budgets: ReplayBudgets,
    pub(in crate::guard) note: NoteWeights,
    pub(in crate::guard) rules: TurnRules,
    /// The annotated texts that may be left out.
    pub(in crate::guard) texts: RemovableTexts,
    pub(in crate::guard) vocabulary: Vocabulary,
}

/// A conversation at one moment of its replay.
struct Moment {
    state: CutState,
    kept: KeptUnits,
    visible: VisibleWords,
    /// Raw tokens of the request, the preface apart.
    live: u32,
    /// Raw tokens of the room beside what is fixed, as the last cut found it.
    room: u32,
    /// The user's newest message, before any step that follows it: nothing of it is old.
    asked: Option<usize>,
    /// The words of the ledger are not chosen yet since the last cut.
    ledger_is_due: bool,
    /// What a cut found of which nothing could go. While that is the same, no other cut looks through it again.
    stuck: Option<KeptCounts>,
}

/// A request of the replay.
#[derive(Clone, Copy)]
struct Request {
    /// The unit that it ended at.
    at: usize,
    /// The first unit that it asks for: these stay.
    newest: usize,
    /// It is the request that is planned.
    is_last: bool,
}

/// Where a replay begins, and with what.
pub(in crate::guard) struct ReplayStart {
    /// The first unit that is looked at.
    pub(in crate::guard) from: usize,
    /// What was done for the request before it.
    pub(in crate::guard) state: Option<CutState>,
}

impl Replay<'_> {
    /// Finds what results and media become if they are cleared, if anything may be.
    pub(in crate::guard) fn prepare_clearing(&mut self, is_cut: bool) {
        let may_clear = is_cut || self.recall.is_cold || self.budgets.early.is_some();
        let may_clear = may_clear || !self.is_below_least_mark();
        if may_clear && self.view.policy.settings.clear.enabled {
            let units = self.view.units;
            self.clearing = Clearing::new(self.view, &self.cuts.settled_tokens);
            let messages = &self.cuts.messages;
            self.weights.weigh_cleared(units, &self.clearing, messages);
            // What is attached to the task may get shorter, so that a cut goes as deep whether it is or not.
            let freed = units.iter().enumerate().map(|(at, unit)| {
                let is_task = unit.is_user() && unit.stays;
                if is_task {
                    self.weights.clearable(at)
                } else {
                    0
                }
            });
            self.budgets.take_off_fixed(freed);
        }
    }

    /// Whether no request of the conversation was ever large enough for a cut.
    fn is_below_least_mark(&self) -> bool {
        self.weights.sum_uncut(&self.note) <= self.find_least_mark()
    }

    /// Replays the requests that ended at unit `start.from` and later.
    pub(in crate::guard) fn run(&mut self, start: ReplayStart) -> CutState {
        let pinned = self.view.count_pinned();
        let units = self.view.units;
        if start.state.is_some() {
            self.budgets.end_tolerance();
        }
        let mut state = start.state.unwrap_or_else(|| CutState::new(units.len()));
        for unit in (0..units.len())
            .filter(|&unit| state.folded[unit])
            .collect::<Vec<_>>()
        {
            self.weights.drop_injections_before(unit, &state);
            self.note.note_dropped(unit, self.view, &mut state);
        }
        let is_quiet =
            self.budgets.early.is_none() && self.texts.is_empty() && !self.recall.is_cold;
        if is_quiet && self.is_below_least_mark() {
            return state;
        }
        // Nothing was decided yet of a conversation whose start is looked at.
        let from = start.from;
        let decided = if from < pinned { 0 } else { from };
        let is_kept = |at: usize| !state.folded[at];
        self.texts.mark_sent_until(decided, is_kept);
        let mut now = Moment {
            live: self.weights.beside(),
            state,
            kept: KeptUnits::new(units),
            visible: VisibleWords::default(),
            room: 0,
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
            // A request ends with anything but an answer; the last one as it is.
            let asks = unit.kind != UnitKind::Assistant;
            if at < from || !(asks || is_last) {
                continue;
            }
            // The pinned start is asked with as a whole.
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
            for &cut in ORDER.requests {
                self.try_cut(cut, request, &mut now);
            }
        }
        self.settle_ledger(&mut now);
        now.state
    }

    /// Makes a cut of a request, if it is due.
    fn try_cut(&mut self, cut: RequestCut, request: Request, now: &mut Moment) {
        let Request { at, newest, .. } = request;
        let excess = self.over(at, now);
        if cut.changes_newest() && (excess == 0 || self.recall.keeps_least) {
            return;
        }
        match cut {
            RequestCut::ClearEarly => self.clear_early(at, newest, now),
            RequestCut::LeaveOutTexts => self.leave_out_texts(at, now),
            RequestCut::CutDeeply => {
                let is_due = excess > 0
                    || self.is_due_where_turn_begins(at, now)
                    || request.is_last && self.is_due_cold(at, now);
                if is_due {
                    self.cut(at, newest, now);
                }
            }
            RequestCut::DropLedger => self.drop_ledger(at, now),
            RequestCut::ShortenNewestStep => {
                if self.view.units[at].has_results() {
                    self.tighten(at, excess, now);
                }
            }
            RequestCut::ShortenNewestAttachments => {
                let clears = self.view.policy.settings.clear.enabled;
                if let Some(asked) = now.asked.filter(|_| clears) {
                    self.tighten(asked, excess, now);
                }
            }
            RequestCut::FoldNewestQuestion => self.fold_newest_question(at, newest, now),
        }
    }

    /// A ledger gives way before the newest step does, until the next cut. One without facts is not there.
    fn drop_ledger(&mut self, at: usize, now: &mut Moment) {
        if now.state.has_facts && self.over(at, now) > 0 {
            now.state.bare = true;
            self.budgets.end_tolerance();
        }
    }

    /// Chooses the words of the ledger after the last cut: those of the cuts before it are never sent.
    fn settle_ledger(&self, now: &mut Moment) {
        if std::mem::take(&mut now.ledger_is_due) {
            now.state.words = self.choose_ledger_words(now);
        }
    }

    /// Adds the next unit to the conversation.
    fn add_unit(&self, at: usize, is_pinned: bool, now: &mut Moment) {
        let (unit, is_kept) = (&self.view.units[at], !now.state.folded[at]);
        // Of what the preface speaks of, only what the user asked last may go, if it stayed.
        let is_open = at >= self.note.begins || unit.is_user();
        let may_go = is_kept && !is_pinned && !unit.stays && is_open;
        if is_kept && !may_go && is_open && unit.is_user() && self.gets_smaller(at, at) {
            now.kept.open_attachments(at);
        }
        let last = unit.bond.map(|bond| bond.last).filter(|&last| last > at);
        let waits_for = last.filter(|_| !self.gets_smaller(at, at));
        now.kept
            .add_unit(unit, is_kept, may_go, waits_for, is_pinned);
        if unit.is_user() || unit.has_results() {
            now.asked = unit.is_user().then_some(at);
        }
        now.live = now.live.saturating_add(self.weights.of_bound(at));
        if is_kept {
            let tokens = self.weights.of_unit(at, &now.state);
            now.live = now.live.saturating_add(tokens);
        }
    }

    /// Whether a request whose cache is gone is cut though it fits.
    fn is_due_cold(&self, at: usize, now: &Moment) -> bool {
        self.recall.is_cold && !self.meets(self.budgets.middle(at), now)
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

    /// Clears old results, but no media, if the settings ask for it before the budget is reached.
    fn clear_early(&mut self, at: usize, newest: usize, now: &mut Moment) {
        let Some(early) = &self.budgets.early else {
            return;
        };
        if self.meets(early.marks[at], now) {
            return;
        }
        let recent = self.clearing.recent_units(at);
        let open = now.kept.list_open(newest).iter().copied();
        let open: Vec<usize> = open
            .filter(|&unit| self.view.units[unit].has_results())
            .filter(|&unit| self.may_clear(unit, newest, recent, &now.state))
            .collect();
        let freed = open.iter().map(|&unit| self.weights.clearable(unit));
        let freed = freed.fold(0, u32::saturating_add);
        if freed >= early.least_freed.max(1) {
            self.drop_reasoning(at + 1, now);
            // The words that the cut before took out of sight are told of it alone.
            self.settle_ledger(now);
            open.into_iter().for_each(|unit| self.clear_unit(unit, now));
        }
    }

    /// Whether a unit before `limit` becomes smaller as it is cleared, and is none of the `recent`.
    fn may_clear(
        &self,
        at: usize,
        limit: usize,
        recent: Option<RecentUnits>,
        state: &CutState,
    ) -> bool {
        let kind = self.view.units[at].kind;
        let is_old = recent.is_none_or(|recent| recent.is_old(at, kind));
        is_old && !state.cleared[at] && self.gets_smaller(at, limit)
    }

    /// Whether clearing makes a unit before `limit` smaller.
    fn gets_smaller(&self, at: usize, limit: usize) -> bool {
        self.weights.clearable(at) > 0 && !self.is_replayed(&self.view.units[at], limit)
    }

    /// Whether a program that is still at work before unit `limit` reads the results of a unit again.
    fn is_replayed(&self, unit: &Unit, limit: usize) -> bool {
        let conversation = self.view.conversation;
        let mut items = conversation.items[unit.messages.clone()].iter();
        conversation.format.rules().replays_programs
            && (unit.is_needed || unit.bond.is_some_and(|bond| bond.last >= limit))
            && items.any(|item| item.read_by_program)
    }

    /// Raw tokens by which the request that ended at a unit is over its budget.
    fn over(&self, at: usize, now: &Moment) -> u32 {
        let most = self.budgets.add_tolerance(self.budgets.most(at));
        self.sent_now(now).saturating_sub(most)
    }

    /// Whether the request has no more than so many raw tokens.
    fn meets(&self, tokens: u32, now: &Moment) -> bool {
        self.sent_now(now) <= tokens
    }

    fn sent_now(&self, now: &Moment) -> u32 {
        let ledger = self.note.of_ledger(&now.state);
        now.live
            .saturating_add(self.note.of_cuts(&now.state, ledger))
    }

    /// Raw tokens of the conversation with these cuts and a ledger of so many.
    pub(in crate::guard) fn sent_tokens(&self, state: &CutState, ledger: u32) -> u32 {
        let sent = self.weights.sum_sent(state);
        sent.saturating_add(self.note.of_cuts(state, ledger))
    }
}
