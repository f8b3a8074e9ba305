//! Begins a summary with a request: before the request is sent, or after its answer.
//!
//! A job that follows an answer runs once the state that names it is stored, since no request would find its summary
//! otherwise. Until then the body is kept and counts as bytes in flight. It is kept only if a summary is possible.

use std::{sync::Arc, time::Duration};

use super::summary_source::SummarySource;
use crate::{
    compaction::{
        self, BackoffSubject, CompactionStep, JobOutcome, JobRequest, JobStart, Summariser,
        SummaryJob, SummaryRange,
    },
    config::{SummaryMaker, profile::PastReasoning},
    conversation::edit::Edits,
    guard::{self, Plan},
    proxy::{
        App, FollowedConversation, JudgedAnswer, PlannedRequest, SessionContext,
        plan::{
            summary_due::{answer_is_past_threshold, may_begin_summary},
            summary_user,
        },
    },
    session::{Account, SessionId},
};

/// How long the store may take to store an outcome.
const STORE_WITHIN: Duration = Duration::from_secs(5);

/// Begins a summary after an answer, if one is due, and notes it in the compaction of `planned`. The caller runs the job once
/// the state that names it is stored.
pub(in crate::proxy) fn begin_summary_after(
    session: &SessionContext,
    planned: &mut PlannedRequest,
    answer: JudgedAnswer<'_>,
    source: SummarySource,
) -> Option<SummaryJob<SummarySource>> {
    let followed = FollowedConversation {
        session,
        conversation: &source.conversation,
    };
    let due = may_begin_summary(session, planned)
        && (planned.compaction.is_ordered() || answer_is_past_threshold(followed, planned, answer));
    if !due {
        return None;
    }
    let plan = planned.plan.clone();
    begin_summary(session, planned, source, plan, true)
}

/// Begins a summary of the uncut conversation before the request is sent, so that the summary covers what a cut removes.
pub(super) fn begin_summary_before(
    session: &SessionContext,
    planned: &mut PlannedRequest,
    source: SummarySource,
) -> Option<SummaryJob<SummarySource>> {
    let policy = planned.build_policy(&session.app);
    let recall = planned.to_knowledge(&source.conversation);
    let uncut = guard::plan_without_new_cuts(&source.conversation, &policy, recall);
    begin_summary(session, planned, source, uncut, false)
}

/// Begins a summary of the source's conversation as it is sent by `plan`. `is_answered`: a provider has answered it in this
/// form.
fn begin_summary(
    session: &SessionContext,
    planned: &mut PlannedRequest,
    mut source: SummarySource,
    plan: Plan,
    is_answered: bool,
) -> Option<SummaryJob<SummarySource>> {
    let conversation = &source.conversation;
    let additions = planned.collect_injections(conversation);
    let policy = planned.build_policy(&session.app);
    let range = compaction::find_summary_range(conversation, &policy, &plan.memory, &additions);
    let is_bound = policy.profile.past_reasoning == PastReasoning::Refused;
    let notes = source.target.provider.find_notes(&source.target.model);
    let may_ask = session.app.config.compaction.by == SummaryMaker::Provider
        && is_bound
        && !notes.refuses_summaries;
    let range_of_provider = range.filter(|_| may_ask);
    let safe_cut = range_of_provider.and_then(|range| {
        let least = range.boundary;
        compaction::find_safe_cut(conversation, &plan, &additions, least, is_answered)
    });
    let compaction = &mut planned.compaction;
    let Some(range) = range else {
        if compaction.is_ordered() {
            tracing::info!(session = %session.inherited.session, "summary requested through the session API, but there is too little to summarise");
        }
        compaction.settle_order();
        return None;
    };
    source.betas = planned.list_betas(&plan);
    begin_job(session, planned, source, plan.edits, range, safe_cut)
}

/// Begins the summary of a whole conversation, for a client that compacts it. The session's memory does not record the job.
pub(super) fn begin_whole_summary(
    session: &SessionContext,
    planned: &mut PlannedRequest,
    mut source: SummarySource,
) -> Option<SummaryJob<SummarySource>> {
    let key = session.inherited.lineage.compaction_key();
    // A running summary of the session covers an older part only, so the request does not wait for it.
    planned.compaction.order_whole_summary(key);
    let range = compaction::cover_before_last(&source.conversation, planned.raw_sent)?;
    source.betas = planned.list_betas(&planned.plan);
    let edits = planned.request_edits();
    begin_job(session, planned, source, edits, range, None)
}

