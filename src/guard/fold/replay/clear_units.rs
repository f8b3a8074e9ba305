//! Clearing: results of units become placeholders, and attachments get shorter.

use super::{Moment, Replay};
use crate::{
    conversation::units::Unit,
    guard::{
        fold::cut_state::CutState,
        shrink::clearing::{Clearing, RecentUnits},
    },
};

impl Replay<'_> {
    /// Finds what results and media become if they are cleared. Does nothing if nothing may be cleared.
    pub(super) fn prepare_clearing(&mut self) {
        let may_clear = self.knowledge.kept_memory().cut.is_some() || self.may_be_due();
        if !may_clear || !self.view.policy.settings.clear.enabled {
            return;
        }
        let units = self.view.units;
        self.clearing = Clearing::new(self.view, &self.cuts.settled_tokens);
        self.weights
            .weigh_cleared(units, &self.clearing, &self.cuts.messages);
        // Clearing may shorten the attachments of the task, so what it frees is not fixed: a cut is as deep with short
        // attachments as with whole ones.
        let is_task = |unit: &Unit| unit.is_user() && unit.is_pinned;
        let units = units.iter().enumerate();
        let freed = units.map(|(at, unit)| {
            if is_task(unit) {
                self.weights.clearable(at)
            } else {
                0
            }
        });
        self.budgets.take_off_fixed(freed);
    }

    /// Clears old results, but no media, if the settings ask for it before the budget is reached. Returns whether it did.
    pub(super) fn clear_early(&mut self, at: usize, newest: usize, now: &mut Moment) -> bool {
        let Some(early) = &self.budgets.early else {
            return false;
        };
        if self.meets(early.find_mark(self.budgets.budget_at(at)), now) {
            return false;
        }
        let recent = self.clearing.recent_units(at);
        let open = now.kept.list_open(newest).iter().copied();
        let open: Vec<usize> = open
            .filter(|&unit| self.view.units[unit].has_results())
            .filter(|&unit| self.may_clear(unit, newest, recent, &now.state))
            .collect();
        let freed = open.iter().map(|&unit| self.weights.clearable(unit));
        let freed = freed.fold(0, u32::saturating_add);
        let is_enough = freed >= early.least_freed;
        if is_enough {
            self.drop_reasoning(at + 1, now);
            // The ledger has words of the previous cut only, so they are chosen before clearing removes more.
            self.settle_ledger(now);
            open.into_iter().for_each(|unit| self.clear_unit(unit, now));
        }
        is_enough
    }

    /// Whether clearing makes a unit before `limit` smaller that is not cleared yet and is not among the `recent` ones.
    pub(super) fn may_clear(
        &self,
        at: usize,
        limit: usize,
        recent: Option<RecentUnits>,
        state: &CutState,
    ) -> bool {
        let kind = self.view.units[at].kind;
        let is_old = recent.is_none_or(|recent| recent.is_old(at, kind));
        is_old && !state.cleared[at] && self.can_shrink(at, limit)
    }

    /// Whether clearing makes a unit before `limit` smaller. Results that a program reads again are not cleared while the
    /// program is still at work at `limit`.
    pub(super) fn can_shrink(&self, at: usize, limit: usize) -> bool {
        if self.weights.clearable(at) == 0 {
            return false;
        }
        let (conversation, unit) = (self.view.conversation, &self.view.units[at]);
        let is_at_work = unit.is_needed || unit.bond.is_some_and(|bond| bond.last >= limit);
        let mut items = conversation.items[unit.messages.clone()].iter();
        !(conversation.format.rules().replays_programs
            && is_at_work
            && items.any(|item| item.read_by_program))
    }

    /// Units before `limit` of those that `is_candidate` names, oldest first, that a deep cut of the request that ended at unit
    /// `at` may clear. Nothing of the user's newest message is among them while no step follows it.
    pub(super) fn list_clearable<'k>(
        &self,
        at: usize,
        limit: usize,
        is_candidate: fn(&Unit) -> bool,
        now: &'k Moment,
    ) -> impl Iterator<Item = usize> + use<'_, 'k> {
        let recent = self.clearing.recent_units_of_cuts(at);
        let open = now.kept.list_open(limit).iter().copied();
        open.filter(move |&unit| {
            is_candidate(&self.view.units[unit])
                && now.asked != Some(unit)
                && self.may_clear(unit, limit, recent, &now.state)
        })
    }

    /// Clears such units until the request has no more than `goal` raw tokens.
    pub(super) fn clear_oldest(
        &mut self,
        at: usize,
        limit: usize,
        is_candidate: fn(&Unit) -> bool,
        goal: u32,
        now: &mut Moment,
    ) {
        let units: Vec<usize> = self.list_clearable(at, limit, is_candidate, now).collect();
        for unit in units {
            if self.meets(goal, now) {
                break;
            }
            self.clear_unit(unit, now);
        }
    }

    /// Clears a unit: the words of what is cleared are no longer visible to the model.
    pub(super) fn clear_unit(&mut self, unit: usize, now: &mut Moment) {
        self.budgets.end_tolerance();
        let before = self.weights.of_unit(unit, &now.state);
        self.count_words(unit, false, -1, &mut now.visible);
        now.state.cleared[unit] = true;
        if unit < now.visible.counted {
            self.count_words(unit, true, 1, &mut now.visible);
        }
        let freed = before.saturating_sub(self.weights.of_unit(unit, &now.state));
        now.live = now.live.saturating_sub(freed);
    }
}
