//! Which of the last resorts is made first: one that is enough alone.

use super::{Moment, Replay, Request};
use crate::guard::order::RequestCut;

impl Replay<'_> {
    /// Makes the last resorts while the request is over its budget.
    pub(super) fn try_last_resorts(&mut self, request: Request, now: &mut Moment) {
        if self.over(request.at, now) == 0 {
            return;
        }
        let all = self.view.policy.rules.order.last;
        let alone = all
            .iter()
            .find(|cut| self.is_enough_alone(**cut, request, now));
        for &cut in alone.into_iter().chain(all) {
            self.try_cut(cut, request, now);
        }
    }

    /// Whether one last resort alone makes a request fit that is over its budget. The newest question is left out first only
    /// if all other last resorts together are not enough.
    fn is_enough_alone(&self, cut: RequestCut, request: Request, now: &Moment) -> bool {
        if cut.changes_newest() && self.knowledge.refused.sends_only_required {
            return false;
        }
        let frees = |cut| self.measure_last_resort(cut, request, now);
        // What is left out ends the tolerance.
        let beyond = self
            .sent_now(now)
            .saturating_sub(self.budgets.budget_at(request.at));
        match cut {
            RequestCut::DropLedger => frees(cut) >= beyond,
            RequestCut::FoldNewestQuestion => {
                let ledger = self.note.weigh(self.note.most_of_ledger(&now.state));
                // If the question is left out, the request has a preface with a ledger, which takes room.
                let more = self.note.longest().saturating_sub(ledger);
                let others = self
                    .view
                    .policy
                    .rules
                    .order
                    .last
                    .iter()
                    .take_while(|it| **it != cut);
                frees(cut) >= beyond.saturating_add(more)
                    && others.fold(0, |sum: u32, it| sum.saturating_add(frees(*it))) < beyond
            }
            RequestCut::ShortenNewestStep | RequestCut::ShortenNewestAttachments => {
                frees(cut) >= self.over(request.at, now)
            }
            RequestCut::ShortenTools
            | RequestCut::ClearEarly
            | RequestCut::LeaveOutTexts
            | RequestCut::CutDeeply => false,
        }
    }

    /// Raw tokens that a last resort would take off a request, of those that it is over its budget.
    fn measure_last_resort(&self, cut: RequestCut, request: Request, now: &Moment) -> u32 {
        let Request { at, newest, .. } = request;
        let excess = self.over(at, now);
        match cut {
            RequestCut::DropLedger => self.note.most_of_ledger(&now.state),
            RequestCut::ShortenNewestStep => {
                if self.view.units[at].has_results() {
                    self.measure_step(at, newest, excess, now)
                } else {
                    0
                }
            }
            RequestCut::ShortenNewestAttachments => {
                let clears = self.view.policy.settings.clear.enabled;
                let measure = |asked| self.measure_tightening(asked..=asked, excess, now);
                now.asked.filter(|_| clears).map_or(0, measure)
            }
            RequestCut::FoldNewestQuestion => {
                let asked = self.list_long_questions(at, newest, now).into_iter();
                let freed = asked.map(|unit| self.weights.of_unit(unit, &now.state));
                freed.fold(0, u32::saturating_add)
            }
            RequestCut::ShortenTools
            | RequestCut::ClearEarly
            | RequestCut::LeaveOutTexts
            | RequestCut::CutDeeply => 0,
        }
    }
}
