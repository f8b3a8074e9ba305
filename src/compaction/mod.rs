//! Compaction: the older part of a conversation is summarised by a model, after the answer was
//! delivered, and the summary becomes the preface of the fold.
//!
//! [`due`] decides, [`SummaryJob`] asks the summary model, and [`Work`] writes its requests and judges
//! its answers. A summary is made once for a branch of a conversation: the state of the generation that
//! began it names its [`PendingJob`], every later generation inherits that, and the [`Outcome`] is
//! stored beside the session until the next request of the branch takes it over. When a request begins
//! or waits for a summary is decided by the steps of the exchange, which also send and store.
//!
//! A conversation that was edited before that generation inherits another state, and so another summary or none. A
//! job that is lost with its process is given up after [`LOST_AFTER`] generations. A later summary folds the
//! earlier one in.

mod compaction_step;
mod job;
mod jobs;
mod parse_summary;
mod prompt;
mod shorten;
mod summary_backoff;
mod summary_model;
mod summary_range;
mod summary_request;
mod summary_work;
mod transcript;

use serde::{Deserialize, Serialize};

pub use self::{
    compaction_step::CompactionStep,
    job::{SummaryClient, SummaryJob},
    jobs::{JobRequest, JobResult, JobStart, JobTicket, SummaryJobs},
    parse_summary::SummaryRejection,
    summary_backoff::BackoffSubject,
    summary_model::choose_summary_model,
    summary_range::{SummaryRange, compute_threshold, find_summary_range},
    summary_work::{Summariser, SummaryProgress, SummaryWork},
};
use crate::guard::injections::Summary;

/// The sections of a summary, by their tags.
const SECTIONS: [&str; 6] = [
    "done",
    "to_do",
    "current_state",
    "key_context",
    "next_steps",
    "cautions",
];

/// Names a summary that is being made; random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobId([u8; 8]);

impl JobId {
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

/// A summary that is being made, or was asked for and never came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingJob {
    pub id: JobId,
    /// The generation that asked for it.
    pub since: u32,
}

/// What compaction remembers of a session, along one branch of its conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionMemory {
    /// In use since the request that took it over.
    pub summary: Option<Summary>,
    pub job: Option<PendingJob>,
    /// Summaries taken over so far.
    pub made: u32,
    /// In a row, without one that was taken over.
    pub failures: u32,
    /// Nothing is asked for before this generation.
    pub not_before: u32,
    /// Summaries asked for from outside that were begun.
    pub ordered: u32,
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutcome {
    pub job: JobId,
    /// `None`: it failed.
    pub summary: Option<Summary>,
}

/// Generations after which a job without an outcome is taken for lost.
pub const LOST_AFTER: u32 = 8;
/// Generations before the first try after a failure; doubled with each further one.
const FIRST_BACK_OFF: u32 = 8;
/// The longest of these waits; generations.
const LONGEST_BACK_OFF: u32 = 256;

impl CompactionMemory {
    /// Takes over what became of its job, if that is among the outcomes; `generations`: so many
    /// were there by now.
    pub fn take_over(&mut self, outcomes: &[JobOutcome], generations: u32) {
        let Some(job) = self.job else { return };
        let outcome = outcomes.iter().find(|outcome| outcome.job == job.id);
        let lost = generations >= job.since.saturating_add(LOST_AFTER);
        match outcome {
            Some(JobOutcome {
                summary: Some(summary),
                ..
            }) => {
                self.summary = Some(summary.clone());
                self.made = self.made.saturating_add(1);
                self.failures = 0;
            }
            Some(_) => self.record_failure(generations),
            None if lost => self.record_failure(generations),
            None => return,
        }
        self.job = None;
    }

    /// A summary failed: the next one is not asked for soon.
    pub fn record_failure(&mut self, generations: u32) {
        let wait = FIRST_BACK_OFF
            .checked_shl(self.failures.min(16))
            .unwrap_or(LONGEST_BACK_OFF);
        self.failures = self.failures.saturating_add(1);
        self.not_before = generations.saturating_add(wait.min(LONGEST_BACK_OFF));
    }

    /// Whether one may be asked for after so many generations.
    pub const fn may_ask(&self, generations: u32) -> bool {
        self.job.is_none() && generations >= self.not_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u8, since: u32) -> PendingJob {
        PendingJob {
            id: JobId::from_bytes([id; 8]),
            since,
        }
    }

    fn outcome(id: u8, text: Option<&str>) -> JobOutcome {
        JobOutcome {
            job: JobId::from_bytes([id; 8]),
            summary: text.map(|text| Summary {
                boundary: 7,
                text: text.into(),
            }),
        }
    }

    #[test]
    fn a_summary_is_taken_over_once_and_by_its_own_branch() {
        let mut memory = CompactionMemory {
            job: Some(job(1, 3)),
            failures: 2,
            ..CompactionMemory::default()
        };
        memory.take_over(&[outcome(2, Some("another's"))], 4);
        assert_eq!(memory.summary, None);
        memory.take_over(&[outcome(2, None), outcome(1, Some("s"))], 4);
        assert_eq!(memory.summary.as_ref().map(|it| &*it.text), Some("s"));
        assert_eq!((memory.job, memory.made, memory.failures), (None, 1, 0));
        memory.take_over(&[outcome(1, Some("again"))], 5);
        assert_eq!(memory.made, 1);
    }

    #[test]
    fn failures_wait_longer_each_time() {
        let mut memory = CompactionMemory::default();
        let (mut asked, mut generations) = (0, 0);
        while generations < 500 {
            if memory.may_ask(generations) {
                asked += 1;
                memory.job = Some(job(1, generations));
                memory.take_over(&[outcome(1, None)], generations + 1);
            }
            generations += 1;
        }
        assert!((4..=8).contains(&asked), "{asked}");
    }

    #[test]
    fn a_job_that_never_comes_back_is_given_up() {
        let mut memory = CompactionMemory {
            job: Some(job(1, 10)),
            ..CompactionMemory::default()
        };
        memory.take_over(&[], 10 + LOST_AFTER - 1);
        assert!(memory.job.is_some());
        memory.take_over(&[], 10 + LOST_AFTER);
        assert!(memory.job.is_none() && !memory.may_ask(10 + LOST_AFTER));
    }
}
