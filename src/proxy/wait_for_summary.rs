//! Waiting for a summary: the request itself, or the caution prompt that is due with it.
//!
//! The job runs apart from the request. A request whose wait is over, or whose client leaves, leaves the
//! job running: the next request of the branch takes its outcome over, and the same request sent again
//! waits for the same job.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::{
    App,
    begin_summary::summary_user,
    dispatch::Dispatch,
    generation::{GUARD, Generation},
};
use crate::{
    compaction::{self, BackoffSubject, JobId, JobResult, Outcome, choose_summary_model},
    provider::breaker::State,
    wire::chat::Conversation,
};

/// A request that waits for a job.
pub struct SummaryWait {
    job: JobId,
    result: JobResult,
    until: Instant,
}

impl SummaryWait {
    /// The outcome, if there is one in time. A proxy that shuts down waits for none.
    async fn outcome(self, app: &App) -> Option<Outcome> {
        let end = app.end();
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

impl Dispatch {
    /// Begins the summary that the request is to wait for, or finds the one that is being made; `None`
    /// where the request does not wait.
    pub fn begin_summary_wait(&mut self) -> Option<SummaryWait> {
        let until = Instant::now() + self.app.config.compaction.wait;
        let conversation = self.asked.conversation.as_ref()?;
        let generation = self.generation.as_mut()?;
        if self.app.config.compaction.wait.is_zero() || !generation.wants_summary(conversation) {
            return None;
        }
        if generation.running_job().is_some() {
            generation.compaction.settle_order();
        } else if generation.may_begin_summary() {
            let source = self.summary_source()?;
            let job = self.generation.as_mut()?.begin_summary_first(source);
            if let Some(job) = job {
                self.app.jobs.spawn(job.run());
            }
        }
        let (job, result) = self.generation.as_ref()?.running_job()?;
        Some(SummaryWait { job, result, until })
    }

    /// Waits, and plans the request again with the outcome.
    pub async fn wait_for_summary(&mut self, wait: SummaryWait) {
        let outcome = wait.outcome(&self.app).await;
        if let (Some(generation), Some(conversation), Some(outcome)) =
            (&mut self.generation, &self.asked.conversation, outcome)
        {
            generation.take_over_summary(conversation, &outcome);
        }
    }
}

impl Generation {
    /// The job that the session's state names, where this process remembers the job.
    fn running_job(&self) -> Option<(JobId, JobResult)> {
        let job = self.compaction.job()?;
        Some((job, self.app.summary_jobs.result(job)?))
    }

    /// Whether the request is to wait for a summary: one was ordered from outside, or the request
    /// would be cut anew, or it is past the threshold. For a job that an earlier request stopped
    /// waiting for, only a request that would be cut waits.
    fn wants_summary(&self, conversation: &Conversation) -> bool {
        if !self.guards() || self.recovering.begins_course() {
            return false;
        }
        let is_late = |id| self.app.summary_jobs.is_late(id);
        self.compaction.is_ordered()
            || self.compacts_automatically()
                && (self.is_cut_anew()
                    || self.plan.report.over_budget
                    || !self.compaction.job().is_some_and(is_late)
                        && self.is_past_threshold(self.expected(), conversation))
    }

    /// Whether the guard makes a new cut with this request, beyond the summary: a summary that was
    /// taken over moves the cut as well, but nothing is lost by that.
    fn is_cut_anew(&self) -> bool {
        let cut = self.plan.report.folded.is_some_and(|folded| folded.new);
        cut && self.plan.memory.boundary() > self.compaction.summary_boundary()
    }

    /// Takes over an outcome, and plans again where it is a summary.
    fn take_over_summary(&mut self, conversation: &Conversation, outcome: &Outcome) {
        let _child = self.noted.trace.child(GUARD);
        let begun = Instant::now();
        if self.compaction.take_over(outcome) {
            if self.inherited.state.is_some() {
                let user = summary_user(&self.inherited);
                self.app.summary_jobs.mark_used(&user);
            }
            self.replan(conversation);
        }
        self.guard_took += begun.elapsed();
    }

    /// Since when the caution prompt that is due with this request waits for a summary, in
    /// milliseconds since 1970; `None` where it does not wait. It waits for
    /// `compaction.timeout_ms` at most, in which a summary is made or fails.
    pub(super) fn caution_waits_since(&self, conversation: &Conversation) -> Option<u64> {
        if !self.recovering.caution_is_due() || !self.expects_summary(conversation) {
            return None;
        }
        let state = self.inherited.state.as_ref();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let since = state.and_then(|state| state.caution_waits_since_ms);
        let since = since.unwrap_or(now);
        let most = self.app.config.compaction.timeout.as_millis();
        // A clock that was set back must not prolong the wait.
        (u128::from(now.abs_diff(since)) < most).then_some(since)
    }

    /// Whether a summary was taken over with this request, is being made, or will be begun with it;
    /// only where compaction is on and works. What a summary that was just taken over does to the
    /// level is known after this request's answer.
    fn expects_summary(&self, conversation: &Conversation) -> bool {
        if !self.compacts_automatically() {
            return false;
        }
        if self.compaction.goes_out_first() {
            return true;
        }
        let (app, seed) = (&self.app, self.inherited.session.seed());
        let settings = &app.config.compaction;
        let model = choose_summary_model(&app.registry, settings, &self.target, seed);
        let is_paused = |subject| app.summary_jobs.is_paused(&subject);
        if model.provider.breaker.state(Instant::now()) != State::Closed
            || is_paused(BackoffSubject::of_model(&model))
        {
            return false;
        }
        self.compaction.job().is_some()
            || self.may_begin_summary()
                && !is_paused(summary_user(&self.inherited))
                && self.is_past_threshold(self.expected(), conversation)
                && compaction::due(
                    conversation,
                    &self.policy(),
                    &self.plan.memory,
                    &self.ours(),
                )
                .is_some()
    }
}
