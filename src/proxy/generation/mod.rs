//! One generation, from what is known before it to what is stored after it.
//!
//! Before: the session's state, what recovery has due, the guard's plan. After: the usage becomes
//! a level, the calibration learns, the clock advances, and the new state is stored before the end
//! of the answer is released, other replicas are told what was learnt, and listeners what became of it.
//! Between them there may be rounds that were for us alone, each with a plan of its own. A request that
//! nobody answered, or whose answer broke, changes nothing.

mod generation_stats;
mod plan_log;
mod refit;
mod replan;
mod response_headers;
mod settle;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::{response_headers::TRAILERS, settle::Ended};
use super::{
    App,
    recovery_step::{RecoveryRules, RecoveryStep},
    request_options::{GuardMode, RequestOptions},
};
use crate::{
    compaction::{self, CompactionStep},
    guard::{self, AnswerCap, Plan, Policy, Recall, record::Ours},
    health::{self, Health, Level, limits::Limits},
    provider::Target,
    relay::{Heard, Sifting, Spoken},
    session::Inherited,
    telemetry::record::Notes,
    wire::{chat::Conversation, edit::Edits},
};

/// What the guard's part of a trace is called.
pub const GUARD: &str = "plimsoll.guard";

/// What a request is planned with, beside its conversation and its target.
pub struct PlanInput {
    pub inherited: Inherited,
    pub options: RequestOptions,
    pub compaction: CompactionStep,
    pub notes: Notes,
}

/// One request of a conversation that is followed.
pub struct Generation {
    pub(super) app: Arc<App>,
    pub(super) inherited: Inherited,
    pub(super) target: Target,
    limits: Limits,
    mode: GuardMode,
    /// From before; what is ours apart.
    pub(super) recall: Recall,
    pub(super) recovering: RecoveryStep,
    pub compaction: CompactionStep,
    /// The caution prompt that is due waits for a summary, since then: milliseconds since 1970.
    caution_waits_since_ms: Option<u64>,
    pub(super) plan: Plan,
    /// Raw tokens of the request as it goes out.
    raw_sent: u32,
    pub(super) guard_took: Duration,
    /// Times that the request was fitted anew, because the provider refused it as too long.
    refitted: u32,
    /// The provider was found to cut prompts in silence.
    pub(super) cut_in_silence: bool,
    /// For whoever watches: the log, the metrics, the trace.
    pub(super) noted: Notes,
}

impl Generation {
    /// Plans what is done to a request for `target`.
    pub fn plan(
        app: &Arc<App>,
        conversation: &Conversation,
        target: &Target,
        input: PlanInput,
    ) -> Self {
        let PlanInput {
            inherited,
            options,
            compaction,
            notes: noted,
        } = input;
        let _child = noted.trace.child(GUARD);
        let begun = Instant::now();
        let policy = policy(app, target);
        let recall = recall(app, &inherited, target);
        let settings = &app.config.recovery;
        let rules = RecoveryRules {
            settings,
            other_model: !same_model(&inherited, target),
            pace: settings.pace(&target.settings),
            wanted: settings.acts(&target.settings, None) && options.recovers,
            caution_waits: false,
        };
        let recovering =
            RecoveryStep::begin(conversation, &inherited, &policy, rules, options.mode);
        let mut generation = Self {
            app: Arc::clone(app),
            compaction,
            inherited,
            target: target.clone(),
            limits: limits(conversation, &policy, target, &recall),
            mode: options.mode,
            recall,
            recovering,
            caution_waits_since_ms: None,
            plan: Plan::default(),
            raw_sent: 0,
            guard_took: Duration::ZERO,
            refitted: 0,
            cut_in_silence: false,
            noted: noted.clone(),
        };
        generation.replan(conversation);
        generation.caution_waits_since_ms = generation.caution_waits_since(conversation);
        if generation.caution_waits_since_ms.is_some() {
            let rules = RecoveryRules {
                caution_waits: true,
                ..rules
            };
            let inherited = &generation.inherited;
            generation.recovering =
                RecoveryStep::begin(conversation, inherited, &policy, rules, options.mode);
            generation.replan(conversation);
        }
        generation.guard_took = begun.elapsed();
        generation
    }

    /// The edits to carry out.
    pub fn edits(&self) -> Edits {
        match self.mode {
            GuardMode::Guard => self.plan.edits.clone(),
            GuardMode::DryRun | GuardMode::Off => Edits::default(),
        }
    }

    /// What of ours is to be taken out of the answer.
    pub fn sifting(&self) -> Sifting {
        match self.mode {
            GuardMode::Guard => self.recovering.sifting(),
            GuardMode::DryRun | GuardMode::Off => Sifting::default(),
        }
    }

    /// Whether the request goes out with anything that recovery added.
    pub fn carries_ours(&self) -> bool {
        self.mode == GuardMode::Guard && self.recovering.adds_anything()
    }

