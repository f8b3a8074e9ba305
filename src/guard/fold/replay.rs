//! The replay: decides which units go and which results are masked.
//!
//! A conversation is replayed unit by unit from its start, as its requests came when it grew. A request that is
//! over its budget is cut once, deeply, so that the provider's cache stays warm until the next cut. What a cut
//! takes depends only on what came before it, so the same conversation gets the same cuts in any process with the
//! same counts, with no state at all; state spares the replay, and keeps a cut where counts would move it.

mod cut;
mod kept_units;
mod reasoning;
mod request_tokens;
mod worth;

use self::{
    kept_units::{KeptCounts, KeptUnits},
    worth::VisibleWords,
};
use crate::{
    config::profile::Profile,
    conversation::units::{RequiredTail, Unit, UnitKind},
    guard::{
        fold::{cut_state::CutState, ledger, vocabulary::Vocabulary},
        grammar::role_alternation,
        inject::placed_injections::{InjectedGap, with_injected},
        request::view::RequestView,
        shrink::{
            clear::{self, Clearing, RecentUnits},
            cuts::Cuts,
            priority::removable_texts::{RemovableText, RemovableTexts},
        },
    },
};

/// A conversation on its way through its requests.
pub(in crate::guard) struct Replay<'a> {
    pub(in crate::guard) view: RequestView<'a>,
    pub(in crate::guard) cuts: Cuts<'a>,
    /// What results, media and arguments become where they are masked.
    pub(in crate::guard) masks: Clearing,
    /// Raw tokens of what goes with each unit, as sent, and the same masked; with what is injected beside it.
    pub(in crate::guard) tokens: Vec<u32>,
    pub(in crate::guard) masked_tokens: Vec<u32>,
    /// Raw tokens of what stays where a unit goes.
    pub(in crate::guard) bound_tokens: Vec<u32>,
    pub(in crate::guard) injected: Vec<i64>,
    /// Of each unit, raw tokens of the reasoning that is bound to what stood before it; none where the model reads it
    /// whatever was changed.
    pub(in crate::guard) reasoning: Vec<u32>,
    /// The first unit with any.
    pub(in crate::guard) reasons_from: usize,
    /// Units before this one are sent without it.
    pub(in crate::guard) reasoned: usize,
    /// The newest request leaves all of it out.
    pub(in crate::guard) leaves_out_reasoning: bool,
    /// What stands between two units, and goes with either.
    pub(in crate::guard) gaps: Vec<InjectedGap>,
    /// Raw tokens that stand beside the messages.
    pub(in crate::guard) beside: u32,
    /// Raw tokens that the request may have that ended at each unit.
    pub(in crate::guard) high: Vec<u32>,
    /// Raw tokens past which old results are masked early; `None` where that is not set.
    pub(in crate::guard) early: Option<EarlyMasking>,
    /// For the request that ended at each unit, what the settings keep from masking.
    pub(in crate::guard) recent: Option<Vec<RecentUnits>>,
    /// Raw tokens of what no cut can take, of the request that ended at each unit.
    pub(in crate::guard) fixed: Vec<u32>,
    /// How full a cut leaves the room beside what is fixed.
    pub(in crate::guard) low_water: f64,
    /// Raw tokens of a preface without its ledger.
    pub(in crate::guard) preface: u32,
    /// Raw tokens that a ledger may take: of what the user said, of words, and what frames both.
    pub(in crate::guard) said_room: u32,
    pub(in crate::guard) words_room: u32,
    pub(in crate::guard) ledger_frame: u32,
    /// The unit up to which the preface speaks for itself.
    pub(in crate::guard) based: usize,
    /// The user message before it that stayed, since the rest answers it: the preface does not speak for that.
    pub(in crate::guard) question: Option<usize>,
    /// Whether the preface stands whatever is folded, as that of a course does.
    pub(in crate::guard) prefaced: bool,
    /// Annotated texts that go before anything is folded.
    pub(in crate::guard) spares: RemovableTexts,
    pub(in crate::guard) vocabulary: Vocabulary,
    /// Raw tokens that the last cut could fill beside what is fixed.
    pub(in crate::guard) free_tokens: u32,
    /// With the rule of alternation where the conversation keeps that.
    pub(in crate::guard) profile: Profile,
    /// Whether user and assistant alternate; `None` until the first cut settles it.
    pub(in crate::guard) alternates: Option<bool>,
    /// The provider's cache of this conversation is gone: a cut costs nothing now.
    pub(in crate::guard) is_cold: bool,
    /// See [`Recall::keeps_least`](crate::guard::Recall::keeps_least).
    pub(in crate::guard) keeps_least: bool,
    /// Of each unit, whether it begins with thinking; empty where the running turn need not.
    pub(in crate::guard) thinking: Vec<bool>,
    /// The part of a budget that may be passed before the first cut: 0 but where nothing was counted. After it a
    /// cut was due for certain, and requests that are refused cost more than one that comes early.
    pub(in crate::guard) tolerance: f64,
}

