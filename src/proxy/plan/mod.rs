//! Planning a request for one provider: what recovery has due, the summary in use, and the guard's plan
//! with both. [`plan_request`] makes a plan, and every other function makes another plan of one. Nothing is
//! sent, and no state is stored.

mod plan_log;
mod planned_request;
mod refit;

use std::time::{Duration, Instant};

pub use self::{
    plan_log::{log_plan, note_plan},
    planned_request::{PlannedRequest, guard_policy},
    refit::{refit_request, remeasure_for_target},
};
use super::{
    App,
    client_request::{FollowedConversation, SessionContext},
    recovery_step::{RecoveryRules, RecoveryStep},
    request_options::GuardMode,
    summary_due::{caution_waits_since, summary_user},
};
use crate::{
    compaction::{CompactionStep, JobOutcome},
    conversation::Conversation,
    guard::{self, Plan, Policy, Recall, StandBackReason, injections::Injections},
    health::{HealthLevel, limits::HealthLimits},
    provider::Target,
    relay::AssistantTurn,
    session::{InheritedSession, SessionState},
};

/// What the guard's part of a trace is called.
const GUARD_SPAN: &str = "plimsoll.guard";

/// Plans a request for `target`.
pub fn plan_request(
    followed: FollowedConversation<'_>,
    target: &Target,
    compaction: CompactionStep,
) -> PlannedRequest {
    let FollowedConversation {
        session,
        conversation,
    } = followed;
    let _child = session.notes.trace.begin_child(GUARD_SPAN);
    let begun = Instant::now();
    let (app, inherited) = (&session.app, &session.inherited);
    let mode = session.options.mode;
    let policy = guard_policy(app, target);
    let recall = recall_for_target(app, inherited, target);
    let rules = recovery_rules(session, target);
    let begin_recovery = |rules| RecoveryStep::begin(conversation, inherited, &policy, rules, mode);
    let mut planned = PlannedRequest {
        target: target.clone(),
        limits: level_limits(conversation, &policy, target, &recall),
        mode,
        recall,
        recovery: begin_recovery(rules),
        compaction,
        caution_waits_since_ms: None,
        plan: Plan::default(),
        raw_sent: 0,
        guard_took: Duration::ZERO,
        refits: 0,
    };
    planned = replan_request(followed, planned);
    planned.caution_waits_since_ms = caution_waits_since(followed, &planned);
    if planned.caution_waits_since_ms.is_some() {
        planned.recovery = begin_recovery(RecoveryRules {
            caution_waits: true,
            ..rules
        });
        planned = replan_request(followed, planned);
    }
    planned.guard_took = begun.elapsed();
    planned
}

/// Carries out the calls of an answer that called only the proxy's tools, and plans the request that follows.
pub fn plan_next_turn(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
    spoken: &AssistantTurn,
) -> PlannedRequest {
    let session = followed.session;
    let _child = session.notes.trace.begin_child(GUARD_SPAN);
    let begun = Instant::now();
    let target = planned.target.clone();
    let policy = guard_policy(&session.app, &target);
    planned
        .recovery
        .execute_tool_turn(followed.conversation, &policy, spoken);
    let mut planned = replan_request(followed, planned);
    planned.guard_took += begun.elapsed();
    plan_log::log_tool_turn(session.inherited.session, &planned, spoken);
    planned
}

/// Takes over the outcome of a summary, and plans with it where it is a summary.
pub fn plan_with_summary(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
    outcome: &JobOutcome,
) -> PlannedRequest {
    let session = followed.session;
    let _child = session.notes.trace.begin_child(GUARD_SPAN);
    let begun = Instant::now();
    if planned.compaction.take_over(outcome) {
        if session.inherited.state.is_some() {
            let user = summary_user(&session.inherited);
            session.app.summary_jobs.mark_used(&user);
        }
        planned = replan_request(followed, planned);
    }
    planned.guard_took += begun.elapsed();
    planned
}

/// Plans without anything that recovery adds, for a provider that refuses it.
pub fn plan_without_additions(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
) -> PlannedRequest {
    planned.recovery.withdraw_all();
    replan_request(followed, planned)
}

/// Plans without the prompt after a tool result, for a provider that refuses it; `None` where there is
/// no such prompt that may be the reason.
pub fn plan_without_prompt_after_tool(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
) -> Option<PlannedRequest> {
    let mut planned = planned.clone();
    let (target, conversation) = (&planned.target, followed.conversation);
    let profile = target.provider.config.profile;
    if !planned
        .recovery
        .avoid_prompt_after_tool(conversation, profile)
    {
        return None;
    }
    tracing::warn!(
        session = %followed.session.inherited.session, provider = &*target.provider.name, model = target.model,
        "a provider refuses a prompt after a tool result; prompts of this session go elsewhere"
    );
    Some(replan_request(followed, planned))
}

