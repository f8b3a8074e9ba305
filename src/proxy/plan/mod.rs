//! Plans a request for one provider: what recovery adds, the summary in use, and the guard's plan with both.
//! [`plan_request`] makes a plan, and every other function makes a new plan from an earlier one. Nothing here sends a
//! request or stores a state.

mod cache_age;
mod compaction_step;
mod explain_model;
mod plan_log;
mod planned_request;
mod prompt_timing;
mod refit;
mod repeat;
pub(super) mod summary_due;
mod trial;

use std::{
    ops::Range,
    time::{Duration, Instant},
};

pub(super) use self::compaction_step::summary_user;
use self::{
    cache_age::is_cache_cold,
    planned_request::session_policy,
    prompt_timing::{PROMPT_TOKENS, precedes_cut, revise_rules},
    repeat::plan_repeat,
    summary_due::caution_waits_since,
    trial::find_best_trial,
};
pub use self::{
    compaction_step::begin_compaction,
    explain_model::{GivenModel, explain_model, explain_request},
    plan_log::{log_cuts, log_plan, note_plan},
    planned_request::{PlannedRequest, guard_policy},
    refit::{
        clear_old_media, fit_to_request_limit, halve_request, halve_texts, lower_cap,
        refit_request, refit_to_required, remeasure_for_target,
    },
    repeat::{LastRequest, LastRequests},
};
use crate::{
    compaction::{CompactionStep, JobOutcome},
    config::profile::PastReasoning,
    conversation::Conversation,
    guard::{self, LeftOut, Plan, Policy, SessionKnowledge},
    health::{HealthLevel, limits::HealthLimits},
    http::tasks::run_beside_tasks,
    provider::Target,
    proxy::{
        App, FollowedConversation, GuardMode, SessionContext,
        recovery_step::{PromptTiming, RecoveryRules, RecoveryStep},
        request_options::RequestClass,
    },
    recovery::tool::{RecallCount, RecallSource},
    relay::{ModelAnswer, PrecedingText},
    session::{
        InheritedSession, ReasoningMemory, SessionState,
        reasoning_by_session::{ForeignReasoning, Maker},
    },
    telemetry::trace::OpenSpan,
    unix_time::unix_ms_now,
};

/// The work of one lookup, in passes over the conversation: each lookup decodes and searches everything that was left out.
const RECALL_WORK: usize = 8;

/// Runs work that takes longer for a larger conversation, without blocking other tasks. `times`: how often the work reads
/// the whole conversation.
pub(super) fn run_planning<T>(
    followed: FollowedConversation<'_>,
    times: usize,
    work: impl FnOnce() -> T,
) -> T {
    run_beside_tasks(followed.conversation.work_bytes() * times, work)
}

/// Begins the guard's span in a trace, which ends when it is dropped.
fn begin_planning(session: &SessionContext) -> (OpenSpan, Instant) {
    let span = session.notes.trace.begin_child("plimsoll.guard");
    (span, Instant::now())
}

