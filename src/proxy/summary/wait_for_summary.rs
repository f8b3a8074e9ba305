//! A request that waits for a summary before it is sent.
//!
//! The job is independent of the request: it runs on if the wait times out or the client leaves. The next request of the
//! branch takes its outcome over. If the same request is sent again, it waits for the same job.
//!
//! `plan/summary_due.rs` decides which requests wait. The summary is of the conversation as it would go out uncut.

use std::time::{Duration, Instant};

use super::{
    begin_summary::{begin_summary_before, begin_whole_summary},
    summary_source::summary_source,
};
use crate::{
    compaction::{JobId, JobOutcome, JobResult},
    proxy::{
        App, ClientRequest, PlannedRequest, ProviderRequest,
        plan::{
            plan_with_summary,
            summary_due::{may_begin_summary, waits_for_summary},
        },
    },
};

/// How long a job may take to deliver its outcome once its time is up.
const END_OF_JOB: Duration = Duration::from_secs(1);

/// A request that waits for a job.
pub(in crate::proxy) struct SummaryWait {
    pub(in crate::proxy) job: JobId,
    result: JobResult,
    until: Instant,
}

impl SummaryWait {
    /// Waits for the outcome; `None` if it does not come in time. A proxy that drains does not wait.
    pub(in crate::proxy) async fn wait_for_outcome(self, app: &App) -> Option<JobOutcome> {
        tokio::select! {
            waited = tokio::time::timeout_at(self.until.into(), self.result) => match waited {
                Ok(outcome) => outcome.ok(),
                Err(_) => {
                    app.summary_jobs.mark_late(self.job);
                    None
                }
            },
            () = app.draining.cancelled() => None,
        }
    }
}

/// Begins the summary that the request waits for, or joins the running job; `None` if the request does not wait.
pub(in crate::proxy) fn begin_summary_wait(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
) -> Option<SummaryWait> {
    let app = &request.app;
    let until = Instant::now() + app.config.compaction.wait;
    let followed = request.followed_conversation()?;
    let planned = prepared.planned.as_deref_mut()?;
    if app.config.compaction.wait.is_zero() || !waits_for_summary(followed, planned) {
        return None;
    }
    if running_job(app, planned).is_some() {
        planned.compaction.settle_order();
    } else if may_begin_summary(followed.session, planned) {
        let source = summary_source(request, &prepared.target)?;
        if let Some(job) = begin_summary_before(followed.session, planned, source) {
            app.summary_tasks.spawn(job.run());
        }
    }
    let (job, result) = running_job(app, planned)?;
    Some(SummaryWait { job, result, until })
}

/// Waits for the summary, and plans the request again with the outcome.
pub(in crate::proxy) async fn wait_for_summary(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
    wait: SummaryWait,
) {
    if let Some(outcome) = wait.wait_for_outcome(&request.app).await {
        prepared.change_plan(request, |followed, planned| {
            plan_with_summary(followed, planned, &outcome)
        });
    }
}

/// Begins the summary of a conversation that its client compacts, or joins the running job. Returns `None` if no summary is
/// wanted, or if no summary can begin. A job ends within `compaction.timeout_ms`.
pub(in crate::proxy) fn begin_whole_summary_wait(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
) -> Option<SummaryWait> {
    let app = &request.app;
    let session = request.session.as_ref()?;
    let planned = prepared.planned.as_deref_mut()?;
    if !planned.compaction.is_wanted() {
        return None;
    }
    let source = summary_source(request, &prepared.target)?;
    if let Some(job) = begin_whole_summary(session, planned, source) {
        app.summary_tasks.spawn(job.run());
    }
    let (job, result) = running_job(app, planned)?;
    let until = Instant::now() + app.config.compaction.timeout + END_OF_JOB;
    Some(SummaryWait { job, result, until })
}

/// The job that the session's state names, if this process still has its result.
fn running_job(app: &App, planned: &PlannedRequest) -> Option<(JobId, JobResult)> {
    let job = planned.compaction.job_id()?;
    Some((job, app.summary_jobs.find_result(job)?))
}
