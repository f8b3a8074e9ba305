//! Decides whether a summary is due with a request, and whether the request, or its caution prompt, waits for it.
//!
//! A caution prompt and its tools wait for a summary that is due, running, or taken over with the request: the request is
//! planned with the prompt first, and then without it. The session's state has the time at which the wait began, so that
//! the wait is bounded in every replica. The countdown never waits.

use std::time::Instant;

use super::{PlannedRequest, compaction_step::summary_user};
use crate::{
    compaction::{self, BackoffSubject, choose_summary_model},
    guard::{self, SessionKnowledge},
    provider::breaker::BreakerState,
    proxy::{FollowedConversation, JudgedAnswer, SessionContext, judged_answer::reported_tokens},
    unix_time::unix_ms_now,
};

/// Whether a summary may be begun with this request.
pub(in crate::proxy) fn may_begin_summary(
    session: &SessionContext,
    planned: &PlannedRequest,
) -> bool {
    let is_automatic = compacts_automatically(session, planned);
    session.inherited.lineage.stores_state()
        && planned.is_guarded()
        && planned.compaction.may_begin(is_automatic)
}

/// Whether a summary may begin after the answer to this request, so that its body is kept. The estimate may be off by
/// half: below half of the threshold, no answer is expected to pass it.
pub(in crate::proxy) fn may_begin_after_answer(
    session: &SessionContext,
    planned: &PlannedRequest,
) -> bool {
    let near = planned.expected_tokens() >= summary_threshold(session, planned) / 2;
    may_begin_summary(session, planned) && (planned.compaction.is_ordered() || near)
}

/// Whether the request and its answer together, as the next request will have them, are past the threshold: by the
/// provider's count, or by the estimate where it reports none.
pub(in crate::proxy) fn answer_is_past_threshold(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
    answer: JudgedAnswer<'_>,
) -> bool {
    // The provider did not count the whole prompt.
    if answer.silently_truncated {
        return false;
    }
    let response = answer.response;
    let prompt = reported_tokens(response).unwrap_or_else(|| planned.expected_tokens());
    let completion = response.usage.and_then(|usage| usage.completion_tokens);
    let tokens = prompt.saturating_add(completion.unwrap_or(0));
    is_past_threshold(followed, planned, tokens)
}

/// Whether the request waits for a summary: one was ordered through the API, or the request would be cut anew, or it
/// is past the threshold. For a job whose wait has timed out before, only a request that would be cut waits.
pub(in crate::proxy) fn waits_for_summary(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
) -> bool {
    let session = followed.session;
    let stores = session.inherited.lineage.stores_state();
    if !stores || !planned.is_guarded() || planned.recovery.begins_course() {
        return false;
    }
    let is_late = |id| session.app.summary_jobs.is_late(id);
    planned.compaction.is_ordered()
        || compacts_automatically(session, planned)
            && (cuts_beyond_summary(planned)
                || planned.plan.report.over_budget
                || !planned.compaction.job_id().is_some_and(is_late)
                    && is_past_threshold(followed, planned, planned.expected_tokens()))
}

/// Since when a due caution prompt waits for a summary, in milliseconds since 1970; `None` if it does not wait. It waits for
/// `compaction.timeout_ms` at most: by then a summary is made or has failed.
pub(super) fn caution_waits_since(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
) -> Option<u64> {
    if !planned.recovery.caution_is_due() || !expects_summary(followed, planned) {
        return None;
    }
    let session = followed.session;
    let state = session.inherited.state.as_ref();
    let now = unix_ms_now();
    let since = state.and_then(|state| state.caution_waits_since_ms);
    let since = since.unwrap_or(now);
    let limit = session.app.config.compaction.timeout.as_millis();
    // The difference is absolute: a clock that was set back must not prolong the wait.
    (u128::from(now.abs_diff(since)) < limit).then_some(since)
}

/// Whether a summary was taken over with this request, is running, or will begin with it, while compaction is on and works.
/// What a summary that was taken over has freed shows in the level after this request's answer.
pub(super) fn expects_summary(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
) -> bool {
    let (session, conversation) = (followed.session, followed.conversation);
    if !compacts_automatically(session, planned) {
        return false;
    }
    if planned.compaction.goes_out_first() {
        return true;
    }
    let (app, seed) = (&session.app, session.inherited.session.seed());
    let settings = &app.config.compaction;
    let model = choose_summary_model(
        &app.registry,
        settings,
        &planned.target,
        conversation.format,
        seed,
    );
    let is_paused = |subject| app.summary_jobs.is_paused(&subject);
    if model.provider.breaker.state_at(Instant::now()) != BreakerState::Closed
        || is_paused(BackoffSubject::from_target(&model))
    {
        return false;
    }
    let is_due = || {
        let (policy, memory) = (planned.build_policy(app), &planned.plan.memory);
        compaction::find_summary_range(
            conversation,
            &policy,
            memory,
            &planned.collect_injections(conversation),
        )
        .is_some()
    };
    planned.compaction.job_id().is_some()
        || may_begin_summary(session, planned)
            && !is_paused(summary_user(&session.inherited))
            && is_past_threshold(followed, planned, planned.expected_tokens())
            && is_due()
}

/// Whether summaries begin without an order: only if a source names the window.
fn compacts_automatically(session: &SessionContext, planned: &PlannedRequest) -> bool {
    let wanted = planned.compaction.auto && planned.compaction.guards && planned.is_guarded();
    let known = planned.target.window.known_tokens().is_some();
    if wanted && !known {
        let jobs = &session.app.summary_jobs;
        jobs.warn_unknown_window(&planned.target);
    }
    wanted && known
}

/// Whether the guard makes a new cut. A summary that was taken over moves the cut too, but loses nothing.
fn cuts_beyond_summary(planned: &PlannedRequest) -> bool {
    let cut = planned.plan.report.folded.is_some_and(|folded| folded.new);
    let summarised = planned.compaction.summary_boundary().unwrap_or(0);
    let count_beyond = |memory: &guard::GuardMemory| {
        let spans = memory.list_left_out().into_iter();
        let beyond = spans.map(|span| span.end.saturating_sub(span.start.max(summarised)));
        beyond.sum::<u32>()
    };
    cut && count_beyond(&planned.plan.memory) > count_beyond(&planned.knowledge.memory)
}

fn summary_threshold(session: &SessionContext, planned: &PlannedRequest) -> u32 {
    compaction::compute_threshold(&planned.plan.report.budget, &session.app.config.compaction)
}

/// Whether so many tokens are past the threshold, even without the old tool results that clearing would remove.
fn is_past_threshold(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
    tokens: u32,
) -> bool {
    let threshold = summary_threshold(followed.session, planned);
    let clearable = || clearable_tokens(followed, planned);
    tokens >= threshold && tokens.saturating_sub(clearable()) >= threshold
}

/// Tokens that clearing would remove from the conversation as it was sent.
fn clearable_tokens(followed: FollowedConversation<'_>, planned: &PlannedRequest) -> u32 {
    let conversation = followed.conversation;
    let policy = planned.build_policy(&followed.session.app);
    let knowledge = SessionKnowledge {
        memory: planned.plan.memory.clone(),
        ..planned.to_knowledge(conversation)
    };
    let cleared = guard::count_cleared_tokens(conversation, &policy, &knowledge);
    let freed = planned.plan.report.raw_after.saturating_sub(cleared);
    (f64::from(freed) * planned.knowledge.calibration.slope()) as u32
}