    /// Plans without anything of ours, for a provider that refuses it.
    pub fn without_ours(&mut self, conversation: &Conversation) {
        self.recovering.withdraw();
        self.replan(conversation);
    }

    /// Plans without the prompt after a tool result, for a provider that refuses it. Returns whether there was
    /// one that may be the reason.
    pub fn avoid_prompt_after_tool(&mut self, conversation: &Conversation) -> bool {
        let profile = self.target.provider.config.profile;
        let avoids = self
            .recovering
            .avoid_prompt_after_tool(conversation, profile);
        if avoids {
            tracing::warn!(
                session = %self.inherited.session, provider = &*self.target.provider.name, model = self.target.model,
                "a provider refuses a prompt after a tool result; prompts of this session go elsewhere"
            );
            self.replan(conversation);
        }
        avoids
    }

    /// The provider took the request only without what is ours.
    pub fn refused_ours(&mut self) {
        tracing::warn!(
            session = %self.inherited.session, provider = &*self.target.provider.name, model = self.target.model,
            "a provider refuses what recovery adds to a request; this session goes on without recovery"
        );
        self.recovering.mark_refused();
    }

    /// An answer was for us alone: its calls are carried out, and the request that follows is
    /// planned.
    pub fn round(&mut self, conversation: &Conversation, spoken: &Spoken) {
        let _child = self.noted.trace.child(GUARD);
        let begun = Instant::now();
        let policy = policy(&self.app, &self.target);
        self.recovering
            .execute_tool_turn(conversation, &policy, spoken);
        self.replan(conversation);
        self.guard_took += begun.elapsed();
        self.log_round(spoken);
    }

    /// No further round may be made.
    pub const fn exhausted(&self) -> bool {
        self.recovering.is_exhausted()
    }

    /// How long the end of the answer waits for its state to be stored.
    pub fn store_within(&self) -> Duration {
        self.app.config.store.save_timeout()
    }

    /// What of ours the request carries.
    pub(super) fn ours(&self) -> Ours {
        Ours {
            summary: self.compaction_after().summary,
            ..self.recovering.additions()
        }
    }

    /// Whether the request goes out with a lower answer cap than was asked for.
    fn lowers_cap(&self) -> bool {
        let cap = self.plan.report.answer_cap;
        cap.is_some_and(AnswerCap::is_lowered)
    }

    pub(super) fn policy(&self) -> Policy<'_> {
        let policy = policy(&self.app, &self.target);
        Policy {
            profile: self.recovering.profile(policy.profile),
            ..policy
        }
    }

    fn compaction_after(&self) -> compaction::Memory {
        let mut memory = self.compaction.memory_after();
        if self.recovering.begins_course() {
            // What a course leaves out is not told again.
            memory.summary = None;
            memory.job = None;
        }
        memory
    }

    fn judge(&self, reported: Option<u32>) -> Health {
        let mut health = health::judge(reported, self.window(), &self.limits);
        if self.cut_in_silence {
            // What was counted is not what was sent.
            health.level = Level::Unknown;
        }
        health
    }

    /// The window where a source names it.
    fn window(&self) -> Option<u32> {
        self.target.window.known()
    }
}

/// Tokens of the prompt. No prompt has none: servers that do not count report a zero.
pub(super) fn reported(heard: &Heard) -> Option<u32> {
    let tokens = heard.usage.map(|usage| usage.prompt_tokens);
    tokens.filter(|&tokens| tokens > 0)
}

/// The prompt sizes at which the level of this request changes.
fn limits(
    conversation: &Conversation,
    policy: &Policy<'_>,
    target: &Target,
    recall: &Recall,
) -> Limits {
    health::limits::limits(
        target.window.known(),
        target.window.input,
        policy.profile.answer_inside_window,
        policy.settings,
        &target.settings,
        Some(guard::session_budget(conversation, policy, recall).tokens),
    )
}

/// What a request is measured against.
pub fn policy<'a>(app: &'a App, target: &'a Target) -> Policy<'a> {
    Policy {
        profile: target.provider.config.profile,
        window: target.window.tokens,
        input_limit: target.window.input,
        settings: &app.config.guard,
    }
}

/// What is known from before. A calibration is that of a model: another model begins anew.
fn recall(app: &App, inherited: &Inherited, target: &Target) -> Recall {
    let mut recall = inherited.recall();
    if !same_model(inherited, target) {
        recall.calibration = app.ratios.of(&target.provider.name, &target.model);
    }
    recall
}

/// Whether the generation before was of the same model of the same provider.
fn same_model(inherited: &Inherited, target: &Target) -> bool {
    inherited.state.as_ref().is_some_and(|state| {
        *state.model == *target.model && *state.provider == *target.provider.name
    })
}
