//! A request that turned out too long for the provider, or for the model: fitted anew, or elsewhere.

use std::time::Instant;

use super::{Generation, limits, policy, reported, same_model};
use crate::{
    health::{
        Level,
        silent::{self, Sample},
    },
    provider::{
        Target,
        learnt::{Lesson, Refused},
        overflow::Overflow,
    },
    relay::Heard,
    server::wish::Wish,
    wire::chat::Conversation,
};

impl Generation {
    /// Whether the guard may change the request.
    pub fn guards(&self) -> bool {
        self.wish == Wish::Guard && self.plan.report.stood_back.is_none()
    }

    /// Tokens expected of the request as it goes out.
    pub fn expected(&self) -> u32 {
        match self.wish {
            Wish::Guard => self.plan.report.expected,
            Wish::DryRun | Wish::Off => self.recall.calibration.tokens(self.raw_sent),
        }
    }

    /// Learns what an overflow says of the model's window. Gives the lesson, and the prompt's tokens
    /// as the provider counted them.
    pub fn learn(&self, overflow: &Overflow) -> (Lesson, Option<u32>) {
        let refused = Refused {
            overflow: *overflow,
            claimed: self.target.window,
            expected: self.expected(),
            reserve: self.plan.report.budget.reserve,
        };
        let learnt = &self.app.registry.learnt;
        let (provider, model) = (&self.target.provider.name, &self.target.model);
        let lesson = learnt.refused(provider, model, &refused, Instant::now());
        (lesson, refused.counted())
    }

    /// Plans for a window that turned out smaller; `target` has it. `counted`: the request as it was
    /// refused, in the provider's tokens. Where that changes nothing, plans without the tools and the prompt of ours. Returns whether the request got smaller.
    pub fn refit(
        &mut self,
        conversation: &Conversation,
        target: &Target,
        counted: Option<u32>,
    ) -> bool {
        let begun = Instant::now();
        let refused = self.raw_sent;
        self.target = target.clone();
        self.limits = limits(conversation, &policy(&self.app, target), target);
        if let Some(counted) = counted {
            let profile = target.provider.config.profile;
            let calibration = self.recall.calibration;
            self.recall.calibration = calibration.learn(refused, counted, profile);
        }
        self.replan(conversation);
        if self.raw_sent >= refused && self.recovering.lighten() {
            self.replan(conversation);
        }
        self.guard_took += begun.elapsed();
        let smaller = self.raw_sent < refused;
        if smaller {
            self.refitted += 1;
            self.noted.set(self.actions());
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

    /// Compares the answer with the one before it: whether the provider cuts prompts in silence, or
    /// how much it is known to accept.
    pub(super) fn compare(&mut self, heard: &Heard) {
        let Some(now) = self.sample(heard) else {
            return;
        };
        let (provider, model) = (&self.target.provider.name, &self.target.model);
        let learnt = &self.app.registry.learnt;
        let state = self.inherited.state.as_ref();
        let state = state.filter(|_| same_model(&self.inherited, &self.target));
        let before = state.and_then(|state| state.sample);
        let missed_only = self.target.provider.config.profile.counts_missed_only;
        let Some(cap) = silent::truncates(before, now, missed_only) else {
            learnt.accepted(provider, model, now.prompt_tokens, Instant::now());
            return;
        };
        self.cut_in_silence = true;
        learnt.truncated(provider, model, cap, Instant::now());
        self.app.metrics.truncated(provider);
        self.noted.set(self.actions());
        tracing::warn!(
            session = %self.inherited.session, provider = &**provider, model = &**model, tokens = cap,
            "a provider cuts prompts in silence; the health is unknown, and prompts are held to what it takes"
        );
    }

    /// Whether the request is better off with `larger`: it would be cut here, or soon, or its
    /// session has gone there and is still too long to come back for good.
    pub fn wants_room(&self, larger: &Target) -> bool {
        if self.wish != Wish::Guard {
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
