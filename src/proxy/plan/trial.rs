//! Chooses which of the proxy's additions are sent with a request: as many as fit.

use super::{PlannedRequest, run_planning};
use crate::{
    guard::{self, Plan, StandBackReason, injections::Injections},
    proxy::{
        FollowedConversation, GuardMode,
        recovery_step::{KeptRecovery, RecoveryStep},
    },
};

/// The order in which the proxy gives up what it adds: what a request keeps of recovery, and whether it keeps the summary.
const ORDER_OF_SACRIFICE: [(KeptRecovery, bool); 6] = [
    (KeptRecovery::All, true),
    (KeptRecovery::All, false),
    (KeptRecovery::AllButToolsAndPrompt, true),
    (KeptRecovery::AllButToolsAndPrompt, false),
    (KeptRecovery::Nothing, true),
    (KeptRecovery::Nothing, false),
];

/// A plan with some of the additions.
pub(super) struct Trial {
    recovery: RecoveryStep,
    summary_left_out: bool,
    plan: Plan,
    rank: PlanRank,
}

/// How well a plan serves; the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PlanRank {
    Fits,
    OverBudget,
    Unsound,
}

/// Walks the [`ORDER_OF_SACRIFICE`] up to the first plan that fits. If none fits, the additions are not what makes the
/// request too large: then the first sound plan is taken, or else the first of all. Only plans for which `helps` is true
/// count; `None` if there is no such plan.
pub(super) fn find_best_trial(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
    helps: impl Fn(&Plan) -> bool,
) -> Option<Trial> {
    let policy = planned.build_policy(&followed.session.app);
    let session = followed.session.inherited.session;
    let mut knowledge = planned.knowledge.clone();
    let mut best: Option<Trial> = None;
    let mut fault = None;
    for (kept, keeps_summary) in ORDER_OF_SACRIFICE {
        let mut recovery = planned.recovery.clone();
        let is_new = recovery.keep_only(kept);
        let summary = planned.compaction.memory.summary.clone();
        let summary = summary.filter(|_| !recovery.begins_course());
        if !is_new || !keeps_summary && summary.is_none() {
            continue;
        }
        knowledge.injections = Injections {
            summary: summary.filter(|_| keeps_summary),
            ..recovery.collect_injections(followed.conversation)
        };
        let plan = || guard::plan(followed.conversation, &policy, &knowledge);
        let plan = run_planning(followed, 1, plan);
        let rank = match plan.report.stood_back {
            Some(StandBackReason::Unsound(broken)) => {
                fault.get_or_insert(broken);
                PlanRank::Unsound
            }
            _ if plan.report.over_budget => PlanRank::OverBudget,
            _ => PlanRank::Fits,
        };
        if !helps(&plan) || best.as_ref().is_some_and(|best| best.rank <= rank) {
            continue;
        }
        recovery.note_sent_tools(plan.report.tools);
        best = Some(Trial {
            recovery,
            summary_left_out: !keeps_summary,
            plan,
            rank,
        });
        if rank != PlanRank::Fits {
            continue;
        }
        if let Some(broken) = fault.filter(|_| kept != KeptRecovery::All) {
            tracing::error!(%session, ?broken, "guard plan with recovery's prompts and tools is unsound; sending the request without them");
        }
        if !keeps_summary {
            tracing::warn!(%session, "summary left out of the request: the plan with it is unsound or over budget");
        }
        break;
    }
    best
}

impl Trial {
    /// Puts this plan into the request.
    pub(super) fn take_over(self, planned: &mut PlannedRequest) {
        planned.recovery = self.recovery;
        if self.plan.report.stood_back.is_some() {
            planned.recovery.withdraw_all();
        }
        planned.compaction.left_out = self.summary_left_out;
        planned.raw_sent = match planned.mode {
            GuardMode::Guard => self.plan.report.raw_after,
            GuardMode::DryRun | GuardMode::Off => self.plan.report.raw_before,
        };
        planned.plan = self.plan;
    }
}