/// Plans a request for `target`. `first`: the first candidate, which counts as the maker of earlier answers if the session
/// has no state.
pub fn plan_request(
    followed: FollowedConversation<'_>,
    target: &Target,
    first: &Target,
    mut compaction: CompactionStep,
) -> PlannedRequest {
    let (session, conversation) = (followed.session, followed.conversation);
    let (_span, begun) = begin_planning(session);
    if let Some(last) = &session.repeated
        && let Some(mut planned) = plan_repeat(followed, last, target)
    {
        planned.guard_took = begun.elapsed();
        return planned;
    }
    let (app, inherited, mode) = (&session.app, &session.inherited, session.options.mode);
    let reasoning = reasoning_for_target(app, inherited, target);
    let policy = session_policy(app, target, reasoning);
    let foreign = find_foreign_reasoning(followed, first, target);
    // If reasoning is bound, only the newest reasoning may stay, and it may have no gap. So if the newest is foreign, none
    // stays.
    let is_bound = policy.profile.past_reasoning == PastReasoning::Refused;
    let begins_anew = is_bound && foreign.has_newest;
    write_out_foreign_block(followed, target, &mut compaction);
    let knowledge = SessionKnowledge {
        new_summary: compaction.new_summary(),
        is_cold: session.options.class == RequestClass::Conversation
            && session.repeated.is_none()
            && is_cache_cold(conversation, inherited, target),
        leaves_out_reasoning: if reasoning.leaves_out_all {
            Some(LeftOut::Refused)
        } else {
            begins_anew.then_some(LeftOut::Foreign)
        },
        unusable: if is_bound {
            let gap = app
                .reasoning
                .find_left_out_places(inherited.session, &inherited.lineage);
            gap.map(|gap| (gap, LeftOut::Refused)).into_iter().collect()
        } else {
            let places = foreign.places.into_iter();
            places.map(|places| (places, LeftOut::Foreign)).collect()
        },
        ..knowledge_for_target(app, inherited, target)
    };
    let rules = recovery_rules(session, target);
    let begin_recovery = |rules| RecoveryStep::begin(conversation, inherited, &policy, rules, mode);
    let mut planned = PlannedRequest {
        target: target.clone(),
        limits: level_limits(conversation, &policy, target, &knowledge),
        mode,
        knowledge,
        recovery: begin_recovery(rules),
        compaction,
        caution_waits_since_ms: None,
        reasoning,
        asked_ms: unix_ms_now(),
        plan: Plan::default(),
        raw_sent: 0,
        guard_took: Duration::ZERO,
        refits: 0,
        size_refits: 0,
        lacks_history: conversation.lacks_history(),
        client_edits: inherited.edited,
    };
    planned = replan_request(followed, planned);
    planned.caution_waits_since_ms = caution_waits_since(followed, &planned);
    let cadence = rules.pace.caution_cadence;
    if let Some(revised) = revise_rules(&planned, rules) {
        planned.recovery = begin_recovery(revised);
        planned = replan_request(followed, planned);
    } else if precedes_cut(followed, &planned, cadence, PROMPT_TOKENS) {
        let timing = PromptTiming::AheadOfCut;
        let mut ahead = planned.clone();
        ahead.recovery = begin_recovery(RecoveryRules { timing, ..rules });
        ahead = replan_request(followed, ahead);
        if ahead.recovery.injected().is_some() && precedes_cut(followed, &ahead, cadence, 0) {
            planned = ahead;
        }
    }
    planned.guard_took = begun.elapsed();
    planned
}

/// Executes the calls of an answer that called only the proxy's tools, and plans the request that follows.
pub fn plan_next_round(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
    said: &ModelAnswer,
) -> PlannedRequest {
    let session = followed.session;
    let (_span, begun) = begin_planning(session);
    let target = planned.target.clone();
    let policy = guard_policy(&session.app, &target);
    let source = RecallSource {
        conversation: followed.conversation,
        policy: &policy,
        left_out: &planned.plan.memory.list_left_out(),
    };
    let lookups = RECALL_WORK * said.proxy_calls.len();
    run_planning(followed, lookups, || {
        planned.recovery.execute_tool_round(&source, said);
    });
    keep_cuts(&mut planned);
    let mut planned = replan_request(followed, planned);
    planned.guard_took += begun.elapsed();
    plan_log::log_tool_round(session.inherited.session, &planned, said);
    planned
}

/// Makes the next plan of the same conversation keep the cuts of this one, since the request of this plan has filled the
/// cache. The memory of this plan knows which reasoning was left out.
fn keep_cuts(planned: &mut PlannedRequest) {
    planned.knowledge.is_cold = false;
    planned.knowledge.leaves_out_reasoning = None;
    planned.knowledge.new_summary = None;
    if planned.plan.report.stood_back.is_none() && planned.mode == GuardMode::Guard {
        planned.knowledge.earlier_plan = Some(planned.plan.to_earlier_plan());
        planned.knowledge.history = planned.plan.history;
    }
}

/// Executes the proxy-executed calls of the last answer of a request, and records them.
pub fn finish_answer(
    followed: FollowedConversation<'_>,
    planned: &mut PlannedRequest,
    last: &ModelAnswer,
    before: PrecedingText,
) {
    let target = planned.target.clone();
    let source = RecallSource {
        conversation: followed.conversation,
        policy: &guard_policy(&followed.session.app, &target),
        left_out: &planned.plan.memory.list_left_out(),
    };
    let lookups = RECALL_WORK * last.proxy_calls.len();
    run_planning(followed, lookups, || {
        planned.recovery.finish_answer(&source, last, before);
    });
    let RecallCount { found, missed } = planned.recovery.recalls;
    if found + missed > 0 {
        let session = followed.session.inherited.session;
        tracing::info!(%session, found, missed, "recall: {found} calls were answered, {missed} found nothing");
    }
}

