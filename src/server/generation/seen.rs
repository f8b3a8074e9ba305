//! What a state keeps of a generation for who looks at its session; nothing is decided by it.

use super::{super::wish::Wish, Generation};
use crate::session::{history::Marks, state::MadeOf};

impl Generation {
    /// What the request was made of; `None` where the guard did not look at it.
    pub(super) fn made_of(&self) -> Option<MadeOf> {
        let report = &self.plan.report;
        if report.raw_before == 0 {
            return None;
        }
        let slope = self.recall.calibration.slope();
        let tokens = |raw: u32| (f64::from(raw) * slope) as u32;
        let sent = match self.wish {
            Wish::Guard => report.raw_after,
            Wish::DryRun | Wish::Off => report.raw_before,
        };
        let shares = &report.shares;
        Some(MadeOf {
            system: tokens(shares.system),
            tools: tokens(shares.tools),
            history: tokens(shares.history),
            tool_results: tokens(shares.tool_results),
            images: tokens(shares.images),
            reserve: report.budget.reserve,
            sent: tokens(sent),
        })
    }

    /// What is new with this request.
    pub(super) fn marks(&self) -> Marks {
        if self.wish != Wish::Guard {
            return Marks::default();
        }
        let report = &self.plan.report;
        let course = self.recovering.begins_course();
        let cleared = report.cleared.as_ref().is_some_and(|cleared| cleared.new);
        let folded = report.folded.is_some_and(|folded| folded.new) && !course;
        Marks::default()
            .with(Marks::TRUNCATED, report.truncated.iter().any(|cut| cut.new))
            .with(Marks::CLEARED, cleared)
            .with(Marks::FOLDED, folded)
            .with(Marks::INJECTED, self.recovering.injects())
            .with(Marks::COURSE, course)
            .with(Marks::SUMMARY, self.compaction.goes_out_first())
            .with(Marks::REFITTED, self.refitted > 0)
    }
}
