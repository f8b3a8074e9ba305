//! The summary jobs of this process: one for each request, however often it is sent.
//!
//! The newest jobs are remembered with their outcomes, so that a request that is sent again begins no second job.
//! Requests wait for the [`JobResult`] of a job.
//!
//! `compaction.max_running` bounds the running jobs. There is no queue, since the next answer of the
//! conversation tries again.

use std::{collections::HashSet, num::NonZeroUsize, sync::Arc, time::Instant};

use parking_lot::Mutex;

use futures_util::{FutureExt, future::Shared};
use lru::LruCache;
use tokio::sync::oneshot;

use super::{
    JobId, JobOutcome,
    summary_backoff::{BackoffSubject, SummaryBackoff},
};
use crate::{
    guard::injections::Summary, provider::Target, store::StateKey, telemetry::metrics::Metrics,
};

/// Remembered jobs, running and ended.
const MAX_JOBS: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");
/// Requests that may store the outcome of one job.
const MAX_FOLLOWERS: usize = 16;
/// Most models whose unknown window is logged, each once.
const MAX_WARNED: usize = 1_024;

/// Resolves to the outcome of a job, or to an error if the job ended without one.
pub type JobResult = Shared<oneshot::Receiver<JobOutcome>>;

/// The jobs of this process; they outlive a reload of the settings.
#[derive(Debug)]
pub struct SummaryJobs {
    state: Mutex<JobsState>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct JobsState {
    /// By the key of the request that began the job.
    jobs: LruCache<StateKey, JobEntry>,
    backoff: SummaryBackoff,
    /// Jobs that have not ended.
    running: usize,
    /// Models whose unknown window was logged.
    warned: HashSet<String>,
}

#[derive(Debug)]
struct JobEntry {
    id: JobId,
    result: JobResult,
    followers: usize,
    /// A request stopped waiting for the job before it ended.
    late: bool,
    cost: SummaryCost,
}

/// The tokens of all calls for a summary so far, as their provider reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryCost {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

/// A request that needs a summary.
pub struct JobRequest {
    /// Key of the request; retries of a request have the same key and share a job.
    pub key: StateKey,
    /// The id of the job, if this request begins it.
    pub id: JobId,
    /// The summary model.
    pub model: BackoffSubject,
    /// The session or account that uses the summary.
    pub user: BackoffSubject,
    /// An API command asks for the summary, so even a paused user gets it.
    pub ordered: bool,
    /// Jobs that may run at a time.
    pub max_running: usize,
}

/// The reply to a [`JobRequest`].
pub enum JobStart {
    /// A new job, to be run.
    New(JobTicket),
    /// An earlier try of the request began this job.
    Joined(JobId),
    /// An earlier try of the request began a job that failed.
    Failed,
    /// Too many jobs run, or the model or the user is paused.
    Skipped,
}

/// The right to run a job. If it is dropped before `JobTicket::deliver_outcome`, the job ends
/// without an outcome and its request may begin another.
#[derive(Debug)]
pub struct JobTicket {
    pub id: JobId,
    sender: Option<oneshot::Sender<JobOutcome>>,
    /// Label of the outcome in the metrics.
    end: &'static str,
    jobs: Arc<SummaryJobs>,
}

impl SummaryJobs {
    pub fn new(metrics: &Arc<Metrics>) -> Self {
        Self {
            state: Mutex::new(JobsState {
                jobs: LruCache::new(MAX_JOBS),
                backoff: SummaryBackoff::default(),
                running: 0,
                warned: HashSet::new(),
            }),
            metrics: Arc::clone(metrics),
        }
    }

    /// Begins a job, or finds the one of an earlier try of the request.
    pub fn begin_job(self: &Arc<Self>, request: JobRequest) -> JobStart {
        let mut state = self.state.lock();
        if let Some(job) = state.jobs.get(&request.key) {
            match job.result.clone().now_or_never() {
                Some(Ok(outcome)) if outcome.summary.is_none() => return JobStart::Failed,
                Some(Ok(_)) | None => return JobStart::Joined(job.id),
                Some(Err(_)) => {}
            }
        }
        let now = Instant::now();
        let paused = state.backoff.is_paused(&request.model, now)
            || (!request.ordered && state.backoff.is_paused(&request.user, now));
        if paused || state.running >= request.max_running {
            self.count_end("skipped");
            return JobStart::Skipped;
        }
        state.backoff.begin_try(&request.model, now);
        state.backoff.count_failure(request.user, now);
        state.running += 1;
        self.metrics.summaries_running.inc();
        let (sender, result) = oneshot::channel();
        let job = JobEntry {
            id: request.id,
            result: result.shared(),
            followers: 0,
            late: false,
            cost: SummaryCost::default(),
        };
        state.jobs.put(request.key, job);
        JobStart::New(JobTicket {
            id: request.id,
            sender: Some(sender),
            end: "skipped",
            jobs: Arc::clone(self),
        })
    }

