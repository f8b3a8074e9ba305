//! One deep cut: the parts of `Order::deep`, down to the goal.

use std::{
    cmp::Reverse,
    ops::{Range, RangeInclusive},
};

use super::{CutLimits, Moment, Replay, Request};
use crate::{
    config::CutOrder,
    conversation::units::{self, Unit, UnitKind},
    guard::{
        fold::vocabulary::WordId, order::DeepCut, shrink::shortened_messages::ShortenedMessages,
    },
    json::{scan::Span, text},
};

/// Longer words are data, such as a hash or a file in base64: a ledger does not repeat them.
const MAX_WORD_BYTES: usize = 100;

impl<'a> Replay<'a> {
    /// Makes a request fit, and leaves room for the next ones. Units from `newest` on stay. Returns whether anything was cut.
    pub(super) fn make_deep_cut(&mut self, request: Request, now: &mut Moment) -> bool {
        let Request { at, newest, .. } = request;
        if now.kept.list_unpinned(newest).is_empty() && now.kept.list_open(newest).is_empty() {
            return false;
        }
        let most = self.budgets.budget_at(at);
        let goal = self.budgets.goal(at, self.find_low_water(at));
        self.turn_rules.settle_alternation(at);
        let limits = CutLimits {
            counts: now.kept.count_before(newest),
            asked: now.asked,
            recent: self.clearing.recent_units_of_cuts(at),
        };
        let must_fit = self.over(at, now) > 0;
        let can_free =
            |this: &Self, now: &Moment| this.can_free((at, newest), this.sent_now(now), goal, now);
        if !must_fit && !can_free(self, now) {
            return false;
        }
        self.drop_reasoning(at + 1, now);
        // If this cut can free nothing, the ledger keeps the words of the cut before.
        if must_fit && (now.stuck == Some(limits) || !can_free(self, now)) {
            now.stuck = Some(limits).filter(|_| !self.meets(most, now));
            return false;
        }
        self.read_words(at, now);
        now.state.lacks_ledger = false;
        let tail = self.find_tail(at, newest, now);
        for &(cut, reach) in self.view.policy.rules.order.deep {
            let limit = reach.find_limit(tail, newest);
            match cut {
                DeepCut::FoldOldest => self.fold_oldest(limit, most, now),
                _ if self.cuts_by_age() => {}
                DeepCut::ClearResults => self.clear_oldest(at, limit, Unit::has_results, goal, now),
                DeepCut::ClearAttachments => self.clear_oldest(at, limit, Unit::is_user, goal, now),
                DeepCut::FoldLeastWorth => self.fold_least_worth(limit, goal, now),
            }
        }
        now.state.cut_until = now.state.cut_until.max(tail);
        if !now.state.is_before_deep_cuts() {
            self.budgets.end_tolerance();
        }
        now.ledger_is_due = true;
        true
    }

    /// Whether the oldest units are left out first, whatever they are worth.
    fn cuts_by_age(&self) -> bool {
        self.view.policy.settings.order == CutOrder::Oldest
    }

    /// Whether a cut from `sent` raw tokens down to `goal` can clear anything or leave anything out of the units before
    /// `newest`.
    pub(super) fn can_free(
        &self,
        (at, newest): (usize, usize),
        sent: u32,
        goal: u32,
        now: &Moment,
    ) -> bool {
        let tail = self.find_tail(at, newest, now);
        let can_clear = |limit: usize, is_candidate| {
            let mut clearable = self.list_clearable(at, limit, is_candidate, now);
            clearable.next().is_some()
        };
        let mut parts = self.view.policy.rules.order.deep.iter();
        parts.any(|&(cut, reach)| {
            let limit = reach.find_limit(tail, newest);
            match cut {
                DeepCut::FoldOldest => {
                    let by_age = |&unit| self.find_foldable_parts(unit, limit, now).is_some();
                    sent > self.budgets.budget_at(at)
                        && now.kept.list_open(limit).iter().any(by_age)
                }
                _ if self.cuts_by_age() || sent <= goal => false,
                DeepCut::ClearResults => can_clear(limit, Unit::has_results),
                DeepCut::ClearAttachments => can_clear(limit, Unit::is_user),
                DeepCut::FoldLeastWorth => {
                    let mut candidates = self.list_candidates(limit, now);
                    candidates.any(|unit| self.turn_rules.may_go(&self.list_parts(unit, now), now))
                }
            }
        })
    }

