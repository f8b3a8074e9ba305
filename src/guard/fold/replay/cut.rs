//! One cut: down to the goal by masking results, oldest first, and leaving out units, least worth first.

use super::{Moment, Replay};
use crate::{
    config::CutOrder,
    conversation::units::{Unit, UnitKind},
    guard::{
        grammar::prompt_placement,
        inject::placed_injections::with_injected,
        shrink::{clear::RecentUnits, cuts::Cuts},
    },
    json::{scan::Span, text},
};

/// The part of the room beside what is fixed that the newest units take in any case.
const TAIL_SHARE: u32 = 10;
/// The part of that room up to which the user's newest message stays, whatever else does not fit.
const QUESTION_SHARE: u32 = 4;
/// The part of the window up to which it stays where there is hardly any room.
const LEAST_QUESTION_SHARE: u32 = 32;
/// Longer words are data, such as a hash or a file in base64: a ledger does not repeat them.
const MAX_WORD_BYTES: usize = 100;

impl Replay<'_> {
    /// Makes the request that ended at unit `at` fit, and leaves room for the next ones. Units from `newest` on stay.
    pub(super) fn cut(&mut self, at: usize, newest: usize, now: &mut Moment) {
        let high = self.high[at];
        let fixed = self.fixed[at].min(high);
        self.free_tokens = high - fixed;
        if now.kept.list_unpinned(newest).is_empty() && now.kept.list_open(newest).is_empty() {
            return;
        }
        let low_water = self.find_low_water(at);
        let goal = fixed + (f64::from(self.free_tokens) * low_water) as u32;
        self.settle_alternation(at);
        let counts = now.kept.count_before(newest);
        let is_over = self.over(at, now) > 0;
        if !is_over && !self.can_free(at, newest, goal, now) {
            return;
        }
        self.drop_reasoning(at + 1, now);
        // The words of the cut before stay where this one takes nothing.
        if is_over && (now.stuck == Some(counts) || !self.can_free(at, newest, goal, now)) {
            now.stuck = Some(counts).filter(|_| !self.meets(high, now));
            return;
        }
        self.read_words(at, now);
        now.state.bare = false;
        let tail = self.find_tail(newest, now);
        let slides = self.slides();
        for limit in [tail, newest].into_iter().filter(|_| !slides) {
            self.mask_oldest(at, limit, Unit::has_results, goal, now);
            self.mask_oldest(at, limit, Unit::is_user, goal, now);
            self.fold_by_worth(limit, goal, now);
            self.drop_settled(limit, now);
        }
        self.fold_oldest(newest, high, now);
        self.drop_settled(newest, now);
        now.state.survived = now.state.survived.max(tail);
        if now.state.survived > 0 {
            self.tolerance = 0.0;
        }
        now.is_cut = true;
    }

    /// Whether the oldest goes, whatever it is worth.
    fn slides(&self) -> bool {
        self.view.policy.settings.order == CutOrder::Oldest
    }

    /// Whether a cut that ends with no more than `goal` raw tokens masks anything or leaves it out.
    fn can_free(&self, at: usize, newest: usize, goal: u32, now: &Moment) -> bool {
        let open = || now.kept.list_open(newest).iter().copied();
        let recent = self.list_kept_from_masks(at);
        let mask =
            |unit| now.asked != Some(unit) && self.may_mask(unit, newest, recent, &now.state);
        let by_worth = |unit| self.may_go(&self.list_parts(unit, now), now);
        let by_age = |unit| self.find_foldable_parts(unit, newest, now).is_some();
        !self.slides()
            && !self.meets(goal, now)
            && (open().any(mask) || self.list_candidates(newest, now).any(by_worth))
            || !self.meets(self.high[at], now) && open().any(by_age)
    }

    /// What the settings keep from the masks of a cut.
    fn list_kept_from_masks(&self, at: usize) -> Option<RecentUnits> {
        let settings = &self.view.policy.settings.clear;
        let keeps = settings.keep_rounds.or(settings.keep_steps).is_some();
        let recent = self.recent.as_ref().filter(|_| keeps);
        recent.map(|recent| recent[at])
    }

    /// The first of the newest units that stay as they are while there is anything else.
    fn find_tail(&self, newest: usize, now: &Moment) -> usize {
        let mut room = self.free_tokens / TAIL_SHARE;
        let mut tail = newest;
        for &unit in now.kept.list_unpinned(newest).iter().rev() {
            let tokens = self.unit_tokens(unit, &now.state);
            if tokens > room {
                break;
            }
            room -= tokens;
            tail = unit;
        }
        tail
    }

    fn mask_oldest(
        &mut self,
        at: usize,
        limit: usize,
        is_masked: impl Fn(&Unit) -> bool,
        goal: u32,
        now: &mut Moment,
    ) {
        let recent = self.list_kept_from_masks(at);
        let mut units = now.kept.list_open(limit).to_vec();
        units.retain(|&unit| now.asked != Some(unit));
        for unit in units {
            if self.meets(goal, now) {
                break;
            }
            if is_masked(&self.view.units[unit]) && self.may_mask(unit, limit, recent, &now.state) {
                self.mask_unit(unit, now);
            }
        }
    }

    /// The last resort: all oldest units before `newest`, until the request has no more than `most` raw tokens.
    fn fold_oldest(&mut self, newest: usize, most: u32, now: &mut Moment) {
        let units = now.kept.list_open(newest).to_vec();
        // The first answer of the running turn may go once those behind it have gone.
        for &unit in units.iter().chain(&units) {
            if self.meets(most, now) {
                break;
            }
            let parts = self.find_foldable_parts(unit, newest, now);
            let parts = parts.into_iter().flatten();
            parts.for_each(|at| self.fold_unit(at, now));
        }
    }

    /// A unit with those that cannot stay without it, in order, where all of them may go as the oldest ones.
    fn find_foldable_parts(&self, unit: usize, newest: usize, now: &Moment) -> Option<Vec<usize>> {
        let is_folded = now.state.folded[unit];
        if is_folded || self.asks_for_newest(unit, now) || !self.may_fold(unit, newest, now) {
            return None;
        }
        let mut alone = self.list_dependents(unit, now);
        alone.push(unit);
        alone.sort_unstable();
        let may_go = |parts: &Vec<usize>| self.may_go(parts, now);
        Some(alone).filter(may_go).or_else(|| {
            // Where roles alternate, the last answer of a turn goes with what it answers.
            Some(self.list_parts(unit, now)).filter(may_go)
        })
    }

    /// Makes unit `at` smaller by `excess` raw tokens, with the late results in a row that end there.
    pub(super) fn tighten(&mut self, at: usize, excess: u32, now: &mut Moment) {
        let units = self.view.units;
        let late = units[..=at].iter().rev();
        let late = late.take_while(|unit| unit.kind == UnitKind::Results);
        // Late results in a row came with one request, and share what room there is.
        let row = at + 1 - late.count().max(1)..=at;
        for unit in row.clone() {
            self.count_words(unit, false, -1, &mut now.visible);
        }
        let weigh = |cuts: &Cuts<'_>| {
            row.clone()
                .map(|unit| cuts.weigh_unit(&units[unit]))
                .collect()
        };
        let before: Vec<u32> = weigh(&self.cuts);
        let messages = units[*row.start()].messages.start..units[at].messages.end;
        self.cuts.results.tighten_step(messages, excess);
        let after: Vec<u32> = weigh(&self.cuts);
        for ((unit, before), after) in row.zip(before).zip(after) {
            let taken = before.saturating_sub(after).min(self.tokens[unit]);
            self.tokens[unit] -= taken;
            let masked = self.masks.weigh(&units[unit], &self.cuts.results);
            self.masked_tokens[unit] = with_injected(masked, self.injected[unit]);
            if unit < self.reasoned {
                self.masked_tokens[unit] =
                    self.masked_tokens[unit].saturating_sub(self.reasoning[unit]);
            }
            if unit < now.visible.counted() {
                self.count_words(unit, false, 1, &mut now.visible);
            }
            now.live = now.live.saturating_sub(taken);
        }
    }

    /// What the user said last goes only where it takes much of the room, and the newest step cannot get smaller: that of
    /// the request that ended at `at`. What is gone stays out, so a short message stays, and the request may be over its
    /// budget: then it goes without what the proxy adds.
    pub(super) fn fold_newest_question(&mut self, at: usize, newest: usize, now: &mut Moment) {
        let open = now.kept.list_open(newest).iter().copied();
        let least = self.view.policy.window / LEAST_QUESTION_SHARE;
        let room = (self.free_tokens / QUESTION_SHARE).max(least);
        let asked =
            open.filter(|&unit| self.asks_for_newest(unit, now) && !now.kept.is_lasting(unit));
        let mut asked: Vec<usize> = asked.collect();
        // Of many in a row, the newest stay.
        let mut left = room;
        while let Some(&last) = asked.last() {
            // Not what the proxy adds behind it, which goes before it does.
            let unit = &self.view.units[last];
            let tokens = match now.state.masked[last] {
                true => self.masks.weigh(unit, &self.cuts.results),
                false => self.cuts.weigh_unit(unit),
            };
            if tokens > left {
                break;
            }
            left -= tokens;
            asked.pop();
        }
        if asked.is_empty() {
            return;
        }
        self.read_words(at, now);
        now.is_cut = true;
        asked.into_iter().for_each(|unit| self.fold_unit(unit, now));
        self.drop_settled(newest, now);
    }

    /// Forgets units before `limit` that no further cut can change: those that are gone, and those that stay and get no
    /// smaller.
    fn drop_settled(&self, limit: usize, now: &mut Moment) {
        let (state, kept) = (&now.state, &now.kept);
        let settled = kept.list_open(limit).iter().map(|&unit| {
            let is_done = || state.masked[unit] || !self.gets_smaller(unit, usize::MAX);
            state.folded[unit] || kept.is_lasting(unit) && is_done()
        });
        let settled: Vec<bool> = settled.collect();
        now.kept.drop_settled(&settled, &now.state);
    }

    fn asks_for_newest(&self, unit: usize, now: &Moment) -> bool {
        self.view.units[unit].kind == UnitKind::User && now.kept.is_of_newest_turn(unit)
    }

    /// Whether what stands around units may do so without them.
    fn may_go(&self, units: &[usize], now: &Moment) -> bool {
        self.find_clashing_neighbours(units, now).is_none()
            && self.find_bare_successor(units, now).is_none()
    }

    /// What stands before units and after them, where these may not stand side by side.
    pub(super) fn find_clashing_neighbours(
        &self,
        units: &[usize],
        now: &Moment,
    ) -> Option<(usize, usize)> {
        if !self.view.conversation.format.rules().pairs_roles {
            return None;
        }
        let all = self.view.units;
        let mut neighbours = now.kept.list_neighbours(units).into_iter();
        neighbours.find(|&(before, after)| {
            let last = self.view.item(all[before].unbound_messages().end - 1);
            let next = self.view.item(all[after].messages.start);
            !prompt_placement::can_follow(last.author, next.author, &self.profile)
        })
    }

    /// The answer without thinking that would begin the running turn if these units went, of which one begins it with
    /// thinking.
    pub(super) fn find_bare_successor(&self, units: &[usize], now: &Moment) -> Option<usize> {
        let mut thinking = units
            .iter()
            .filter(|&&unit| self.thinking.get(unit) == Some(&true));
        thinking.find_map(|&unit| {
            let next = now.kept.find_next_of_turn(unit, units, self.view.units)?;
            (!self.thinking[next]).then_some(next)
        })
    }

    /// The words that stand nowhere else any more, most worth first, within their part of the budget.
    pub(super) fn choose_ledger_words(&self, now: &Moment) -> Vec<Span> {
        let mut words: Vec<(u64, u32)> = (0..now.visible.len() as u32)
            .filter(|&word| !now.visible.is_in_sight(word))
            .map(|word| (self.vocabulary.worth(word).to_bits(), word))
            .filter(|&(worth, _)| worth > 0)
            .collect();
        words.sort_unstable_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
        let weights = self.view.token_weights();
        let mut room = f64::from(self.words_room);
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
