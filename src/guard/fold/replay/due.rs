//! Whether a deep cut of a request is due, and why. A cut that is due is left out if nothing can go (`Replay::make_deep_cut`).
//! Whether old results are cleared early is decided by `Replay::clear_early`.

use super::{Moment, Replay, Request};
use crate::guard::order::Due;

/// The user's newest message that was left out, and the units between which it comes back.
pub(super) struct ReturningQuestion {
    pub(super) unit: usize,
    pub(super) before: Option<usize>,
    pub(super) after: usize,
}

impl Replay<'_> {
    /// Why a request is cut deeply, and the question that comes back with the cut.
    pub(super) fn find_due(
        &self,
        request: Request,
        now: &mut Moment,
    ) -> (Due, Option<ReturningQuestion>) {
        let Request { at, newest, .. } = request;
        if let Some(question) = self.find_returning_question(at, newest, now) {
            return (Due::QuestionReturns, Some(question));
        }
        let is_near = || !self.meets(self.budgets.middle(at), now);
        let due = if self.over(at, now) > 0 {
            Due::OverBudget
        } else if self.begins_bound_turn(at) && is_near() {
            Due::TurnBegins
        } else if request.is_last && self.knowledge.is_cold && is_near() {
            Due::ColdCache
        } else {
            Due::No
        };
        (due, None)
    }

    /// Whether any request of the conversation may be cut: because one is or was large enough, or because a request may be
    /// cut although it fits.
    pub(super) fn may_be_due(&self) -> bool {
        self.knowledge.is_cold
            || self.budgets.early.is_some()
            || self.weights.sum_uncut(&self.note) > self.find_least_mark()
    }

    /// The least raw tokens from which on a request may be cut.
    fn find_least_mark(&self) -> u32 {
        let lowest = self.budgets.lowest();
        if self.reasoning.is_empty() {
            return lowest;
        }
        (f64::from(lowest) * (1.0 + self.budgets.low_water) / 2.0) as u32
    }

    /// Whether a turn begins with the request at unit `at`, and a cut would cost reasoning. A new turn needs little of the
    /// reasoning so far; in the middle of a turn, a cut would cost the model the reasoning of that turn.
    fn begins_bound_turn(&self, at: usize) -> bool {
        let unit = &self.view.units[at];
        unit.is_user() && !unit.stays && self.binds_reasoning(at)
    }
}