/// Masking of old results before the budget is reached, as the settings ask for it.
pub(in crate::guard) struct EarlyMasking {
    /// Raw tokens of the request that ended at each unit, past which it begins.
    pub(in crate::guard) marks: Vec<u32>,
    /// Raw tokens that it frees at least.
    pub(in crate::guard) least_freed: u32,
}

/// A conversation at one moment of its replay.
struct Moment {
    state: CutState,
    kept: KeptUnits,
    visible: VisibleWords,
    /// Raw tokens of the request, the preface apart.
    live: u32,
    /// The user's newest message, before any step that follows it: nothing of it is old.
    asked: Option<usize>,
    /// The words of the ledger are not chosen yet since the last cut.
    is_cut: bool,
    /// What a cut found of which nothing could go. While that is the same, no other cut looks through it again.
    stuck: Option<KeptCounts>,
}

/// Where a replay begins, and with what.
pub(in crate::guard) struct ReplayStart {
    /// The first unit that is looked at.
    pub(in crate::guard) from: usize,
    /// What was done for the request before it.
    pub(in crate::guard) state: Option<CutState>,
}

impl Replay<'_> {
    /// Finds what results and media become where they are masked, where anything may be.
    pub(in crate::guard) fn prepare_masks(&mut self, is_cut: bool) {
        let lowest = self.high.iter().min().copied().unwrap_or(0);
        let may_mask = is_cut
            || self.is_cold
            || self.early.is_some()
            || self.uncut_tokens() > self.find_least_mark(lowest);
        self.masked_tokens.clone_from(&self.tokens);
        if may_mask && self.view.policy.settings.clear.enabled {
            self.masks = Clearing::new(self.view, &self.cuts.first_line_tokens);
            self.recent = clear::find_recent_units(self.view, &self.cuts.first_line_tokens);
            let units = self.view.units.iter().zip(&self.injected);
            let results = &self.cuts.results;
            self.masked_tokens = units
                .map(|(unit, &more)| with_injected(self.masks.weigh(unit, results), more))
                .collect();
            self.take_off_attachments();
        }
    }

    /// What is attached to the task may get shorter, so that a cut goes as deep whether it is or not.
    fn take_off_attachments(&mut self) {
        let mut freed = 0u32;
        for (at, unit) in self.view.units.iter().enumerate() {
            if unit.is_user() && unit.stays {
                freed =
                    freed.saturating_add(self.tokens[at].saturating_sub(self.masked_tokens[at]));
            }
            self.fixed[at] = self.fixed[at].saturating_sub(freed);
        }
    }

    /// Replays the requests that ended at unit `start.from` and later.
    pub(in crate::guard) fn run(&mut self, start: ReplayStart) -> CutState {
        let pinned = self.view.count_pinned();
        let units = self.view.units;
        if start.state.is_some() {
            self.tolerance = 0.0;
        }
        let mut state = start.state.unwrap_or_else(|| CutState::new(units.len()));
        for unit in (0..units.len())
            .filter(|&unit| state.folded[unit])
            .collect::<Vec<_>>()
        {
            self.drop_injections_before(unit, &state);
            self.note_fold(unit, &mut state);
        }
        let lowest = self.high.iter().min().copied().unwrap_or(0);
        let is_quiet = self.early.is_none() && self.spares.is_empty() && !self.is_cold;
        if is_quiet && self.uncut_tokens() <= self.find_least_mark(lowest) {
            // No request of it was ever too large, so that nothing was due.
            return state;
        }
        // Nothing was decided yet of a conversation whose start is looked at.
        let from = start.from;
        let decided = if from < pinned { 0 } else { from };
        let is_kept = |at: usize| !state.folded[at];
        self.spares.mark_sent_until(decided, is_kept);
        let mut now = Moment {
            live: self.beside,
            state,
            kept: KeptUnits::new(units),
            visible: VisibleWords::default(),
            asked: None,
            is_cut: false,
            stuck: None,
        };
        // Kept up to date unit by unit: a search for each request would walk a long row of what stays again and again.
        let mut newest = RequiredTail::default();
        for (at, unit) in units.iter().enumerate() {
            if at >= pinned {
                newest.add_unit(at, unit);
            }
            self.add_unit(at, at < pinned, &mut now);
            let last = at + 1 == units.len();
            // A request ends with anything but an answer; the last one as it is.
            let asks = unit.kind != UnitKind::Assistant;
            if at < from || !(asks || last) {
                continue;
            }
            // The pinned start is asked with as a whole.
            if at + 1 < pinned && !last {
                continue;
            }
            let newest = newest.first().unwrap_or(at).max(pinned.min(at));
            now.kept.open_waiting_before(newest);
            self.mask_early(at, newest, &mut now);
            self.leave_out_texts(at, &mut now);
            if self.over(at, &now) > 0
                || self.is_due_where_turn_begins(at, &now)
                || last && self.is_due_cold(at, &now)
            {
                self.cut(at, newest, &mut now);
            }
            self.drop_ledger(at, &mut now);
            let excess = self.over(at, &now);
            if self.keeps_least {
                continue;
            }
            if excess > 0 && unit.has_results() {
                self.tighten(at, excess, &mut now);
            }
            let clears = self.view.policy.settings.clear.enabled;
            if let Some(asked) = now.asked.filter(|_| excess > 0 && clears) {
                self.tighten(asked, excess, &mut now);
            }
            if self.over(at, &now) > 0 {
                self.fold_newest_question(at, newest, &mut now);
                self.drop_ledger(at, &mut now);
            }
        }
        self.settle_ledger(&mut now);
        now.state
    }

    /// A ledger gives way before the newest step does, until the next cut. One without facts is not there.
    fn drop_ledger(&mut self, at: usize, now: &mut Moment) {
        if now.state.has_facts && self.over(at, now) > 0 {
            now.state.bare = true;
            self.tolerance = 0.0;
        }
    }

    /// Chooses the words of the ledger after the last cut: those of the cuts before it are never sent.
    fn settle_ledger(&self, now: &mut Moment) {
        if std::mem::take(&mut now.is_cut) {
            now.state.words = self.choose_ledger_words(now);
        }
    }

    /// Adds the next unit to the conversation.
    fn add_unit(&self, at: usize, is_pinned: bool, now: &mut Moment) {
        let (unit, is_kept) = (&self.view.units[at], !now.state.folded[at]);
        // Of what the preface speaks of, only what the user asked last may go, where it stayed.
        let is_open = at >= self.based || unit.is_user();
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
        now.live = now.live.saturating_add(self.bound_tokens[at]);
        if is_kept {
            now.live = now.live.saturating_add(self.unit_tokens(at, &now.state));
        }
    }

    /// Whether the preface speaks for a unit without a ledger.
    pub(in crate::guard) fn is_of_base(&self, unit: usize) -> bool {
        unit < self.based && self.question != Some(unit)
    }

    /// What is left out makes a preface, and its ledger longer.
    fn note_fold(&self, unit: usize, state: &mut CutState) {
        state.has_folds = true;
        if self.is_of_base(unit) {
            return;
        }
        state.has_facts = true;
        if self.view.units[unit].kind == UnitKind::User {
            let message = self.view.units[unit].messages.start;
            let weights = self.view.token_weights();
            let line = ledger::weigh_user_line(self.view.conversation, message, &weights);
            state.said = state.said.saturating_add(line);
        }
    }

    /// Whether a request whose cache is gone is cut though it fits.
    fn is_due_cold(&self, at: usize, now: &Moment) -> bool {
        self.is_cold && !self.meets(self.find_middle(at), now)
    }

    /// Raw tokens midway between the budget and what a cut leaves of it in general.
    fn find_middle(&self, at: usize) -> u32 {
        let high = self.high[at];
        let free = f64::from(high.saturating_sub(self.fixed[at]));
        (f64::from(high) - free * (1.0 - self.low_water) / 2.0) as u32
    }

    /// Leaves annotated texts out where the request at `at` is over its budget.
    fn leave_out_texts(&mut self, at: usize, now: &mut Moment) {
        if self.spares.is_empty() {
            return;
        }
        let mut search = self.spares.begin_search(at + 1);
        loop {
            let over = self.over(at, now);
            let Some(RemovableText {
                text,
                unit,
                is_bound,
                ..
            }) = self.spares.take_next(&mut search, over)
            else {
                break;
            };
            let tokens = match is_bound {
                true => &mut self.bound_tokens[unit],
                false => &mut self.tokens[unit],
            };
            let taken = self.cuts.leave_out_text(text).min(*tokens);
            *tokens -= taken;
            if !is_bound {
                self.masked_tokens[unit] = self.masked_tokens[unit].saturating_sub(taken);
            }
            now.live = now.live.saturating_sub(taken);
        }
        self.spares.end_search(search);
    }

    /// Masks old results, but no media, where the settings ask for it before the budget is reached.
    fn mask_early(&mut self, at: usize, newest: usize, now: &mut Moment) {
        let Some(early) = &self.early else {
            return;
        };
        if self.meets(early.marks[at], now) {
            return;
        }
        let recent = self.recent.as_ref().map(|recent| recent[at]);
        let open = now.kept.list_open(newest).iter().copied();
        let open: Vec<usize> = open
            .filter(|&unit| self.view.units[unit].has_results())
            .filter(|&unit| self.may_mask(unit, newest, recent, &now.state))
            .collect();
        let freed = open
            .iter()
            .map(|&unit| self.tokens[unit] - self.masked_tokens[unit]);
        let freed = freed.fold(0, u32::saturating_add);
        if freed >= early.least_freed.max(1) {
            self.drop_reasoning(at + 1, now);
            // The words that the cut before took out of sight are told of it alone.
            self.settle_ledger(now);
            open.into_iter().for_each(|unit| self.mask_unit(unit, now));
        }
    }

    /// The first cut settles whether the conversation alternates, if nothing has settled it before.
    fn settle_alternation(&mut self, at: usize) {
        if self.alternates.is_none() {
            let end = self.view.units[at].messages_through();
            let conversation = self.view.conversation;
            let known = Some(role_alternation::has_alternating_roles(conversation, end));
            self.alternates = known;
            self.profile =
                role_alternation::resolve_profile(conversation.format, &self.profile, known);
        }
    }

    /// What is injected between a unit and the one before goes with it. Gives the raw tokens that this frees.
    fn drop_injections_before(&mut self, unit: usize, state: &CutState) -> u32 {
        let mut freed = 0u32;
        for gap in self.gaps.iter().filter(|gap| gap.answer == Some(unit)) {
            if let Some(before) = gap.before.filter(|&before| !state.folded[before]) {
                for tokens in [&mut self.tokens[before], &mut self.masked_tokens[before]] {
                    *tokens = with_injected(*tokens, -gap.tokens);
                }
                freed = with_injected(freed, gap.tokens);
            }
        }
        freed
    }

    /// Whether a unit before `limit` becomes smaller as it is masked, and is none of the `recent`.
    fn may_mask(
        &self,
        at: usize,
        limit: usize,
        recent: Option<RecentUnits>,
        state: &CutState,
    ) -> bool {
        let kind = self.view.units[at].kind;
        let is_old = recent.is_none_or(|recent| recent.is_old(at, kind));
        is_old && !state.masked[at] && self.gets_smaller(at, limit)
    }

    /// Whether masking makes a unit before `limit` smaller.
    fn gets_smaller(&self, at: usize, limit: usize) -> bool {
        self.masked_tokens[at] < self.tokens[at] && !self.is_replayed(&self.view.units[at], limit)
    }

    /// Whether a program that is still at work before unit `limit` reads the results of a unit again.
    fn is_replayed(&self, unit: &Unit, limit: usize) -> bool {
        let conversation = self.view.conversation;
        let mut items = conversation.items[unit.messages.clone()].iter();
        conversation.format.rules().replays_programs
            && (unit.is_needed || unit.bond.is_some_and(|bond| bond.last >= limit))
            && items.any(|item| item.read_by_program)
    }
}