    /// The result of a job, if this process remembers the job.
    pub fn find_result(&self, id: JobId) -> Option<JobResult> {
        self.with_job(id, |job| job.result.clone())
    }

    /// The result for a request that stores the outcome; `None` if `MAX_FOLLOWERS` other requests store it.
    pub fn follow_job(&self, id: JobId) -> Option<JobResult> {
        self.with_job(id, |job| {
            job.followers += 1;
            (job.followers <= MAX_FOLLOWERS).then(|| job.result.clone())
        })?
    }

    /// Whether a request stopped waiting for the job before it ended.
    pub fn is_late(&self, id: JobId) -> bool {
        self.with_job(id, |job| job.late).unwrap_or(false)
    }

    pub fn mark_late(&self, id: JobId) {
        self.with_job(id, |job| job.late = true);
    }

    /// What an ended job has cost; nothing if this process does not remember the job.
    pub fn find_cost(&self, id: JobId) -> SummaryCost {
        self.with_job(id, |job| job.cost).unwrap_or_default()
    }

    fn with_job<T>(&self, id: JobId, read: impl FnOnce(&mut JobEntry) -> T) -> Option<T> {
        let mut state = self.state.lock();
        let mut jobs = state.jobs.iter_mut();
        jobs.find(|(_, job)| job.id == id).map(|(_, job)| read(job))
    }

    /// Whether the subject gets no summaries for now.
    pub fn is_paused(&self, subject: &BackoffSubject) -> bool {
        self.state.lock().backoff.is_paused(subject, Instant::now())
    }

    /// Ends the pause of a subject, since one of its requests used a summary.
    pub fn mark_used(&self, subject: &BackoffSubject) {
        self.state.lock().backoff.reset(subject);
    }

    /// Logs once per model that its unknown window prevents summaries.
    pub fn warn_unknown_window(&self, target: &Target) {
        let id = target.id();
        let mut state = self.state.lock();
        if state.warned.len() < MAX_WARNED && state.warned.insert(id.clone()) {
            tracing::warn!(
                "conversations of {id:?} are not summarised automatically: the window of the model is \
                 unknown; set context_length in [models.{id:?}]"
            );
        }
    }

    fn count_end(&self, outcome: &'static str) {
        self.metrics.summaries.with_label_values(&[outcome]).inc();
    }
}

impl JobTicket {
    /// From now on a dropped ticket counts as `stopped` instead of `skipped`.
    pub(super) const fn mark_started(&mut self) {
        self.end = "stopped";
    }

    /// Reports a success or failure of the summary model to its back-off.
    pub(super) fn record_model(&self, model: BackoffSubject, succeeded: bool) {
        let backoff = &mut self.jobs.state.lock().backoff;
        if succeeded {
            backoff.reset(&model)
        } else {
            backoff.count_failure(model, Instant::now())
        }
    }

    pub(super) fn count_tokens(&self, cost: SummaryCost) {
        self.jobs.with_job(self.id, |job| job.cost = cost);
        let tokens = &self.jobs.metrics.summary_tokens;
        let count = |kind, count| tokens.with_label_values(&[kind]).inc_by(count);
        count("prompt", cost.prompt_tokens);
        count("completion", cost.completion_tokens);
    }

    /// Delivers the outcome to the waiting requests; `end` is its label in the metrics.
    pub(super) fn deliver_outcome(mut self, end: &'static str, summary: Option<Summary>) {
        self.end = end;
        let job = self.id;
        if let Some(sender) = self.sender.take() {
            // Fails if nobody waits.
            let _ = sender.send(JobOutcome { job, summary });
        }
    }
}

impl Drop for JobTicket {
    fn drop(&mut self) {
        let mut state = self.jobs.state.lock();
        state.running = state.running.saturating_sub(1);
        drop(state);
        self.jobs.metrics.summaries_running.dec();
        self.jobs.count_end(self.end);
    }
}

#[cfg(test)]
mod tests;