/// Replaces a summary block that a provider made by its text, if another model is asked than before, or if this model
/// refuses such blocks.
fn write_out_foreign_block(
    followed: FollowedConversation<'_>,
    target: &Target,
    compaction: &mut CompactionStep,
) {
    let notes = target.provider.find_notes(&target.model);
    if !is_same_model(&followed.session.inherited, target) || notes.refuses_summaries {
        compaction.write_out_summary(followed.conversation.format);
    }
}

/// Takes over the outcome of a summary job, and plans with the summary where there is one.
pub fn plan_with_summary(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
    outcome: &JobOutcome,
) -> PlannedRequest {
    let session = followed.session;
    let (_span, begun) = begin_planning(session);
    if planned.compaction.take_over(outcome) {
        if session.inherited.state.is_some() {
            let user = summary_user(&session.inherited);
            session.app.summary_jobs.mark_used(&user);
        }
        write_out_foreign_block(followed, &planned.target, &mut planned.compaction);
        planned.knowledge.new_summary = planned.compaction.new_summary();
        planned = replan_request(followed, planned);
    }
    planned.guard_took += begun.elapsed();
    planned
}

/// Plans with the text of a summary whose block the provider refuses.
pub fn plan_without_block(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
) -> PlannedRequest {
    planned
        .compaction
        .write_out_summary(followed.conversation.format);
    replan_request(followed, planned)
}

/// Plans without recovery's additions, for a provider that refuses them.
pub fn plan_without_additions(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
) -> PlannedRequest {
    planned.recovery.withdraw_all();
    replan_request(followed, planned)
}

/// Plans without any reasoning of earlier answers, for a provider that refuses it. For models that bind reasoning, reasoning
/// that is left out once stays out. If the session had to leave out reasoning before, all later requests have none.
pub fn plan_without_reasoning(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
) -> PlannedRequest {
    let before = std::mem::replace(&mut planned.reasoning.is_bound, true);
    planned.reasoning.leaves_out_all = before && planned.reasoning.drop_by.is_none();
    planned.knowledge.leaves_out_reasoning = Some(LeftOut::Refused);
    replan_request(followed, planned)
}

/// Finds the gap: the places of all answers from the item `first` on, whose reasoning the provider refuses. Returns `None` if
/// `first` is no place in the request as it is sent, or if the session has a gap already.
pub fn find_reasoning_gap(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
    first: usize,
) -> Option<Range<u32>> {
    let (conversation, session) = (followed.conversation, followed.session);
    let inherited = &session.inherited;
    let gaps = &session.app.reasoning;
    let known = gaps.find_left_out_places(inherited.session, &inherited.lineage);
    // If the plan changes the prompt, the sent messages have other places than the client's.
    if known.is_some() || conversation.changes_prompt(&planned.plan.edits) {
        return None;
    }
    let before = conversation.items.get(..first)?.iter();
    let before = before.filter(|item| !item.author.is_system()).count() as u32;
    let gap = before..planned.plan.answer.place;
    (!gap.is_empty()).then_some(gap)
}

/// Plans without the reasoning of the answers in the gap. Reasoning before it is kept.
pub fn plan_without_gap(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
    gap: Range<u32>,
) -> PlannedRequest {
    planned.reasoning.is_bound = true;
    planned.knowledge.unusable = vec![(gap, LeftOut::Refused)];
    replan_request(followed, planned)
}

/// Plans without a prompt as a message of its own after a tool result, or as a system message. Returns `None` if such a
/// prompt cannot be the reason of a refusal.
pub fn plan_without_prompt_after_tool(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
) -> Option<PlannedRequest> {
    let mut planned = planned.clone();
    let (target, conversation) = (&planned.target, followed.conversation);
    let profile = target.profile();
    let recovery = &mut planned.recovery;
    if !recovery.avoid_prompt_after_tool(conversation, profile) {
        return None;
    }
    let provider = &*target.provider.name;
    tracing::warn!(
        session = %followed.session.inherited.session, provider, model = target.model,
        "provider {provider} refuses the place of recovery's prompts; this session places these prompts elsewhere"
    );
    Some(replan_request(followed, planned))
}

