//! The plan with all that is ours, and what is left of it where it cannot be carried out.

use super::{Generation, policy};
use crate::{
    guard::{self, Plan, Recall, StoodBack, record::Ours},
    proxy::request_options::GuardMode,
    wire::chat::Conversation,
};

impl Generation {
    /// Plans with what recovery has decided by now and the summary in use; without the one, or the
    /// other, or both, where that cannot be carried out or does not fit.
    pub(in crate::proxy) fn replan(&mut self, conversation: &Conversation) {
        let mut policy = policy(&self.app, &self.target);
        policy.profile = self.recovering.profile(policy.profile);
        let summary = self.compaction_after().summary;
        let plan = |ours: &Ours, summary| {
            let recall = Recall {
                ours: Ours {
                    summary,
                    ..ours.clone()
                },
                ..self.recall.clone()
            };
            guard::plan(conversation, &policy, &recall)
        };
        // With the summary, unless that is what is wrong; then whether it was left out.
        let best = |ours: Ours| {
            let with = plan(&ours, summary.clone());
            if summary.is_none() || usable(&with) {
                return (with, false);
            }
            let without = plan(&ours, None);
            match usable(&without) {
                true => (without, true),
                false => (with, false),
            }
        };
        let (mut found, mut aside) = best(self.recovering.additions());
        let carries = self.recovering.adds_anything();
        let session = self.inherited.session;
        if let Some(reason) = found.report.stood_back {
            self.recovering.withdraw();
            if carries && let StoodBack::Unsound(broken) = reason {
                tracing::error!(%session, ?broken, "a plan with what recovery adds was unsound; the request goes on without");
                (found, aside) = best(Ours::default());
            }
        } else if found.report.over_budget && carries {
            let (without, without_aside) = best(Ours::default());
            // What is ours must not be what makes a request too large.
            if !without.report.over_budget {
                self.recovering.withdraw();
                (found, aside) = (without, without_aside);
            }
        }
        if aside {
            tracing::warn!(%session, "a summary could not stand in a request, which goes on without it");
        }
        self.compaction.left_out = aside;
        self.plan = found;
        self.raw_sent = match self.mode {
            GuardMode::Guard => self.plan.report.raw_after,
            GuardMode::DryRun | GuardMode::Off => self.plan.report.raw_before,
        };
        self.noted.facts().actions = Some(self.actions());
    }
}

fn usable(plan: &Plan) -> bool {
    let unsound = matches!(plan.report.stood_back, Some(StoodBack::Unsound(_)));
    !unsound && !plan.report.over_budget
}
