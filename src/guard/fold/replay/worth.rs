//! Leaves out the units of least worth first. The worth of a unit is that of the words that no other sent message contains,
//! per token.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use super::{Moment, Replay};
use crate::{
    conversation::units::{self, UnitKind},
    guard::fold::{cut_state::CutState, vocabulary::WordId},
};

/// For each word, the number of sent messages that contain it.
#[derive(Default)]
pub(super) struct VisibleWords {
    pub(super) counts: Vec<u32>,
    /// Units before this one are counted.
    pub(super) counted: usize,
}

impl Replay<'_> {
    /// Reads the words of all messages up to unit `end`, and counts those of the units that are sent.
    pub(super) fn read_words(&mut self, end: usize, now: &mut Moment) {
        let messages = self.view.units[end].messages.end;
        self.vocabulary
            .read_messages(self.view.conversation, messages);
        now.visible.counts.resize(self.vocabulary.len(), 0);
        for unit in now.visible.counted..=end {
            if !now.state.folded[unit] {
                self.count_words(unit, now.state.cleared[unit], 1, &mut now.visible);
            }
        }
        now.visible.counted = end + 1;
    }

    /// The words of each message of a unit, as it is sent. A word is listed once for each message that contains it.
    fn list_words(&self, unit: usize, is_cleared: bool) -> Vec<WordId> {
        let messages = &self.cuts.messages;
        let mut words = Vec::new();
        for message in self.view.units[unit].messages.clone() {
            if is_cleared && self.clearing.is_cleared_result(message, messages) {
                continue;
            }
            let clearing = self.clearing.text_edits(message).filter(|_| is_cleared);
            match clearing.or_else(|| messages.edits_of(message)) {
                Some(edits) => {
                    let conversation = self.view.conversation;
                    words.extend(self.vocabulary.words_left(conversation, message, edits));
                }
                None => words.extend(self.vocabulary.words_of(message)),
            }
        }
        words
    }

    /// Adds `by` to the counts of the words of a unit. Counts of a unit that is not counted yet are never lowered.
    pub(super) fn count_words(
        &self,
        unit: usize,
        is_cleared: bool,
        by: i32,
        visible: &mut VisibleWords,
    ) {
        if by > 0 || unit < visible.counted {
            for word in self.list_words(unit, is_cleared) {
                let count = &mut visible.counts[word as usize];
                *count = count.saturating_add_signed(by);
            }
        }
    }

    /// Whether the counts of words are those of the units that are sent.
    pub(super) fn counts_are_right(&self, now: &Moment) -> bool {
        let mut anew = VisibleWords {
            counts: vec![0; now.visible.counts.len()],
            counted: now.visible.counted,
        };
        for unit in (0..anew.counted).filter(|&unit| !now.state.folded[unit]) {
            self.count_words(unit, now.state.cleared[unit], 1, &mut anew);
        }
        anew.counts == now.visible.counts
    }

    /// Leaves a unit out: its words are no longer visible to the model, and its tokens are freed.
    pub(super) fn fold_unit(&mut self, unit: usize, now: &mut Moment) {
        self.budgets.end_tolerance();
        let cleared = now.state.cleared[unit];
        self.count_words(unit, cleared, -1, &mut now.visible);
        let freed = self.weights.of_unit(unit, &now.state);
        now.state.folded[unit] = true;
        self.texts.forget_unit(unit);
        now.kept.remove_unit(unit, self.view.units[unit].kind);
        self.note.add_folded(unit);
        let freed = freed.saturating_add(self.weights.drop_injections_before(unit, &now.state));
        now.live = now.live.saturating_sub(freed);
    }

    /// The worth of the words that only these units contain, divided by the tokens of the units. Returns the bits of this
    /// number: since it is not negative, its bits have the same order.
    fn worth_per_token(&self, units: &[usize], state: &CutState, visible: &VisibleWords) -> u64 {
        let mut words = Vec::new();
        let mut tokens = 0u32;
        for &unit in units {
            tokens = tokens.saturating_add(self.weights.of_unit(unit, state));
            words.extend(self.list_words(unit, state.cleared[unit]));
        }
        words.sort_unstable();
        let alone = words.chunk_by(|one, next| one == next);
        let alone = alone.filter(|run| visible.counts[run[0] as usize] as usize == run.len());
        let worth: f64 = alone.map(|run| self.vocabulary.worth(run[0])).sum();
        (worth / f64::from(tokens.max(1))).to_bits()
    }

    /// Leaves units before `limit` out, least worth first, until the goal is met.
    pub(super) fn fold_least_worth(&mut self, limit: usize, goal: u32, now: &mut Moment) {
        if self.meets(goal, now) {
            self.drop_settled(limit, now);
            return;
        }
        let weigh = |this: &Self, unit: usize, now: &Moment| {
            let parts = this.list_parts(unit, now);
            let worth = this.worth_per_token(&parts, &now.state, &now.visible);
            (Reverse((worth, unit)), parts)
        };
        let candidates = self.list_candidates(limit, now);
        let mut heap: BinaryHeap<_> = candidates.map(|unit| weigh(self, unit, now).0).collect();
        // Candidates that cannot be left out yet, by the units that block them.
        let mut waiting: HashMap<usize, Vec<usize>> = HashMap::new();
        while !self.meets(goal, now) {
            let Some(Reverse((_, unit))) = heap.pop() else {
                break;
            };
            if now.state.folded[unit] {
                continue;
            }
            let (candidate, parts) = weigh(self, unit, now);
            if heap.peek().is_some_and(|next| next > &candidate) {
                heap.push(candidate);
                continue;
            }
            let blockers = self.turn_rules.find_blockers(&parts, now);
            if !blockers.is_empty() {
                for blocker in blockers {
                    waiting.entry(blocker).or_default().push(unit);
                }
                continue;
            }
            for part in parts {
                self.fold_unit(part, now);
                let freed = waiting.remove(&part).unwrap_or_default();
                heap.extend(freed.into_iter().map(|unit| weigh(self, unit, now).0));
            }
        }
        self.drop_settled(limit, now);
    }

    /// The units that are left out if `unit` is left out by its worth, in order.
    pub(super) fn list_parts(&self, unit: usize, now: &Moment) -> Vec<usize> {
        let mut parts = now.kept.list_parts(unit, self.view.units[unit].kind);
        parts.extend(self.list_dependents(unit, now));
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    /// The units that cannot stay without `unit` and are not left out yet.
    pub(super) fn list_dependents(&self, unit: usize, now: &Moment) -> Vec<usize> {
        let dependents = units::list_dependents(self.view.units, unit).into_iter();
        dependents.filter(|&at| !now.state.folded[at]).collect()
    }

    /// Whether a unit may be left out with its dependents, which must all be before `limit`. Of bonded units, only the last
    /// one is tried: the others are its dependents. A unit whose reasoning led to bonded units is left out after them, and a
    /// unit that loads tools only when its tools are no longer needed.
    pub(super) fn may_fold(&self, unit: usize, limit: usize, now: &Moment) -> bool {
        let all = self.view.units;
        let is_bonded = |at: usize| all[at].bond.is_some() && !now.state.folded[at];
        let comes_first = match all[unit].bond {
            Some(bond) => bond.last == unit,
            None => !units::list_followers(all, unit).any(is_bonded),
        };
        let folded = &now.state.folded;
        let may_go = |at: usize| at < limit && !units::is_loading(&all[at], limit, folded);
        if !comes_first || !may_go(unit) || now.kept.is_lasting(unit) {
            return false;
        }
        let dependents = self.list_dependents(unit, now);
        dependents.len() <= units::MAX_DEPENDENTS && dependents.into_iter().all(may_go)
    }

    /// Units before `limit` that may be left out one by one, oldest first. A user message is a candidate only if no answer
    /// to it is left; otherwise it is left out with the last answer.
    pub(super) fn list_candidates<'k>(
        &self,
        limit: usize,
        now: &'k Moment,
    ) -> impl Iterator<Item = usize> + use<'_, 'k> {
        let units = self.view.units;
        let is_user = move |unit: usize| units[unit].kind == UnitKind::User;
        let open = now.kept.list_open(limit).iter().copied();
        open.filter(move |&unit| {
            if is_user(unit) {
                !now.kept.is_lasting(unit) && now.kept.is_unanswered(unit)
            } else {
                self.may_fold(unit, limit, now)
            }
        })
    }
}