/// Plans without the tool rounds that a provider may have refused (see `withdraw_rounds`); `None` if there are none.
pub fn plan_without_rounds(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
) -> Option<PlannedRequest> {
    let mut planned = planned.clone();
    planned
        .recovery
        .withdraw_rounds()
        .then(|| replan_request(followed, planned))
}

/// Plans again, with as many of the proxy's additions as can be sent.
fn replan_request(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
) -> PlannedRequest {
    if let Some(trial) = find_best_trial(followed, &planned, |_| true) {
        trial.take_over(&mut planned);
    }
    planned
}

fn recovery_rules<'a>(session: &'a SessionContext, target: &Target) -> RecoveryRules<'a> {
    let settings = &session.app.config.recovery;
    RecoveryRules {
        settings,
        other_model: !is_same_model(&session.inherited, target),
        pace: settings.pace_for_model(&target.settings),
        wanted: settings.is_enabled_for(&target.settings, None)
            && session.options.recovers
            && session.repeated.is_none(),
        timing: PromptTiming::WhenDue,
        hold: None,
        holds_recall: false,
    }
}

/// The prompt sizes at which the level of this request changes.
fn level_limits(
    conversation: &Conversation,
    policy: &Policy<'_>,
    target: &Target,
    knowledge: &SessionKnowledge,
) -> HealthLimits {
    let budget = guard::session_budget(conversation, policy, knowledge).tokens;
    target.compute_limits(policy.settings, Some(budget))
}

/// The guard's memory of earlier requests. A calibration holds for one model: another model begins anew.
fn knowledge_for_target(
    app: &App,
    inherited: &InheritedSession,
    target: &Target,
) -> SessionKnowledge {
    let mut knowledge = inherited.to_knowledge();
    if !is_same_model(inherited, target) {
        let (provider, model) = (&target.provider.name, &target.model);
        knowledge.calibration = app.ratios.initial_calibration(provider, model);
        knowledge.memory.scale = knowledge.calibration.to_scale();
    }
    knowledge
}

/// Returns what the session knows about the reasoning of this model. What it knows about another model does not count.
fn reasoning_for_target(
    app: &App,
    inherited: &InheritedSession,
    target: &Target,
) -> ReasoningMemory {
    let lesson = app
        .reasoning
        .find_lesson(inherited.session, target_model(target));
    let state = inherited.state.as_ref();
    let state = state.filter(|_| is_same_model(inherited, target));
    let known = state.map_or_else(ReasoningMemory::default, |state| state.reasoning);
    lesson.map_or(known, |lesson| ReasoningMemory {
        turn_without_thinking: known.turn_without_thinking,
        ..lesson
    })
}

/// The answers whose reasoning another provider, or a model of another family, has signed or encrypted. It is of no use to the
/// target, which may refuse it.
fn find_foreign_reasoning(
    followed: FollowedConversation<'_>,
    first: &Target,
    target: &Target,
) -> ForeignReasoning {
    let session = followed.session;
    let last = last_answering_model(&session.inherited).unwrap_or_else(|| target_model(first));
    let makers = &session.app.reasoning;
    let foreign = makers.list_foreign(session.inherited.session, &last, &target_model(target));
    if foreign.places.is_empty() || !followed.conversation.has_sealed_reasoning() {
        return ForeignReasoning::default();
    }
    foreign
}

/// Finds the provider and the model that gave the session's last answer.
pub fn last_answering_model(inherited: &InheritedSession) -> Option<Maker> {
    inherited.state.as_ref().map(|state| Maker {
        provider: state.provider.clone(),
        model: state.model.clone(),
    })
}

pub fn target_model(target: &Target) -> Maker {
    Maker {
        provider: (&*target.provider.name).into(),
        model: target.model.as_str().into(),
    }
}

/// Whether the previous generation was by the same model of the same provider.
pub fn is_same_model(inherited: &InheritedSession, target: &Target) -> bool {
    last_answering_model(inherited) == Some(target_model(target))
}

/// Whether asking `larger` avoids a cut, now or soon. Also true if `larger` gave the session's last answer, and that prompt
/// takes more than half of this target's window.
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
    let half = target.window.tokens / 2;
    let wants_larger = |state: &SessionState| {
        let is_critical = state.health == HealthLevel::Critical;
        is_critical && !target.window.is_guessed() && is_same_model(inherited, target)
            || state.prompt_tokens > Some(half) && is_same_model(inherited, larger)
    };
    cut || inherited.state.as_ref().is_some_and(wants_larger)
}
