//! Whether a request wants a summary of its conversation, and waits for one; whether its caution prompt does.
//!
//! A caution prompt waits for a summary that is due, being made or taken over with the request, and the tools that
//! would come with it wait too: a plan is made with the prompt first, and again without. Since when it waits stands
//! in the session's state, so that the bound holds in any replica. The countdown waits for nothing.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::{
    answer_facts::{AnswerFacts, reported_tokens},
    client_request::{FollowedConversation, SessionContext},
    plan::PlannedRequest,
};
use crate::{
    compaction::{self, BackoffSubject, choose_summary_model},
    guard::{self, Policy, Recall},
    provider::breaker::BreakerState,
    session::InheritedSession,
};

/// Whose requests are to use a summary of the conversation.
pub(super) fn summary_user(inherited: &InheritedSession) -> BackoffSubject {
    match inherited.state {
        Some(_) => BackoffSubject::Session(*inherited.session.as_bytes()),
        None => summary_account(inherited),
    }
}

/// The account of the client, for summaries.
pub(super) fn summary_account(inherited: &InheritedSession) -> BackoffSubject {
    BackoffSubject::Account(*inherited.lineage.tenant().account().as_bytes())
}

/// Whether a summary may be begun with this request.
pub(super) fn may_begin_summary(session: &SessionContext, planned: &PlannedRequest) -> bool {
    planned.is_guarded()
        && planned
            .compaction
            .may_begin(compacts_automatically(session, planned))
}

/// Whether a summary may be begun after the answer to this request, so that its body is kept. The
/// estimate may be far off: where half of it is not past the threshold, no answer is expected to be.
pub(super) fn may_begin_after_answer(session: &SessionContext, planned: &PlannedRequest) -> bool {
    let near = planned.expected_tokens() >= summary_threshold(session, planned) / 2;
    may_begin_summary(session, planned) && (planned.compaction.is_ordered() || near)
}

/// Whether the request and its answer are past the threshold together, as the next request will be:
/// by the provider's count, or by the estimate where the provider reports none.
pub(super) fn answer_is_past_threshold(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
    answer: AnswerFacts<'_>,
) -> bool {
    // The provider did not count all that was sent.
    if answer.cut_in_silence {
        return false;
    }
    let prompt = reported_tokens(answer.heard).unwrap_or_else(|| planned.expected_tokens());
    let usage = answer.heard.usage;
    let completion = usage.and_then(|usage| usage.completion_tokens);
    let tokens = prompt.saturating_add(completion.unwrap_or(0));
    is_past_threshold(followed, planned, tokens)
}

/// Whether the request is to wait for a summary: one was ordered from outside, or the request
/// would be cut anew, or it is past the threshold. For a job that an earlier request stopped
/// waiting for, only a request that would be cut waits.
pub(super) fn waits_for_summary(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
) -> bool {
    if !planned.is_guarded() || planned.recovery.begins_course() {
        return false;
    }
    let session = followed.session;
    let is_late = |id| session.app.summary_jobs.is_late(id);
    planned.compaction.is_ordered()
        || compacts_automatically(session, planned)
            && (is_cut_anew(planned)
                || planned.plan.report.over_budget
                || !planned.compaction.job_id().is_some_and(is_late)
                    && is_past_threshold(followed, planned, planned.expected_tokens()))
}

/// Since when the caution prompt that is due with this request waits for a summary, in
/// milliseconds since 1970; `None` where it does not wait. It waits for
/// `compaction.timeout_ms` at most, in which a summary is made or fails.
pub(super) fn caution_waits_since(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
) -> Option<u64> {
    if !planned.recovery.caution_is_due() || !expects_summary(followed, planned) {
        return None;
    }
    let session = followed.session;
    let state = session.inherited.state.as_ref();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let since = state.and_then(|state| state.caution_waits_since_ms);
    let since = since.unwrap_or(now);
    let most = session.app.config.compaction.timeout.as_millis();
    // A clock that was set back must not prolong the wait.
    (u128::from(now.abs_diff(since)) < most).then_some(since)
}

/// Whether a summary was taken over with this request, is being made, or will be begun with it;
/// only where compaction is on and works. What a summary that was just taken over does to the
/// level is known after this request's answer.
fn expects_summary(followed: FollowedConversation<'_>, planned: &PlannedRequest) -> bool {
    let FollowedConversation {
        session,
        conversation,
    } = followed;
    if !compacts_automatically(session, planned) {
        return false;
    }
    if planned.compaction.goes_out_first() {
        return true;
    }
    let (app, seed) = (&session.app, session.inherited.session.seed());
    let settings = &app.config.compaction;
    let model = choose_summary_model(&app.registry, settings, &planned.target, seed);
    let is_paused = |subject| app.summary_jobs.is_paused(&subject);
    if model.provider.breaker.state_at(Instant::now()) != BreakerState::Closed
        || is_paused(BackoffSubject::from_target(&model))
    {
        return false;
    }
    let is_due = || {
        let (policy, memory) = (planned.build_policy(app), &planned.plan.memory);
        compaction::find_summary_range(conversation, &policy, memory, &planned.collect_injections())
            .is_some()
    };
    planned.compaction.job_id().is_some()
        || may_begin_summary(session, planned)
            && !is_paused(summary_user(&session.inherited))
            && is_past_threshold(followed, planned, planned.expected_tokens())
            && is_due()
}

/// Whether summaries are made without an order: only where a source names the window.
fn compacts_automatically(session: &SessionContext, planned: &PlannedRequest) -> bool {
    let wanted = planned.compaction.auto && planned.compaction.guards && planned.is_guarded();
    let known = planned.target.window.known_tokens().is_some();
    if wanted && !known {
        session
            .app
            .summary_jobs
            .warn_unknown_window(&planned.target);
    }
    wanted && known
}

/// Whether the guard makes a new cut with this request, beyond the summary: a summary that was
/// taken over moves the cut as well, but nothing is lost by that.
fn is_cut_anew(planned: &PlannedRequest) -> bool {
    let cut = planned.plan.report.folded.is_some_and(|folded| folded.new);
    cut && planned.plan.memory.boundary() > planned.compaction.summary_boundary()
}

fn summary_threshold(session: &SessionContext, planned: &PlannedRequest) -> u32 {
    compaction::compute_threshold(&planned.plan.report.budget, &session.app.config.compaction)
}

/// Whether so many tokens of this conversation are past the threshold, also without the old tool
/// rounds that can be cleared: they need no summary.
fn is_past_threshold(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
    tokens: u32,
) -> bool {
    let threshold = summary_threshold(followed.session, planned);
    let clearable = || clearable_tokens(followed, planned);
    tokens >= threshold && tokens.saturating_sub(clearable()) >= threshold
}

/// Tokens that clearing would free of the conversation as it went out.
fn clearable_tokens(followed: FollowedConversation<'_>, planned: &PlannedRequest) -> u32 {
    let app = &followed.session.app;
    let mut settings = app.config.guard.clone();
    settings.clear.at = 0.0;
    let policy = Policy {
        settings: &settings,
        ..planned.build_policy(app)
    };
    let recall = Recall {
        memory: planned.plan.memory.clone(),
        injections: planned.collect_injections(),
        ..planned.recall.clone()
    };
    let cleared = guard::plan(followed.conversation, &policy, &recall);
    let (sent, cleared) = (planned.plan.report.raw_after, cleared.report.raw_after);
    let freed = sent.saturating_sub(cleared);
    (f64::from(freed) * planned.recall.calibration.slope()) as u32
}
