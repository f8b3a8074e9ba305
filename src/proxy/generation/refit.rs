//! A request that turned out too long for the provider, or for the model: fitted anew, or elsewhere.

use std::time::Instant;

use super::{GUARD, Generation, limits, policy, reported, same_model};
use crate::{
    config::UsageMode,
    guard::Plan,
    health::{
        Level,
        silent::{self, Sample},
    },
    provider::{
        Target,
        learnt::{Lesson, Refused},
        overflow::Overflow,
    },
    proxy::request_options::GuardMode,
    relay::Heard,
    wire::chat::Conversation,
};

impl Generation {
    /// Whether the guard may change the request.
    pub fn guards(&self) -> bool {
        self.mode == GuardMode::Guard && self.plan.report.stood_back.is_none()
    }

    /// Tokens expected of the request as it goes out.
    pub fn expected(&self) -> u32 {
        match self.mode {
            GuardMode::Guard => self.plan.report.expected,
            GuardMode::DryRun | GuardMode::Off => self.recall.calibration.tokens(self.raw_sent),
        }
    }

    /// Learns what an overflow says of the model's window. Gives the lesson, and the prompt's tokens
    /// as the provider counted them.
    pub fn learn(&self, overflow: &Overflow) -> (Lesson, Option<u32>) {
        let refused = self.refused(overflow);
        let lesson = self.app.registry.learn(&self.target, &refused);
        let (provider, model) = (&self.target.provider.name, &self.target.model);
        self.app.replica_sync.mark_changed(provider, model);
        (lesson, refused.counted())
    }

    /// The request as it was refused.
    pub fn refused(&self, overflow: &Overflow) -> Refused {
        let reserve = self.plan.report.budget.reserve;
        Refused {
            overflow: *overflow,
            claimed: self.target.window,
            expected: self.expected(),
            answer: self.plan.report.answer_cap.map_or(reserve, |cap| cap.sent),
            reserve,
        }
    }

    /// Whether the answer cap can go below what was sent.
    pub fn may_lower_cap(&self) -> bool {
        let report = &self.plan.report;
        let sent = report.answer_cap.map_or(0, |cap| cap.sent);
        sent > report.budget.reserve
    }

    /// The window is another than was thought: levels go by it from here on.
    pub fn measure_by(&mut self, conversation: &Conversation, target: &Target) {
        self.target = target.clone();
        self.limits = limits(
            conversation,
            &policy(&self.app, target),
            target,
            &self.recall,
        );
    }

    /// Plans for a window that turned out smaller; `target` has it. `counted`: the request as it was
    /// refused, in the provider's tokens. Where that changes nothing, plans without the tools and the
    /// prompt of ours, and then without anything of ours. Returns whether the request, or the answer that it
    /// asks for, got smaller.
    pub fn refit(
        &mut self,
        conversation: &Conversation,
        target: &Target,
        counted: Option<u32>,
    ) -> bool {
        let _child = self.noted.trace.child(GUARD);
        let begun = Instant::now();
        let refused = self.raw_sent;
        let cap = |plan: &Plan| plan.report.answer_cap.map(|cap| cap.sent);
        let asked = cap(&self.plan);
        let is_smaller =
            |it: &Self| it.raw_sent < refused || it.raw_sent == refused && cap(&it.plan) < asked;
        self.measure_by(conversation, target);
        if let Some(counted) = counted {
            let profile = target.provider.config.profile;
            let calibration = self.recall.calibration;
            self.recall.calibration = calibration.learn(refused, counted, profile);
            self.recall.counted = true;
        }
        self.replan(conversation);
        if !is_smaller(self) && self.recovering.withdraw_tools_and_prompt() {
            self.replan(conversation);
        }
        if !is_smaller(self) && self.carries_ours() {
            self.without_ours(conversation);
        }
        self.guard_took += begun.elapsed();
        let smaller = is_smaller(self);
        if smaller {
            self.refitted += 1;
            self.noted.facts().actions = Some(self.actions());
            self.log();
        }
        smaller
    }

    /// What was sent, and what the provider says it read.
    pub(super) fn sample(&self, heard: &Heard) -> Option<Sample> {
        reported(heard).map(|prompt_tokens| Sample {
            raw_sent: self.raw_sent,
            prompt_tokens,
        })
    }

    /// Whether the prompt filled a known window, although the provider took it.
    pub(super) fn overfull(&self, heard: &Heard) -> bool {
        let (Some(tokens), Some(window)) = (reported(heard), self.window()) else {
            return false;
        };
        let completion = heard.usage.and_then(|usage| usage.completion_tokens);
        silent::overfull(tokens, window, completion, heard.cut_off)
    }

    /// Compares the answer with the one before it: whether the provider cuts prompts in silence, or
    /// how much it is known to accept.
    pub(super) fn compare(&mut self, heard: &Heard) {
        let Some(now) = self.sample(heard) else {
            return;
        };
        let (provider, model) = (&self.target.provider.name, &self.target.model);
        let place = &self.target.provider.place;
        let learnt = &self.app.registry.learnt;
        let state = self.inherited.state.as_ref();
        let state = state.filter(|_| same_model(&self.inherited, &self.target));
        let before = state.and_then(|state| state.sample);
        let missed_only = self.target.provider.config.profile.counts_missed_only;
        let Some(cap) = silent::truncates(before, now, missed_only) else {
            learnt.accepted(place, model, now.prompt_tokens, Instant::now());
            return;
        };
        self.cut_in_silence = true;
        learnt.truncated(place, model, cap, Instant::now());
        let truncations = &self.app.metrics.silent_truncations;
        truncations.with_label_values(&[&**provider]).inc();
        self.noted.facts().actions = Some(self.actions());
        tracing::warn!(
            session = %self.inherited.session, provider = &**provider, model = &**model, tokens = cap,
            "a provider cuts prompts in silence; the health is unknown, and prompts are held to what it takes"
        );
    }

    /// Tokens that were left out of the request as it came, where its client is to read them in the
    /// usage: an estimate, in the provider's tokens.
    pub fn left_out(&self) -> Option<u32> {
        let report = &self.plan.report;
        if self.app.config.guard.usage == UsageMode::AsSent || !self.guards() {
            return None;
        }
        let raw = report.raw_before.checked_sub(self.raw_sent)?;
        let sent = self.raw_sent.max(1);
        let tokens = u64::from(raw) * u64::from(report.expected) / u64::from(sent);
        u32::try_from(tokens).ok().filter(|&tokens| tokens > 0)
    }

    /// Whether the request is better off with `larger`: it would be cut here, or soon, or its
    /// session has gone there and is still too long to come back for good.
    pub fn wants_room(&self, larger: &Target) -> bool {
        if self.mode != GuardMode::Guard {
            return false;
        }
        let report = &self.plan.report;
        let cut = report.folded.is_some() || report.over_budget || report.course.is_some();
        let critical = |state: &crate::session::State| {
            state.health == Level::Critical && same_model(&self.inherited, &self.target)
        };
        let gone = |state: &crate::session::State| {
            let half = self.target.window.tokens / 2;
            same_model(&self.inherited, larger)
                && state.prompt_tokens.is_some_and(|tokens| tokens > half)
        };
        let state = self.inherited.state.as_ref();
        cut || state.is_some_and(|state| critical(state) || gone(state))
    }
}