    /// The first of the newest units that stay as they are while there is anything else.
    fn find_tail(&self, at: usize, newest: usize, now: &Moment) -> usize {
        let mut room = self.budgets.room(at) / self.view.policy.rules.tail_part;
        let mut tail = newest;
        for &unit in now.kept.list_unpinned(newest).iter().rev() {
            let tokens = self.weights.of_unit(unit, &now.state);
            if tokens > room {
                break;
            }
            room -= tokens;
            tail = unit;
        }
        tail
    }

    /// The last part of a deep cut: leaves out units before `newest`, oldest first, until the request has at most `most` raw
    /// tokens.
    fn fold_oldest(&mut self, newest: usize, most: u32, now: &mut Moment) {
        let units = now.kept.list_open(newest).to_vec();
        // Each unit is tried twice: the first answer of the running turn may be left out once the answers behind it are.
        for &unit in units.iter().chain(&units) {
            if self.meets(most, now) {
                break;
            }
            let parts = self.find_foldable_parts(unit, newest, now);
            let parts = parts.into_iter().flatten();
            parts.for_each(|at| self.fold_unit(at, now));
        }
        self.drop_settled(newest, now);
    }

    /// A unit and those that cannot stay without it, in order; `None` if they may not be left out by their age.
    fn find_foldable_parts(&self, unit: usize, newest: usize, now: &Moment) -> Option<Vec<usize>> {
        let is_folded = now.state.folded[unit];
        if is_folded || self.is_newest_question(unit, now) || !self.may_fold(unit, newest, now) {
            return None;
        }
        let mut alone = self.list_dependents(unit, now);
        alone.push(unit);
        alone.sort_unstable();
        let may_go = |parts: &Vec<usize>| self.turn_rules.may_go(parts, now);
        Some(alone).filter(may_go).or_else(|| {
            // If roles alternate, then the last answer of a turn is left out with the user messages that it answers.
            Some(self.list_parts(unit, now)).filter(may_go)
        })
    }

    /// Shortens the step at `at` as far as the request needs it. The steps whose reasoning led to this step cannot be left
    /// out without it, so results of those before `newest` are shortened first: oldest first, and down to the goal of a deep
    /// cut, so that what was sent before changes seldom.
    pub(super) fn shorten_newest_step(&mut self, at: usize, newest: usize, now: &mut Moment) {
        let units = self.view.units;
        let goal = if self.cuts_by_age() {
            self.budgets.budget_at(at)
        } else {
            self.budgets.goal(at, self.find_low_water(at))
        };
        let row = self.find_row(at);
        let has_results = |unit: usize| units[unit].has_results();
        for unit in units::find_first_leader(units, at)..newest.min(*row.start()) {
            let excess = self.sent_now(now).saturating_sub(goal);
            if excess > 0 && has_results(unit) {
                self.tighten(unit..=unit, excess, ShortenedMessages::tighten_results, now);
            }
        }
        let excess = self.over(at, now);
        if excess > 0 && has_results(at) {
            self.tighten(row, excess, ShortenedMessages::tighten_step, now);
        }
    }

    /// Raw tokens that shortening can free in the newest step and in the results that led to it, each of them shortened by
    /// up to `excess`.
    pub(super) fn measure_step(&self, at: usize, newest: usize, excess: u32, now: &Moment) -> u32 {
        let row = self.find_row(at);
        let before = units::find_first_leader(self.view.units, at)..newest.min(*row.start());
        let before = before.map(|unit| self.measure_tightening(unit..=unit, excess, now));
        before.fold(
            self.measure_tightening(row, excess, now),
            u32::saturating_add,
        )
    }

    /// Raw tokens, up to `excess`, that [`Self::tighten`] would take off these units.
    pub(super) fn measure_tightening(
        &self,
        row: RangeInclusive<usize>,
        excess: u32,
        now: &Moment,
    ) -> u32 {
        let Some(row) = find_whole_end(row, now) else {
            return 0;
        };
        let units = &self.view.units[row];
        let messages = units[0].messages.start..units[units.len() - 1].messages.end;
        self.cuts.messages.measure_tightening(messages, excess)
    }

