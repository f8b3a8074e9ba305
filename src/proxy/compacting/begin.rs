//! Whether a summary is begun with a generation, before it is sent or after its answer.

use std::time::Instant;

use super::{Begun, Job, Kept, Result, vain::Whose, who::Who};
use crate::{
    compaction::{self, JobId, Outcome},
    guard::{
        self, Policy, Recall,
        estimate::{Calibration, SLOPES},
        record::Ours,
    },
    proxy::generation::{GUARD, Generation, reported},
    relay::Heard,
    wire::{chat::Conversation, edit::Edits},
};

impl Generation {
    /// Whether a summary may come of this request once its answer is there, so that its body is to
    /// be kept. The estimate may be far off; beyond that no answer passes the threshold.
    pub fn may_compact(&self) -> bool {
        let ordered = self.compaction.is_ordered();
        let near = self.expected() >= self.threshold() / 2;
        self.guards() && self.compaction.may_begin() && (ordered || near)
    }

    fn threshold(&self) -> u32 {
        compaction::threshold(&self.plan.report.budget, &self.app.config.compaction)
    }

    /// Begins a summary after an answer, where that is due: the job is to be started once the state
    /// that names it is stored.
    pub(in crate::proxy) fn begin_after(
        &mut self,
        heard: &Heard,
        kept: Option<Kept>,
    ) -> Option<Job> {
        let kept = kept.filter(|_| self.compaction.may_begin());
        let due = |kept: &Kept| self.compaction.is_ordered() || self.passes(heard, kept);
        let kept = kept.filter(due);
        let begins = kept.is_some();
        let job = kept.and_then(|kept| {
            let sent = (self.edits(), self.plan.memory.clone());
            self.begin(kept, sent)
        });
        // The same request had one before, which may be over; or it was waited for too short, and
        // there was no session yet that it could be left beside.
        if begins || self.inherited.state.is_none() {
            let there = self.in_the_making();
            let there = there.and_then(|(_, result)| result.borrow().clone());
            if let Some(outcome) = there {
                self.compaction.take_over(&outcome);
            }
        }
        job
    }

    /// Whether the request and its answer are past the threshold together: that is what the next
    /// request begins with. By the provider's own count; where it reports none, by the estimate of
    /// what was sent.
    fn passes(&self, heard: &Heard, kept: &Kept) -> bool {
        // What was counted is not what was sent.
        if self.cut_in_silence {
            return false;
        }
        let prompt = reported(heard).unwrap_or_else(|| self.expected());
        let answer = heard.usage.and_then(|usage| usage.completion_tokens);
        let tokens = prompt.saturating_add(answer.unwrap_or(0));
        self.is_past_threshold(tokens, &kept.conversation)
    }

    /// Whether so many tokens of this conversation are past the threshold. Old tool rounds that can
    /// be cleared come first: what goes with them needs no summary.
    pub(super) fn is_past_threshold(&self, tokens: u32, conversation: &Conversation) -> bool {
        let past = |tokens: u32| tokens >= self.threshold();
        past(tokens) && past(tokens.saturating_sub(self.clearable(conversation)))
    }

    /// Tokens that clearing would free of the conversation as it went out.
    fn clearable(&self, conversation: &Conversation) -> u32 {
        let mut settings = self.app.config.guard.clone();
        settings.clear.at = 0.0;
        let policy = Policy {
            settings: &settings,
            ..self.policy()
        };
        let recall = Recall {
            memory: self.plan.memory.clone(),
            ours: self.ours(),
            ..self.recall.clone()
        };
        let cleared = guard::plan(conversation, &policy, &recall).report.raw_after;
        let freed = self.plan.report.raw_after.saturating_sub(cleared);
        (f64::from(freed) * self.recall.calibration.slope()) as u32
    }