/// Plans with what recovery has decided by now and the summary in use; without the one, or the
/// other, or both, where that cannot be carried out or does not fit.
fn replan_request(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
) -> PlannedRequest {
    let best = |additions: Injections| plan_with_or_without_summary(followed, &planned, &additions);
    let mut found = best(planned.recovery.collect_injections());
    let has_additions = planned.recovery.adds_anything();
    let session = followed.session.inherited.session;
    let mut withdraws = false;
    if let Some(reason) = found.plan.report.stood_back {
        withdraws = true;
        if has_additions && let StandBackReason::Unsound(broken) = reason {
            tracing::error!(%session, ?broken, "a plan with what recovery adds was unsound; the request goes on without");
            found = best(Injections::default());
        }
    } else if found.plan.report.over_budget && has_additions {
        let without = best(Injections::default());
        // What the proxy adds must not be what makes a request too large.
        if !without.plan.report.over_budget {
            withdraws = true;
            found = without;
        }
    }
    if withdraws {
        planned.recovery.withdraw_all();
    }
    if found.summary_left_out {
        tracing::warn!(%session, "a summary could not stand in a request, which goes on without it");
    }
    planned.compaction.left_out = found.summary_left_out;
    planned.plan = found.plan;
    planned.raw_sent = match planned.mode {
        GuardMode::Guard => planned.plan.report.raw_after,
        GuardMode::DryRun | GuardMode::Off => planned.plan.report.raw_before,
    };
    planned
}

/// A plan, and whether it does without the summary in use.
struct PlanChoice {
    plan: Plan,
    summary_left_out: bool,
}

/// The guard's plan with the summary in use, unless that is what is wrong with it.
fn plan_with_or_without_summary(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
    additions: &Injections,
) -> PlanChoice {
    let policy = planned.build_policy(&followed.session.app);
    let plan = |summary| {
        let recall = Recall {
            injections: Injections {
                summary,
                ..additions.clone()
            },
            ..planned.recall.clone()
        };
        guard::plan(followed.conversation, &policy, &recall)
    };
    let summary = planned.compaction_memory().summary;
    let has_summary = summary.is_some();
    let with = plan(summary);
    if has_summary && !is_usable(&with) {
        let without = plan(None);
        if is_usable(&without) {
            return PlanChoice {
                plan: without,
                summary_left_out: true,
            };
        }
    }
    PlanChoice {
        plan: with,
        summary_left_out: false,
    }
}

fn is_usable(plan: &Plan) -> bool {
    let unsound = matches!(plan.report.stood_back, Some(StandBackReason::Unsound(_)));
    !unsound && !plan.report.over_budget
}

fn recovery_rules<'a>(session: &'a SessionContext, target: &Target) -> RecoveryRules<'a> {
    let settings = &session.app.config.recovery;
    RecoveryRules {
        settings,
        other_model: !is_same_model(&session.inherited, target),
        pace: settings.pace_for_model(&target.settings),
        wanted: settings.is_enabled_for(&target.settings, None) && session.options.recovers,
        caution_waits: false,
    }
}

/// The prompt sizes at which the level of this request changes.
fn level_limits(
    conversation: &Conversation,
    policy: &Policy<'_>,
    target: &Target,
    recall: &Recall,
) -> HealthLimits {
    let own = guard::session_budget(conversation, policy, recall).tokens;
    target.compute_limits(policy.settings, Some(own))
}

/// What is known from before. A calibration is that of a model: another model begins anew.
fn recall_for_target(app: &App, inherited: &InheritedSession, target: &Target) -> Recall {
    let mut recall = inherited.to_recall();
    if !is_same_model(inherited, target) {
        recall.calibration = app
            .ratios
            .initial_calibration(&target.provider.name, &target.model);
    }
    recall
}

/// Whether the generation before was of the same model of the same provider.
pub fn is_same_model(inherited: &InheritedSession, target: &Target) -> bool {
    inherited.state.as_ref().is_some_and(|state| {
        *state.model == *target.model && *state.provider == *target.provider.name
    })
}

/// Whether the request is better off with `larger`: it would be cut here, or soon, or its
/// session has gone there and is still too long to come back for good.
pub fn wants_larger_model(
    inherited: &InheritedSession,
    planned: &PlannedRequest,
    larger: &Target,
) -> bool {
    if planned.mode != GuardMode::Guard {
        return false;
    }
    let report = &planned.plan.report;
    let cut = report.folded.is_some() || report.over_budget || report.course.is_some();
    let target = &planned.target;
    let critical = |state: &SessionState| {
        state.health == HealthLevel::Critical && is_same_model(inherited, target)
    };
    let gone = |state: &SessionState| {
        let half = target.window.tokens / 2;
        is_same_model(inherited, larger) && state.prompt_tokens.is_some_and(|tokens| tokens > half)
    };
    let state = inherited.state.as_ref();
    cut || state.is_some_and(|state| critical(state) || gone(state))
}