    /// Unit `at` with the late results in a row that end there: they came with one request, and share what room there is.
    fn find_row(&self, at: usize) -> RangeInclusive<usize> {
        let late = self.view.units[..=at].iter().rev();
        let late = late.take_while(|unit| unit.kind == UnitKind::Results);
        at + 1 - late.count().max(1)..=at
    }

    /// Makes the last of these units, those of which nothing is cleared, smaller by `excess` raw tokens together. `shorten`
    /// takes messages and the excess.
    pub(super) fn tighten(
        &mut self,
        row: RangeInclusive<usize>,
        excess: u32,
        shorten: impl FnOnce(&mut ShortenedMessages<'a>, Range<usize>, u32) -> u32,
        now: &mut Moment,
    ) {
        let Some(row) = find_whole_end(row, now) else {
            return;
        };
        let units = &self.view.units[row.clone()];
        for unit in row.clone() {
            self.count_words(unit, false, -1, &mut now.visible);
        }
        let before = units.iter().map(|unit| self.cuts.weigh_unit(unit));
        let before: Vec<u32> = before.collect();
        let messages = units[0].messages.start..units[units.len() - 1].messages.end;
        shorten(&mut self.cuts.messages, messages, excess);
        for (at, before) in row.zip(before) {
            let unit = &self.view.units[at];
            let freed = before.saturating_sub(self.cuts.weigh_unit(unit));
            let cleared = self.clearing.weigh(unit, &self.cuts.messages);
            let stale = self.reasoning.left_out_of(at);
            let taken = self.weights.take_shortened(at, freed, cleared, stale);
            if at < now.visible.counted {
                self.count_words(at, false, 1, &mut now.visible);
            }
            now.live = now.live.saturating_sub(taken);
        }
    }

    /// Forgets units before `limit` that no further cut can change: those that are gone, and those that stay and get no
    /// smaller.
    pub(super) fn drop_settled(&self, limit: usize, now: &mut Moment) {
        let (state, kept) = (&now.state, &now.kept);
        let settled = kept.list_open(limit).iter().map(|&unit| {
            let is_done = || state.cleared[unit] || !self.can_shrink(unit, usize::MAX);
            state.folded[unit] || kept.is_lasting(unit) && is_done()
        });
        let settled: Vec<bool> = settled.collect();
        now.kept.drop_settled(&settled, &now.state);
    }

    /// Chooses the words that no sent message contains any more, most worth first, within their part of the budget.
    pub(super) fn choose_ledger_words(&self, now: &Moment) -> Vec<Span> {
        debug_assert!(
            self.counts_are_right(now),
            "a word is counted twice, or not at all"
        );
        let words = now.visible.counts.iter().zip(0..);
        let gone = words.filter(|(count, _)| **count == 0);
        let worths = gone.map(|(_, word)| (self.vocabulary.worth(word).to_bits(), word));
        let mut words: Vec<(u64, WordId)> = worths.filter(|&(worth, _)| worth > 0).collect();
        words.sort_unstable_by_key(|&(worth, word)| (Reverse(worth), word));
        let weights = self.view.token_weights();
        let mut room = f64::from(self.note.words_room);
        let mut chosen = Vec::new();
        for (_, word) in words {
            let Some(span) = self.vocabulary.span_of(word) else {
                continue;
            };
            let raw = self.view.conversation.span_bytes(span);
            if raw.len() > MAX_WORD_BYTES {
                continue;
            }
            // A blank before a word is part of its first token.
            let tokens = weights.text_weight(&text::measure_text(raw));
            if tokens > room {
                break;
            }
            room -= tokens;
            chosen.push(span);
        }
        chosen
    }
}

/// The last of these units, as far as none is left out or cleared; `None` if the very last one is. A request of the replay
/// may end at such a unit: if the session remembers a cut that was made for a later request, such as the one that is planned
/// again after a refusal.
fn find_whole_end(row: RangeInclusive<usize>, now: &Moment) -> Option<RangeInclusive<usize>> {
    let is_whole = |unit: &usize| !now.state.folded[*unit] && !now.state.cleared[*unit];
    let first = row.clone().rev().take_while(is_whole).last()?;
    Some(first..=*row.end())
}
