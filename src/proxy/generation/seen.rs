//! What is kept of a generation for who looks on: in its session's state, in the metrics, in the log.
//! Nothing is decided by it.

use super::{Generation, reported};
use crate::{
    guard::estimate::Calibration,
    health::Health,
    proxy::request_options::Wish,
    relay::Heard,
    session::{history::Marks, state::MadeOf},
    telemetry::{metrics::Done, record::Answered},
};

impl Generation {
    /// What the request was made of; `None` where the guard did not look at it.
    pub(super) fn made_of(&self, calibration: &Calibration) -> Option<MadeOf> {
        let report = &self.plan.report;
        if report.raw_before == 0 {
            return None;
        }
        let slope = calibration.slope();
        let tokens = |raw: u32| (f64::from(raw) * slope) as u32;
        let came = &report.shares;
        let (sent, raw) = match self.wish {
            Wish::Guard if report.stood_back.is_none() => (&report.sent, report.raw_after),
            _ => (came, came.total()),
        };
        Some(MadeOf {
            system: tokens(sent.system),
            tools: tokens(sent.tools),
            history: tokens(sent.history),
            tool_results: tokens(sent.tool_results),
            images: tokens(sent.images),
            ours: tokens(raw.saturating_sub(sent.total())),
            reserve: report.budget.reserve,
            left_out: tokens(came.total().saturating_sub(sent.total())),
        })
    }

    /// What is new with this request.
    pub(super) fn marks(&self) -> Marks {
        if self.wish != Wish::Guard {
            return Marks::default();
        }
        let report = &self.plan.report;
        let course = self.recovering.begins_course();
        let cleared =
            report.cleared.as_ref().is_some_and(|cleared| cleared.new) || report.texts.cut;
        let folded = report.folded.is_some_and(|folded| folded.new) && !course;
        Marks::default()
            .with(Marks::TRUNCATED, report.truncated.iter().any(|cut| cut.new))
            .with(Marks::CLEARED, cleared)
            .with(Marks::FOLDED, folded)
            .with(Marks::INJECTED, self.recovering.injected_prompt().is_some())
            .with(Marks::COURSE, course)
            .with(Marks::SUMMARY, self.compaction.goes_out_first())
            .with(Marks::REFITTED, self.refitted > 0)
    }

    /// Tells the log, the metrics and the trace what came of the generation.
    pub(super) fn note_answer(&self, heard: &Heard, health: &Health) {
        let usage = heard.usage;
        let billed = self.recovering.billed_tokens();
        self.noted.guard(self.guard_took);
        self.noted.answered(Answered {
            level: health.level,
            hard_util: health.hard_util,
            prompt_tokens: reported(heard),
            completion_tokens: usage.and_then(|usage| usage.completion_tokens),
            cached_tokens: usage.and_then(|usage| usage.cached_tokens),
            billed: billed.map(|billed| (billed.prompt_tokens, billed.completion_tokens)),
            finish_reason: heard.finish_reason,
        });
        self.app.metrics.done(&self.done());
    }

    /// What was done to this request, and to none before it.
    fn done(&self) -> Done {
        let mut done = Done {
            session: self.inherited.state.is_none() && !self.inherited.lost,
            ..Done::default()
        };
        if self.wish != Wish::Guard {
            return done;
        }
        let report = &self.plan.report;
        let truncated = || report.truncated.iter().filter(|cut| cut.new);
        done.truncations = truncated().count();
        done.cut_chars = truncated()
            .map(|cut| cut.before.saturating_sub(cut.after))
            .sum();
        done.cleared_messages = report.cleared.as_ref().map_or(0, |cleared| cleared.fresh);
        done.lowered_cap = self.lowers_cap();
        done.course = self.recovering.begins_course();
        done.injected = self.recovering.injected_prompt();
        if let Some(folded) = report.folded.filter(|folded| folded.new) {
            done.folded = !done.course;
            let before = self.recall.memory.boundary();
            let now = self.plan.memory.boundary();
            done.dropped_messages = match (before, now) {
                (Some(before), Some(now)) => {
                    folded.messages.min(now.saturating_sub(before) as usize)
                }
                _ => folded.messages,
            };
        }
        done
    }
}
