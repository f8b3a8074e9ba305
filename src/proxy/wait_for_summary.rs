//! A request that waits for a summary before it is sent.
//!
//! The job runs apart from the request. A request whose wait is over, or whose client leaves, leaves the
//! job running: the next request of the branch takes its outcome over, and the same request sent again
//! waits for the same job.
//!
//! A request waits where it is past the threshold by the estimate, or would be cut anew. What is summarised is the
//! conversation as it would go out uncut. A job that was waited for in vain is waited for again only by a request
//! that would be cut; a summary that was taken over moves the cut too, and is no reason to wait for another.

use std::time::Instant;

use super::{
    App,
    begin_summary::begin_summary_before,
    client_request::ClientRequest,
    fallbacks::PlacedRequest,
    plan::{PlannedRequest, plan_with_summary},
    summary_due::{may_begin_summary, waits_for_summary},
    summary_source::summary_source,
};
use crate::compaction::{JobId, JobOutcome, JobResult};

/// A request that waits for a job.
pub struct SummaryWait {
    job: JobId,
    result: JobResult,
    until: Instant,
}

impl SummaryWait {
    /// The outcome, if there is one in time. A proxy that shuts down waits for none.
    async fn wait_for_outcome(self, app: &App) -> Option<JobOutcome> {
        let end = app.drain_token();
        tokio::select! {
            ended = tokio::time::timeout_at(self.until.into(), self.result) => match ended {
                Ok(outcome) => outcome.ok(),
                Err(_) => {
                    app.summary_jobs.mark_late(self.job);
                    None
                }
            },
            () = end.cancelled() => None,
        }
    }
}

/// Begins the summary that the request is to wait for, or finds the one that is being made; `None`
/// where the request does not wait.
pub fn begin_summary_wait(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
) -> Option<SummaryWait> {
    let app = &request.app;
    let until = Instant::now() + app.config.compaction.wait;
    let (followed, planned) = (
        request.followed_conversation()?,
        placed.planned.as_deref_mut()?,
    );
    if app.config.compaction.wait.is_zero() || !waits_for_summary(followed, planned) {
        return None;
    }
    if running_job(app, planned).is_some() {
        planned.compaction.settle_order();
    } else if may_begin_summary(followed.session, planned) {
        let source = summary_source(request, &placed.target)?;
        if let Some(job) = begin_summary_before(followed.session, planned, source) {
            app.summary_tasks.spawn(job.run());
        }
    }
    let (job, result) = running_job(app, planned)?;
    Some(SummaryWait { job, result, until })
}

/// Waits, and plans the request again with the outcome.
pub async fn wait_for_summary(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    wait: SummaryWait,
) {
    let Some(outcome) = wait.wait_for_outcome(&request.app).await else {
        return;
    };
    placed.change_plan(request, |followed, planned| {
        plan_with_summary(followed, planned, &outcome)
    });
}

/// The job that the session's state names, where this process remembers the job.
fn running_job(app: &App, planned: &PlannedRequest) -> Option<(JobId, JobResult)> {
    let job = planned.compaction.job_id()?;
    Some((job, app.summary_jobs.find_result(job)?))
}
