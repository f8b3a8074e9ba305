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
    /// Why a request is cut deeply, if it is, and the question that comes back with the cut.
    pub(super) fn find_due(
        &self,
        request: Request,
        now: &Moment,
    ) -> Option<(Due, Option<ReturningQuestion>)> {
        let Request { at, newest, .. } = request;
        let is_near = || !self.meets(self.budgets.middle(at), now);
        for &reason in self.view.policy.rules.due {
            let is_due = match reason {
                Due::OverBudget => self.over(at, now) > 0,
                Due::TurnBegins => self.begins_bound_turn(at) && is_near(),
                Due::ColdCache => request.is_last && self.knowledge.is_cold && is_near(),
                Due::QuestionReturns => {
                    let question = self.find_returning_question(at, newest, now);
                    if question.is_some() {
                        return Some((reason, question));
                    }
                    false
                }
                // A cut of its own: `clear_early`.
                Due::EarlyClearing => false,
            };
            if is_due {
                return Some((reason, None));
            }
        }
        None
    }

    /// Whether any request of the conversation may be cut: because one is or was large enough, or because a request may be
    /// cut although it fits.
    pub(super) fn may_be_due(&self) -> bool {
        let (uncut, lowest) = (self.weights.sum_uncut(&self.note), self.budgets.lowest());
        let may_come = |reason: &Due| match reason {
            // A question returns only after it was left out of a request that was over its budget.
            Due::OverBudget | Due::QuestionReturns => uncut > lowest,
            Due::TurnBegins => {
                let near = f64::from(lowest) * (1.0 + self.budgets.low_water) / 2.0;
                !self.reasoning.is_empty() && uncut > near as u32
            }
            Due::ColdCache => self.knowledge.is_cold,
            Due::EarlyClearing => false,
        };
        self.budgets.early.is_some() || self.view.policy.rules.due.iter().any(may_come)
    }

    /// Whether a turn begins with the request at unit `at`, and a cut would cost reasoning. A new turn needs little of the
    /// reasoning so far; in the middle of a turn, a cut would cost the model the reasoning of that turn.
    fn begins_bound_turn(&self, at: usize) -> bool {
        let unit = &self.view.units[at];
        unit.is_user() && !unit.is_pinned && self.binds_reasoning(at)
    }
}
