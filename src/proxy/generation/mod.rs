//! One generation, from what is known before it to what is stored after it.
//!
//! Before: the session's state, what recovery has due, the guard's plan. After: the usage becomes
//! a level, the calibration learns, the clock advances, and the new state is stored before the end
//! of the answer is released, other replicas are told what was learnt, and listeners what became of it.
//! Between them there may be rounds that were for us alone, each with a plan of its own. A request that
//! nobody answered, or whose answer broke, changes nothing.

mod refit;
mod replan;
mod seen;
mod tell;

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

pub use self::tell::TRAILERS;
use super::{
    App,
    begin_summary::SummarySource,
    recovery_step::{RecoveryRules, RecoveryStep},
    request_options::{GuardMode, RequestOptions},
};
use crate::{
    compaction::{self, CompactionStep},
    guard::{self, AnswerCap, Plan, Policy, Recall, record::Ours},
    health::{self, Health, Level, limits::Limits},
    provider::Target,
    recovery,
    relay::{Before, Heard, Sifting, Spoken},
    session::{Inherited, Known, State, history::Point},
    telemetry::record::Notes,
    wire::{
        chat::{Conversation, answer_digest},
        edit::Edits,
    },
};

/// What the guard's part of a trace is called.
pub const GUARD: &str = "plimsoll.guard";

/// The end of an answer.
pub struct Ended<'a> {
    pub heard: &'a Heard,
    /// The provider's last answer, where what is ours was taken out of it.
    pub last: &'a Spoken,
    pub before: Before,
    /// Where a summary may come of the request.
    pub kept: Option<SummarySource>,
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
    /// Plans what is done to a request that continues `inherited`.
    pub fn plan(
        app: &Arc<App>,
        conversation: &Conversation,
        inherited: Inherited,
        target: &Target,
        (options, compaction, noted): (RequestOptions, CompactionStep, Notes),
    ) -> Self {
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

    /// How long the end of the answer waits for its state to be stored.
    pub fn store_within(&self) -> Duration {
        self.app.config.store.save_timeout()
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

    fn memory_after(&self, level: Level) -> recovery::Memory {
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

    /// Whether an answer of so many tokens (0: not counted) may have ended at an answer cap that was
    /// lowered. One that ended well before it met a limit of its model. Providers count the last tokens of an
    /// answer in different ways, so a little less than the cap is all of it.
    fn fills_lowered_cap(&self, answer: u32) -> bool {
        let cap = self.plan.report.answer_cap.filter(|cap| cap.is_lowered());
        cap.is_some_and(|cap| answer == 0 || answer >= cap.sent - cap.sent / 64)
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
