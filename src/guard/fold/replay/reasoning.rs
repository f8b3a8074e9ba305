//! A cut makes all earlier reasoning stale where a model binds it to what stood before it. So a cut goes deeper there, and
//! comes where a turn begins if it is near.

use super::{Moment, Replay};
use crate::{
    conversation::units::{self, UnitKind},
    guard::{
        fold::{cut_state::CutState, memory::Recall, sent_history::find_next_answer},
        request::epoch::{Epoch, count_places},
    },
};

/// What a cut leaves of the room beside what is fixed where reasoning is bound, as a part of what other cuts leave. Each
/// cut costs all reasoning so far, so that the next one shall be far. Measured with `cargo bench --bench report --
/// thinking`: a fifth keeps more of the ten newest answers' reasoning than larger parts, at less cost.
const BOUND_DEPTH: f64 = 0.2;

impl Replay<'_> {
    /// Leaves out what cuts before this request left out: all reasoning before `place`.
    pub(in crate::guard) fn begin_reasoning(&mut self, place: u32) {
        if self.reasoning.is_empty() {
            return;
        }
        let units = self.view.units;
        let places = count_places(self.view.conversation);
        let stale = |at: &usize| places[units[*at].messages.start] < place;
        self.reasoned = (0..units.len()).take_while(stale).count();
        for at in 0..self.reasoned {
            self.take_reasoning(at);
        }
    }

    fn take_reasoning(&mut self, at: usize) {
        for tokens in [&mut self.tokens[at], &mut self.masked_tokens[at]] {
            *tokens = tokens.saturating_sub(self.reasoning[at]);
        }
    }

    /// Leaves out the reasoning of units before `until`, which stands behind a change.
    pub(super) fn drop_reasoning(&mut self, until: usize, now: &mut Moment) {
        if self.reasoning.is_empty() {
            return;
        }
        for at in self.reasoned..until {
            let before = self.unit_tokens(at, &now.state);
            self.take_reasoning(at);
            if !now.state.folded[at] {
                let freed = before.saturating_sub(self.unit_tokens(at, &now.state));
                now.live = now.live.saturating_sub(freed);
            }
        }
        self.reasoned = self.reasoned.max(until);
        self.leaves_out_reasoning |= until == self.view.units.len();
    }

    /// The first answer whose reasoning is sent, by the cuts of the replay.
    pub(in crate::guard) fn find_epoch(&self, recall: &Recall) -> Epoch {
        if self.leaves_out_reasoning {
            return find_next_answer(self.view.conversation, recall);
        }
        let place = units::count_messages_before(self.view.units, self.reasoned);
        Epoch {
            place: if self.reasoned == 0 { 0 } else { place },
            round: 0,
        }
    }

    /// Raw tokens of the reasoning before `epoch` in units that stay: all, and those that the replay counts among what is
    /// sent.
    pub(in crate::guard) fn stale_tokens(&self, state: &CutState, epoch: Epoch) -> (u32, u32) {
        if self.reasoning.is_empty() {
            return (0, 0);
        }
        let units = self.view.units;
        let places = count_places(self.view.conversation);
        let is_stale = |at: usize| places[units[at].messages.start] < epoch.place;
        let sum_from = |first: usize| {
            let stale = (first..units.len()).filter(|&at| !state.folded[at] && is_stale(at));
            let tokens = stale.map(|at| self.reasoning[at]);
            tokens.fold(0, u32::saturating_add)
        };
        (sum_from(0), sum_from(self.reasoned))
    }

    /// Whether a request that fits is cut because a turn begins with it, which needs little of the reasoning so far: a cut
    /// in the midst of a tool loop would soon cost the model the reasoning of the running round.
    pub(super) fn is_due_where_turn_begins(&self, at: usize, now: &Moment) -> bool {
        let unit = &self.view.units[at];
        let begins_turn = unit.kind == UnitKind::User && !unit.stays;
        begins_turn && self.binds_reasoning(at) && !self.meets(self.find_middle(at), now)
    }

    /// The least raw tokens from which on a request may be cut. `lowest`: the least budget.
    pub(super) fn find_least_mark(&self, lowest: u32) -> u32 {
        match self.reasoning.is_empty() {
            true => lowest,
            false => (f64::from(lowest) * (1.0 + self.low_water) / 2.0) as u32,
        }
    }

    /// How full the cut of a request that ends at unit `at` leaves the room beside what is fixed.
    pub(super) fn find_low_water(&self, at: usize) -> f64 {
        match self.binds_reasoning(at) {
            true => self.low_water * BOUND_DEPTH,
            false => self.low_water,
        }
    }

    /// Whether a request that ends at unit `at` has reasoning that a change would cost. What comes later does not count, so
    /// that its cuts are found again.
    fn binds_reasoning(&self, at: usize) -> bool {
        self.reasons_from <= at
    }
}
