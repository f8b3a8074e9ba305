//! Compaction: after an answer, a model summarises the older part of the conversation. The summary becomes the preface
//! of the fold.
//!
//! [`find_summary_range`] picks the part, [`SummaryJob`] asks the summary model, and [`SummaryWork`] writes the job's
//! requests and checks the answers. The steps of the exchange decide when a request begins a summary or waits for one;
//! they also send and store.
//!
//! Each branch of a conversation has one summary job at a time. The state of the generation that began the job names it as
//! [`PendingJob`], and later generations inherit this state. The [`JobOutcome`] is stored with the session until the next
//! request of the branch takes it over. A conversation that was edited before that generation inherits another state, and so
//! another summary or none. A job that was lost with its process is given up after [`LOST_AFTER`] generations. A later
//! summary includes the earlier one.

mod compaction_step;
mod job;
mod jobs;
mod parse_summary;
mod prompt;
mod provider_summary;
mod summary_backoff;
mod summary_model;
mod summary_range;
mod summary_request;
mod summary_work;
mod transcript;

use serde::{Deserialize, Serialize};

pub use self::{
    compaction_step::CompactionStep,
    job::{SummaryAsk, SummaryClient, SummaryJob},
    jobs::{JobRequest, JobResult, JobStart, JobTicket, SummaryCost, SummaryJobs},
    parse_summary::SummaryRejection,
    provider_summary::find_safe_cut,
    summary_backoff::BackoffSubject,
    summary_model::{Summariser, choose_summary_model},
    summary_range::{SummaryRange, compute_threshold, cover_before_last, find_summary_range},
    summary_work::{SummaryProgress, SummaryWork},
};
use crate::guard::injections::Summary;

/// Tags of the sections of a summary.
const SECTIONS: [&str; 6] = [
    "done",
    "to_do",
    "current_state",
    "key_context",
    "next_steps",
    "cautions",
];

/// Random id of a summary job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobId(pub [u8; 8]);

/// A summary that is being made, or whose job was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingJob {
    pub id: JobId,
    /// The generation that began it.
    pub since: u32,
}

/// Compaction's part of a session state, for one branch of the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionMemory {
    /// The summary in use.
    pub summary: Option<Summary>,
    pub job: Option<PendingJob>,
    /// Summaries taken over so far.
    pub made: u32,
    /// Failures since the last summary.
    pub failures: u32,
    /// No summary begins before this generation.
    pub not_before: u32,
    /// Summaries begun by API commands.
    pub ordered: u32,
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutcome {
    pub job: JobId,
    /// `None` if it failed.
    pub summary: Option<Summary>,
}

/// Generations after which a job without an outcome counts as lost.
pub const LOST_AFTER: u32 = 8;
/// Generations between a failure and the next try; doubled with each further failure.
const FIRST_BACK_OFF: u32 = 8;
/// The longest back-off, in generations.
const LONGEST_BACK_OFF: u32 = 256;

impl CompactionMemory {
    /// Takes over the outcome of the pending job, if it is among `outcomes`, or gives up a lost job. `generations` is
    /// the number of generations so far.
    pub fn take_over(&mut self, outcomes: &[JobOutcome], generations: u32) {
        let Some(job) = self.job else { return };
        let outcome = outcomes.iter().find(|outcome| outcome.job == job.id);
        let lost = generations >= job.since.saturating_add(LOST_AFTER);
        if outcome.is_none() && !lost {
            return;
        }
        self.job = None;
        if let Some(summary) = outcome.and_then(|outcome| outcome.summary.clone()) {
            self.summary = Some(summary);
            self.made = self.made.saturating_add(1);
            self.failures = 0;
        } else {
            self.record_failure(generations);
        }
    }

    /// Counts a failure and delays the next summary.
    pub fn record_failure(&mut self, generations: u32) {
        let wait = FIRST_BACK_OFF
            .checked_shl(self.failures.min(16))
            .unwrap_or(LONGEST_BACK_OFF);
        self.failures = self.failures.saturating_add(1);
        self.not_before = generations.saturating_add(wait.min(LONGEST_BACK_OFF));
    }

    /// Whether a summary may begin after `generations` generations.
    pub const fn may_begin(&self, generations: u32) -> bool {
        self.job.is_none() && generations >= self.not_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u8, since: u32) -> PendingJob {
        PendingJob {
            id: JobId([id; 8]),
            since,
        }
    }

    fn outcome(id: u8, text: Option<&str>) -> JobOutcome {
        JobOutcome {
            job: JobId([id; 8]),
            summary: text.map(|text| Summary {
                boundary: 7,
                text: text.into(),
            }),
        }
    }

    #[test]
    fn a_summary_is_taken_over_once_and_by_its_branch() {
        let mut memory = CompactionMemory {
            job: Some(job(1, 3)),
            failures: 2,
            ..CompactionMemory::default()
        };
        memory.take_over(&[outcome(2, Some("of another job"))], 4);
        assert_eq!(memory.summary, None);
        memory.take_over(&[outcome(2, None), outcome(1, Some("s"))], 4);
        assert_eq!(&*memory.summary.as_ref().unwrap().text, "s");
        assert_eq!((memory.job, memory.made, memory.failures), (None, 1, 0));
        memory.take_over(&[outcome(1, Some("again"))], 5);
        assert_eq!(memory.made, 1);
    }

    #[test]
    fn failures_wait_longer_each_time() {
        let mut memory = CompactionMemory::default();
        let mut tries = 0;
        for generations in 0..500 {
            if memory.may_begin(generations) {
                tries += 1;
                memory.job = Some(job(1, generations));
                memory.take_over(&[outcome(1, None)], generations + 1);
            }
        }
        assert!((4..=8).contains(&tries), "{tries}");
    }

    #[test]
    fn a_lost_job_is_given_up() {
        let mut memory = CompactionMemory {
            job: Some(job(1, 10)),
            ..CompactionMemory::default()
        };
        memory.take_over(&[], 10 + LOST_AFTER - 1);
        assert!(memory.job.is_some());
        memory.take_over(&[], 10 + LOST_AFTER);
        assert!(memory.job.is_none() && !memory.may_begin(10 + LOST_AFTER));
    }
}
