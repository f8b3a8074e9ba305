//! Reasoning that is bound to what stood before it: a cut leaves out all that was made before, and the moments of cuts
//! are chosen so that little is lost.

use super::{Moment, Replay};
use crate::{
    conversation::units::UnitKind,
    guard::{
        cut_state::CutState,
        sent_history::{Epoch, count_places},
    },
};

/// How full a cut in the midst of a tool loop leaves the room beside what is fixed, of what other cuts leave: it costs
/// the running reasoning, so that the next one shall be far.
const IN_LOOP: f64 = 0.8;

impl Replay<'_> {
    /// Leaves out what was stale before this request.
    pub(in crate::guard) fn begin_reasoning(&mut self, epoch: Epoch) {
        if self.reasoning.is_empty() {
            return;
        }
        let units = self.view.units;
        let places = count_places(self.view.conversation);
        let stale = |at: &usize| places[units[*at].messages.start] < epoch.place;
        self.reasoned = (0..units.len()).take_while(stale).count();
        for at in 0..self.reasoned {
            self.tokens[at] = self.tokens[at].saturating_sub(self.reasoning[at]);
        }
    }

    /// Leaves out the reasoning of units before `until`, which stands behind a change.
    pub(super) fn drop_reasoning(&mut self, until: usize, now: &mut Moment) {
        if self.reasoning.is_empty() {
            return;
        }
        for at in self.reasoned..until {
            let before = self.unit_tokens(at, &now.state);
            for tokens in [&mut self.tokens[at], &mut self.masked_tokens[at]] {
                *tokens = tokens.saturating_sub(self.reasoning[at]);
            }
            if !now.state.folded[at] {
                let freed = before.saturating_sub(self.unit_tokens(at, &now.state));
                now.live = now.live.saturating_sub(freed);
            }
        }
        self.reasoned = self.reasoned.max(until);
        self.leaves_out_reasoning |= until == self.view.units.len();
    }

    /// Raw tokens of the reasoning before `epoch` that the replay counts among what is sent.
    pub(in crate::guard) fn stale_tokens(&self, state: &CutState, epoch: Epoch) -> u32 {
        if self.reasoning.is_empty() {
            return 0;
        }
        let units = self.view.units;
        let places = count_places(self.view.conversation);
        let stale = (self.reasoned..units.len())
            .filter(|&at| !state.folded[at] && places[units[at].messages.start] < epoch.place);
        let tokens = stale.map(|at| self.reasoning[at]);
        tokens.fold(0, u32::saturating_add)
    }

    /// Whether a request that fits is cut because a turn begins with it, which needs little of the reasoning so far.
    pub(super) fn is_due_where_turn_begins(&self, at: usize, now: &Moment) -> bool {
        !self.reasoning.is_empty() && self.begins_turn(at) && !self.meets(self.find_middle(at), now)
    }

    fn begins_turn(&self, at: usize) -> bool {
        self.view.units[at].kind == UnitKind::User && !self.view.units[at].stays
    }

    /// How full a cut of the request that ended at a unit leaves the room beside what is fixed.
    pub(super) fn find_low_water(&self, at: usize) -> f64 {
        if self.reasoning.is_empty() {
            return self.low_water;
        }
        match self.begins_turn(at) {
            true => self.low_water * knob("PL_TURN", 1.0),
            false => self.low_water * knob("PL_LOOP", IN_LOOP),
        }
    }

    /// The least raw tokens from which on any request may be cut. `lowest`: the least budget.
    pub(super) fn find_least_mark(&self, lowest: u32) -> u32 {
        match self.reasoning.is_empty() {
            true => lowest,
            false => (f64::from(lowest) * self.low_water / 2.0) as u32,
        }
    }
}

fn knob(name: &str, default: f64) -> f64 {
    std::env::var(name)
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(default)
}
