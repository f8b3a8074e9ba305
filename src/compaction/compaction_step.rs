//! The state of compaction while one request is served.

use super::{CompactionMemory, JobId, JobOutcome, PendingJob};
use crate::store::StateKey;

/// What compaction does in one request, and what it remembers afterwards.
#[derive(Clone, Debug)]
pub struct CompactionStep {
    /// Of the session, as this request leaves it.
    pub memory: CompactionMemory,
    /// Generations of the session, this one included.
    pub generations: u32,
    /// Names the request. `None` where no summary may be begun: the request belongs to no
    /// conversation, or the store did not say whether the conversation has a summary.
    pub key: Option<StateKey>,
    /// The guard may change the request, so that a summary would go out.
    pub guards: bool,
    /// Summaries are made without an order.
    pub auto: bool,
    /// A summary was ordered from outside; [`Memory::ordered`] becomes this when the order is settled.
    pub ordered: Option<u32>,
    /// The summary of the session goes out with this request for the first time.
    pub fresh: bool,
    /// The request goes out without the summary of the session.
    pub left_out: bool,
}

impl CompactionStep {
    /// What is remembered after the generation. A job that is being made settles an order.
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

    /// Whether a summary is ordered from outside, and not begun yet.
    pub const fn is_ordered(&self) -> bool {
        self.ordered.is_some() && self.guards
    }

    /// Whether a summary may be begun with this request. `auto`: also without an order.
    pub fn may_begin(&self, auto: bool) -> bool {
        let free = match self.is_ordered() {
            true => self.memory.job.is_none(),
            false => auto && self.memory.may_ask(self.generations),
        };
        free && self.key.is_some()
    }

    /// A job is being made from now on, which settles an order.
    pub fn set_job(&mut self, id: JobId) {
        self.memory.job = Some(PendingJob {
            id,
            since: self.generations,
        });
        self.settle_order();
    }

    /// The order was carried out, or comes to nothing.
    pub fn settle_order(&mut self) {
        if let Some(ordered) = self.ordered.take() {
            self.memory.ordered = ordered;
        }
    }

    /// The job of an earlier try of this request has failed.
    pub fn record_failure(&mut self) {
        self.memory.record_failure(self.generations);
        self.settle_order();
    }

    /// Takes over the outcome of the session's job. Whether there is a new summary to go out.
    pub fn take_over(&mut self, outcome: &JobOutcome) -> bool {
        let made = self.memory.made;
        let outcomes = std::slice::from_ref(outcome);
        self.memory.take_over(outcomes, self.generations);
        let new = self.memory.made > made;
        self.fresh |= new;
        new
    }

    /// Whether the summary goes out for the first time.
    pub const fn goes_out_first(&self) -> bool {
        self.fresh && self.guards && !self.left_out && self.memory.summary.is_some()
    }

    /// The end of the part that the request's summary replaces, counted as
    /// [`Summary::boundary`](crate::guard::record::Summary::boundary) is.
    pub fn summary_boundary(&self) -> Option<u32> {
        let summary = self.memory.summary.as_ref().filter(|_| !self.left_out);
        summary.map(|summary| summary.boundary)
    }

    /// What the client is told was done.
    pub fn list_actions(&self) -> impl Iterator<Item = &'static str> + use<> {
        let compacted = self.goes_out_first().then_some("compacted");
        let compacting = self.memory.job.map(|_| "compacting");
        compacted.into_iter().chain(compacting)
    }
}
