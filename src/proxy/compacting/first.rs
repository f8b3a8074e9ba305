//! Waiting within a request for its summary, where it is past the threshold or would be cut.
//!
//! The summary is made by a job like any other, apart from the request. So a request whose wait is
//! over, or whose client leaves, leaves it running: the next request of the branch takes it over, and
//! the same request sent again waits for the same job.

use std::time::Instant;

use super::Result;
use crate::{
    compaction::{JobId, Outcome},
    proxy::{App, dispatch::Dispatch},
};

/// A request that waits for its summary.
pub struct Waiting {
    job: JobId,
    result: Result,
    until: Instant,
}

impl Waiting {
    /// What came of it in time, if anything. A proxy on its way out waits for none.
    async fn outcome(mut self, app: &App) -> Option<Outcome> {
        let there = self.result.wait_for(Option::is_some);
        let found = tokio::time::timeout_at(self.until.into(), there);
        let end = app.end();
        tokio::select! {
            found = found => match found {
                Ok(there) => there.ok()?.clone(),
                Err(_) => {
                    app.compacting.mark_late(self.job);
                    None
                }
            },
            () = end.cancelled() => None,
        }
    }
}

impl Dispatch {
    /// Begins the summary that the request is to wait for, or finds the one that is in the making;
    /// `None` where it does not wait for any.
    pub fn summary_first(&mut self) -> Option<Waiting> {
        let wait = self.app.config.compaction.wait;
        let conversation = self.asked.conversation.as_ref()?;
        if wait.is_zero() || !self.generation.as_ref()?.waits(conversation) {
            return None;
        }
        let until = Instant::now() + wait;
        let generation = self.generation.as_mut()?;
        if let Some((job, result)) = generation.in_the_making() {
            // That is the one that was asked for.
            generation.compaction.carried();
            return Some(Waiting { job, result, until });
        }
        if !generation.compaction.may_begin() {
            return None;
        }
        let kept = self.kept()?;
        let generation = self.generation.as_mut()?;
        let job = generation.begin_first(kept);
        let (id, result) = generation.in_the_making()?;
        if let Some(job) = job {
            job.start(&self.app);
        }
        Some(Waiting {
            job: id,
            result,
            until,
        })
    }

    /// Waits, and plans the request again with what came of it.
    pub async fn wait(&mut self, waiting: Waiting) {
        let outcome = waiting.outcome(&self.app).await;
        if let (Some(generation), Some(conversation), Some(outcome)) =
            (&mut self.generation, &self.asked.conversation, outcome)
        {
            generation.waited(conversation, &outcome);
        }
    }
}
