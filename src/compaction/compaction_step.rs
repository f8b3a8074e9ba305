//! The state of compaction while one request is served.

use super::{CompactionMemory, JobId, JobOutcome, PendingJob};
use crate::{
    conversation::Format,
    guard::{NewSummary, injections::Summary},
    store::StateKey,
};

/// What compaction does in one request, and its part of the next state.
#[derive(Clone, Debug)]
pub struct CompactionStep {
    /// The memory of the session, with the changes of this request.
    pub memory: CompactionMemory,
    /// Generations of the session, this one included.
    pub generations: u32,
    /// The key of the request. `None` if no summary may begin: the request belongs to no conversation, or the store
    /// failed, so that it is unknown whether the conversation has a summary.
    pub key: Option<StateKey>,
    /// The guard may change the request, so a summary would be sent.
    pub guards: bool,
    /// Summaries may begin without a command.
    pub auto: bool,
    /// An API command asks for a summary. Once the command is carried out, [`CompactionMemory::ordered`] has this
    /// value.
    pub ordered: Option<u32>,
    /// This request is the first with the session's summary.
    pub fresh: bool,
    /// The summary before, if this request is the first with another one.
    pub summary_before: Option<Summary>,
    /// The request is sent without the session's summary.
    pub left_out: bool,
}

impl CompactionStep {
    /// The memory after the generation. A running job completes a command.
    pub fn memory_after(&self) -> CompactionMemory {
        let mut memory = self.memory.clone();
        if let Some(ordered) = self.ordered.filter(|_| self.guards && memory.job.is_some()) {
            memory.ordered = ordered;
        }
        memory
    }

    pub fn job_id(&self) -> Option<JobId> {
        self.memory.job.map(|job| job.id)
    }

    /// The job that this request has begun or joined.
    pub fn new_job(&self) -> Option<JobId> {
        let job = self.memory.job?;
        (job.since == self.generations).then_some(job.id)
    }

    /// Whether an API command asks for a summary that has not begun.
    pub const fn is_ordered(&self) -> bool {
        self.ordered.is_some() && self.guards
    }

    /// Whether a summary may begin with this request; with `auto` also without a command.
    pub fn may_begin(&self, auto: bool) -> bool {
        let free = if self.is_ordered() {
            self.memory.job.is_none()
        } else {
            auto && self.memory.may_begin(self.generations)
        };
        free && self.key.is_some()
    }

    /// Orders a summary of the whole conversation, for a client that compacts it. The session's memory does not change.
    pub fn order_whole_summary(&mut self, key: StateKey) {
        *self = Self {
            memory: CompactionMemory::default(),
            key: Some(key),
            guards: true,
            ordered: Some(0),
            ..self.clone()
        };
    }

    /// Whether the client, the session or the settings want summaries.
    pub const fn is_wanted(&self) -> bool {
        self.auto || self.ordered.is_some()
    }

    /// Records a running job, which completes a command.
    pub fn set_job(&mut self, id: JobId) {
        self.memory.job = Some(PendingJob {
            id,
            since: self.generations,
        });
        self.settle_order();
    }

    /// Completes a command, whether or not it led to a summary.
    pub fn settle_order(&mut self) {
        if let Some(ordered) = self.ordered.take() {
            self.memory.ordered = ordered;
        }
    }

    /// Records that the job of an earlier try of this request failed.
    pub fn record_failure(&mut self) {
        self.memory.record_failure(self.generations);
        self.settle_order();
    }

    /// Takes over the outcome of the session's job; returns whether it has a new summary.
    pub fn take_over(&mut self, outcome: &JobOutcome) -> bool {
        let (made, before) = (self.memory.made, self.memory.summary.clone());
        let outcomes = std::slice::from_ref(outcome);
        self.memory.take_over(outcomes, self.generations);
        let new = self.memory.made > made;
        if new {
            (self.fresh, self.summary_before) = (true, before);
        }
        new
    }

    /// The summary that this request is the first to have.
    pub fn new_summary(&self) -> Option<NewSummary> {
        self.fresh.then(|| NewSummary {
            before: self.summary_before.clone(),
        })
    }

    /// Replaces the provider's own summary in the session's memory by its text, since its block cannot be sent back as it
    /// came.
    pub fn write_out_summary(&mut self, format: Format) {
        let summary = self.memory.summary.take();
        self.memory.summary = summary.map(|summary| summary.write_out(format));
    }

    /// Whether the summary is sent for the first time.
    pub const fn goes_out_first(&self) -> bool {
        self.fresh && self.guards && !self.left_out && self.memory.summary.is_some()
    }

    /// The end of the part that the request's summary replaces, counted as
    /// [`Summary::boundary`](crate::guard::injections::Summary::boundary) is.
    pub fn summary_boundary(&self) -> Option<u32> {
        let summary = self.memory.summary.as_ref().filter(|_| !self.left_out);
        summary.map(|summary| summary.boundary)
    }

    /// Words for the response header of the proxy's actions.
    pub fn list_actions(&self) -> impl Iterator<Item = &'static str> + use<> {
        let compacted = self.goes_out_first().then_some("compacted");
        let compacting = self.memory.job.map(|_| "compacting");
        compacted.into_iter().chain(compacting)
    }
}