/// Begins the job of this summary, or joins the one that an earlier try of the request began.
fn begin_job(
    session: &SessionContext,
    planned: &mut PlannedRequest,
    source: SummarySource,
    edits: Edits,
    range: SummaryRange,
    safe_cut: Option<u32>,
) -> Option<SummaryJob<SummarySource>> {
    let (app, inherited) = (&session.app, &session.inherited);
    let conversation = Arc::clone(&source.conversation);
    let compaction = &mut planned.compaction;
    let target = source.target.clone();
    let start = app.summary_jobs.begin_job(JobRequest {
        key: compaction.key?,
        id: app.sessions.new_job_id(),
        model: BackoffSubject::from_target(&target),
        user: summary_user(inherited),
        ordered: compaction.is_ordered(),
        max_running: app.config.compaction.max_running,
    });
    let ticket = match start {
        JobStart::New(ticket) => ticket,
        JobStart::Joined(id) => {
            compaction.set_job(id);
            return None;
        }
        JobStart::Failed => {
            compaction.record_failure();
            return None;
        }
        JobStart::Skipped => return None,
    };
    compaction.set_job(ticket.id);
    let is_same = target.provider.endpoint == planned.target.provider.endpoint
        && target.model == planned.target.model;
    let (ratios, config) = (&app.ratios, &app.config);
    let calibration = if is_same {
        planned.knowledge.calibration
    } else {
        ratios.initial_calibration(&target.provider.name, &target.model)
    };
    // If the session knows that its reasoning is not stale, the provider does not refuse the reasoning. A summary request
    // does not ask the provider to drop reasoning.
    let is_valid =
        planned.reasoning.drop_by.is_none() && planned.knowledge.knows_newest_answer(&conversation);
    let repeats = is_same && (is_valid || !conversation.has_past_thinking());
    let language = planned.recovery.language;
    // SECURITY: the nonce is drawn after the conversation was written, and is never shown.
    let nonce = ticket.id.0;
    Some(SummaryJob {
        ticket,
        client: source,
        conversation,
        edits,
        range,
        safe_cut: safe_cut.filter(|_| repeats),
        summariser: Summariser::for_model(&target, repeats, calibration, language, config, nonce),
        target,
        timeout: app.config.compaction.timeout,
        session: inherited.session.to_string(),
        trace: session.notes.trace.clone(),
    })
}

/// Runs the job that was begun after the answer. Stores the outcome of the job that this request has begun or joined, before
/// or after its answer, next to its session in the store. Must be called once the state that names the job is stored: until
/// then there may be no session.
pub(in crate::proxy) fn run_summary(
    session: &SessionContext,
    compaction: &CompactionStep,
    job: Option<SummaryJob<SummarySource>>,
) {
    let app = &session.app;
    if let Some(job) = job {
        app.summary_tasks.spawn(job.run());
    }
    let job = compaction.new_job();
    if let Some(result) = job.and_then(|id| app.summary_jobs.follow_job(id)) {
        let (shared_app, id) = (Arc::clone(app), session.inherited.session);
        let account = session.inherited.lineage.tenant.account();
        app.summary_tasks.spawn(async move {
            if let Ok(outcome) = result.await {
                store_outcome(&shared_app, &account, id, outcome).await;
            }
        });
    }
}

/// Stores an outcome next to its session, where the next request of the branch finds it.
async fn store_outcome(app: &App, account: &Account, session: SessionId, outcome: JobOutcome) {
    let sessions = &app.sessions;
    let stored = sessions.store_summary_outcome(account, session, outcome);
    match tokio::time::timeout(STORE_WITHIN, stored).await {
        Ok(Ok(Some(view))) => app.session_events.publish_change(&view),
        // The session has expired.
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::warn!(
            %session, error = crate::error::format_error_chain(&error),
            "summary outcome was not stored: the session store failed"
        ),
        Err(_) => {
            tracing::warn!(%session, "summary outcome was not stored: the session store timed out")
        }
    }
}