    /// Whether the request is to wait for a summary: one was asked for from outside, or it would be
    /// cut anew, or it is past the threshold as it would go out. A summary that another request
    /// waited for in vain is worth a second wait only where the request would be cut.
    pub(super) fn waits(&self, conversation: &Conversation) -> bool {
        if !self.guards() || self.recovering.begins_course() {
            return false;
        }
        let cut = self.is_cut_anew() || self.plan.report.over_budget;
        let late = || {
            let job = self.compaction.job();
            job.is_some_and(|id| self.app.compacting.is_late(id))
        };
        let due = || !late() && self.is_past_threshold(self.expected(), conversation);
        self.compaction.is_ordered() || (self.compaction.is_on() && (cut || due()))
    }

    /// Whether the guard makes a new cut of its own with this request. A summary that was taken over
    /// moves the cut as well, but nothing is lost by that: only a cut beyond the summary counts.
    fn is_cut_anew(&self) -> bool {
        let cut = self.plan.report.folded.is_some_and(|folded| folded.new);
        cut && self.plan.memory.boundary() > self.compaction.carried_boundary()
    }

    /// The job of this branch, where this process runs it.
    pub(super) fn in_the_making(&self) -> Option<(JobId, Result)> {
        let job = self.compaction.job()?;
        Some((job, self.app.compacting.result(job)?))
    }

    /// Begins a summary of a request that was not sent yet. It is of the conversation as it would go
    /// out uncut: what a cut takes away is what it is to tell of.
    pub(super) fn begin_first(&mut self, kept: Kept) -> Option<Job> {
        let uncut = self.uncut(&kept.conversation);
        self.begin(kept, uncut)
    }

    fn uncut(&self, conversation: &Conversation) -> (Edits, guard::Memory) {
        let recall = Recall {
            calibration: Calibration::of_ratio(*SLOPES.start()),
            ours: self.ours(),
            ..self.recall.clone()
        };
        let plan = guard::plan(conversation, &self.policy(), &recall);
        (plan.edits, plan.memory)
    }

    /// With the edits that the conversation goes out with, and what the guard remembers then.
    fn begin(&mut self, kept: Kept, (edits, memory): (Edits, guard::Memory)) -> Option<Job> {
        let key = self.compaction.key()?;
        let ours: Ours = self.ours();
        let Some(due) = compaction::due(&kept.conversation, &self.policy(), &memory, &ours) else {
            if self.compaction.is_ordered() {
                tracing::info!(
                    session = %self.inherited.session,
                    "a summary was asked for, but there is too little to summarise"
                );
            }
            self.compaction.carried();
            return None;
        };
        let app = &self.app;
        let who = Who::of(app, &self.target, self.inherited.session.seed(), &kept);
        if app.compacting.pauses(&who.target) {
            return None;
        }
        let whose = Whose::of(&self.inherited);
        if !self.compaction.is_ordered() && app.compacting.in_vain(whose) {
            return None;
        }
        let most = app.config.compaction.max_running;
        let request = (key, self.inherited.session);
        let ticket = match app.compacting.begin(request, app.sessions.job(), most) {
            Begun::New(ticket) => ticket,
            Begun::Same(id) => {
                self.compaction.begun(id);
                return None;
            }
            Begun::Failed => {
                self.compaction.failed();
                return None;
            }
            Begun::Full => return None,
        };
        app.compacting.unclaimed(whose);
        self.compaction.begun(ticket.id());
        Some(Job {
            ticket,
            kept,
            edits,
            due,
            who,
            language: self.recovering.language(),
            calibration: self.recall.calibration,
            account: self.inherited.lineage.tenant().account(),
            session: self.inherited.session,
            trace: self.noted.trace().clone(),
        })
    }

    /// A summary was waited for: plans with it, where there is one.
    pub(super) fn waited(&mut self, conversation: &Conversation, outcome: &Outcome) {
        let _child = self.noted.trace().child(GUARD);
        let begun = Instant::now();
        if self.compaction.take_over(outcome) {
            let followed = self.inherited.state.is_some();
            if followed {
                self.app.compacting.claimed(Whose::of(&self.inherited));
            }
            self.replan(conversation);
        }
        self.guard_took += begun.elapsed();
    }
}
