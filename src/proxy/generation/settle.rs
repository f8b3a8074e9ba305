//! The end of an answer: the usage becomes a level, the clock advances, and the new state is stored.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Generation, reported};
use crate::{
    health::{Health, Level},
    proxy::{begin_summary::SummarySource, request_options::GuardMode},
    recovery,
    relay::{Before, Heard, Spoken},
    session::{Known, State, history::Point},
    wire::chat::answer_digest,
};

/// The end of an answer.
pub struct Ended<'a> {
    pub heard: &'a Heard,
    /// The provider's last answer, where what is ours was taken out of it.
    pub last: &'a Spoken,
    pub before: Before,
    /// Where a summary may come of the request.
    pub kept: Option<SummarySource>,
}

impl Generation {
    /// The end of an answer: judged and stored, and a summary begun where one is due.
    pub async fn settle(&mut self, ended: Ended<'_>) -> Health {
        let heard = ended.heard;
        self.recovering.finish_answer(ended.last, ended.before);
        self.compare(heard);
        let job = self.begin_summary_after(heard, ended.kept);
        let state = self.state_after(heard);
        let health = state.health();
        let answer = answer_digest(heard.text, &heard.call_ids);
        let app = &self.app;
        if reported(heard).is_some() {
            app.replica_sync
                .mark_changed(&self.target.provider.name, &self.target.model);
        }
        self.note_answer(heard, &health);
        let lineage = &self.inherited.lineage;
        let within = self.store_within();
        let child = self.noted.trace.child("plimsoll.store.save");
        let (stored, ()) = tokio::join!(
            app.sessions.save(lineage, answer, &state, within),
            app.replica_sync.publish(app.learnt_state(), within),
        );
        drop(child);
        if stored {
            self.run_summary(job);
        } else if job.is_some() {
            // No request would find a summary that no state names.
            self.compaction.memory.job = None;
        }
        if stored && app.news.are_heard() {
            let account = self.inherited.lineage.tenant().account();
            let known = Known::after(account, state, &self.inherited.orders);
            app.news.tell(&known);
        }
        health
    }

    fn state_after(&self, heard: &Heard) -> State {
        let usage = heard.usage;
        let reported = reported(heard);
        let mut state = self.inherited.successor();
        let (provider, model) = (&self.target.provider.name, &self.target.model);
        state.calibration = self.recall.calibration;
        if let Some(reported) = reported.filter(|_| !self.cut_in_silence) {
            let profile = self.target.provider.config.profile;
            state.calibration = state.calibration.learn(self.raw_sent, reported, profile);
            if !profile.counts_missed_only {
                let ratios = &self.app.ratios;
                ratios.learn(provider, model, self.raw_sent, reported);
            }
        }
        let level = match self.overfull(heard) {
            true if !self.cut_in_silence => Level::Critical,
            _ => self.judge(reported).level,
        };
        if self.mode == GuardMode::Guard {
            state.guard = self.plan.memory.clone();
        }
        state.recovery = self.memory_after(level);
        state.compaction = self.compaction_after();
        state.caution_waits_since_ms = self.caution_waits_since_ms;
        state.provider = (&**provider).into();
        state.model = model.as_str().into();
        state.window = self.window();
        state.optimal_max_tokens = Some(self.limits.optimal_max_tokens);
        state.critical_max_tokens = self.limits.critical_max_tokens;
        state.sample = self.sample(heard);
        state.prompt_tokens = reported;
        state.completion_tokens = usage.and_then(|usage| usage.completion_tokens);
        let answer = state.completion_tokens.unwrap_or(0);
        state.largest_answer = state.largest_answer.max(answer);
        state.cap_was_hit |=
            heard.cut_off && self.mode == GuardMode::Guard && self.fills_lowered_cap(answer);
        state.cached_tokens = usage.and_then(|usage| usage.cached_tokens);
        let billed = self.recovering.billed_tokens();
        state.billed_prompt_tokens = billed.map_or(reported, |billed| Some(billed.prompt_tokens));
        state.billed_completion_tokens = billed.map_or(state.completion_tokens, |billed| {
            Some(billed.completion_tokens)
        });
        state.health = level;
        state.made_of = self.made_of(&state.calibration);
        state.history.add(Point {
            generation: state.generations,
            prompt_tokens: reported,
            cached_tokens: state.cached_tokens,
            completion_tokens: state.completion_tokens,
            marks: self.marks(),
        });
        state.updated_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        state
    }

    pub(super) fn memory_after(&self, level: Level) -> recovery::Memory {
        if self.mode != GuardMode::Guard {
            return self.recovering.before().clone();
        }
        let report = &self.plan.report;
        let cut = report.folded.is_some_and(|folded| folded.new)
            || report.cleared.as_ref().is_some_and(|cleared| cleared.new)
            || report.texts.cut
            // One that was taken over is a cut, wherever it ends.
            || self.compaction.goes_out_first();
        let until = self.plan.memory.boundary();
        self.recovering.memory_after(level, cut, until)
    }

    /// Whether an answer of so many tokens (0: not counted) may have ended at an answer cap that was
    /// lowered. One that ended well before it met a limit of its model. Providers count the last tokens of an
    /// answer in different ways, so a little less than the cap is all of it.
    fn fills_lowered_cap(&self, answer: u32) -> bool {
        let cap = self.plan.report.answer_cap.filter(|cap| cap.is_lowered());
        cap.is_some_and(|cap| answer == 0 || answer >= cap.sent - cap.sent / 64)
    }
}
