//! A request as planned for one provider: its edits, and the memory to store if it is answered.

use std::time::Duration;

use crate::{
    compaction::{self, CompactionStep},
    config::UsageMode,
    conversation::{Conversation, edit::Edits},
    format::beta_header::Beta,
    guard::{AnswerCap, Plan, Policy, SessionKnowledge, StandBackReason, injections::Injections},
    health::limits::HealthLimits,
    provider::{Target, learnt_windows::RefusedPrompt, overflow::Overflow},
    proxy::{App, GuardMode, judged_answer::JudgedAnswer, recovery_step::RecoveryStep},
    relay::AnswerFilter,
    session::ReasoningMemory,
};

/// The word for a request to which nothing was done.
const NO_ACTION: &str = "none";

/// The result of planning. To send another request, the functions of [`super`] make a new plan from it.
#[derive(Clone)]
pub struct PlannedRequest {
    pub target: Target,
    /// The prompt sizes at which the level of the session changes.
    pub limits: HealthLimits,
    pub mode: GuardMode,
    /// The guard's memory of earlier requests, without the proxy's additions.
    pub knowledge: SessionKnowledge,
    pub recovery: RecoveryStep,
    pub compaction: CompactionStep,
    /// Since when a due caution prompt waits for a summary, in milliseconds since 1970.
    pub caution_waits_since_ms: Option<u64>,
    pub reasoning: ReasoningMemory,
    /// When it was sent last: milliseconds since 1970.
    pub asked_ms: u64,
    pub plan: Plan,
    /// Raw tokens of the request as it is sent.
    pub raw_sent: u32,
    pub guard_took: Duration,
    /// Times that the request was fitted anew after an overflow.
    pub refits: u32,
    /// The same after a refusal of bytes or images.
    pub size_refits: u32,
    /// The provider holds messages that the request does not have, so its token counts say nothing about what was sent.
    pub lacks_history: bool,
    /// See [`InheritedSession::edited`](crate::session::InheritedSession::edited).
    pub client_edits: Option<u32>,
}

impl PlannedRequest {
    /// Returns the edits to apply to the request.
    pub fn request_edits(&self) -> Edits {
        match self.mode {
            GuardMode::Guard => self.plan.edits.clone(),
            GuardMode::DryRun | GuardMode::Off => Edits::default(),
        }
    }

    /// Lists the beta features that a request by `plan` must name in its header.
    pub fn list_betas(&self, plan: &Plan) -> Vec<Beta> {
        if self.mode != GuardMode::Guard {
            return Vec::new();
        }
        let tools = self.recovery.format.rules().tools_entry_beta;
        let tools = tools.filter(|_| plan.report.has_tools_entry);
        let summary = plan.report.has_provider_summary.then_some(Beta::Compaction);
        tools.into_iter().chain(summary).collect()
    }

    /// Whether the request is sent with a summary that the provider made.
    pub fn has_provider_summary(&self) -> bool {
        self.mode == GuardMode::Guard && self.plan.report.has_provider_summary
    }

    /// Returns what is taken out of the answer, since the proxy asked for it.
    pub fn answer_filter(&self) -> AnswerFilter {
        match self.mode {
            GuardMode::Guard => self.recovery.answer_filter(),
            GuardMode::DryRun | GuardMode::Off => AnswerFilter::default(),
        }
    }

    /// Whether the guard may change the request.
    pub fn is_guarded(&self) -> bool {
        self.mode == GuardMode::Guard && self.plan.report.stood_back.is_none()
    }

    /// Whether anything of the request may be changed, at least outside the conversation.
    pub fn is_open_to_changes(&self) -> bool {
        let stood_back = self.plan.report.stood_back;
        self.mode == GuardMode::Guard && stood_back != Some(StandBackReason::Disabled)
    }

    /// Whether the request is sent with anything that recovery added.
    pub fn has_additions(&self) -> bool {
        self.mode == GuardMode::Guard && self.recovery.adds_anything()
    }

    /// Collects what the proxy adds to the request.
    pub fn collect_injections(&self, conversation: &Conversation) -> Injections {
        Injections {
            summary: self.compaction_memory().summary,
            ..self.recovery.collect_injections(conversation)
        }
    }

    /// The guard's memory of earlier requests, with what the proxy adds to this one.
    pub fn to_knowledge(&self, conversation: &Conversation) -> SessionKnowledge {
        SessionKnowledge {
            injections: self.collect_injections(conversation),
            ..self.knowledge.clone()
        }
    }

    /// Returns what the session remembers of compaction after this request.
    pub fn compaction_memory(&self) -> compaction::CompactionMemory {
        let mut memory = self.compaction.memory_after();
        if self.recovery.begins_course() {
            // A new course leaves out what the summary is about.
            memory.summary = None;
            memory.job = None;
        }
        memory
    }

    /// The policy for this request, with the placement of prompts that its provider accepts.
    pub fn build_policy<'a>(&'a self, app: &'a App) -> Policy<'a> {
        let policy = session_policy(app, &self.target, self.reasoning);
        Policy {
            profile: self.recovery.prompt_profile(policy.profile),
            ..policy
        }
    }

    /// Tokens that the provider is expected to count in the request as it is sent.
    pub fn expected_tokens(&self) -> u32 {
        match self.mode {
            GuardMode::Guard => self.plan.report.expected,
            _ => self.knowledge.calibration.to_expected_tokens(self.raw_sent),
        }
    }

    /// Whether the request is sent with a lower answer cap than the client's.
    pub fn lowers_cap(&self) -> bool {
        let cap = self.plan.report.answer_cap;
        cap.is_some_and(AnswerCap::is_lowered)
    }

    /// Whether the answer cap can go below the one that was sent.
    pub fn may_lower_cap(&self) -> bool {
        let report = &self.plan.report;
        let sent = report.answer_cap.map_or(0, |cap| cap.sent);
        sent > report.budget.reserve
    }

    /// Describes the request as a provider refused it.
    pub fn describe_refusal(&self, overflow: &Overflow) -> RefusedPrompt {
        let reserve = self.plan.report.budget.reserve;
        RefusedPrompt {
            overflow: *overflow,
            claimed: self.target.window,
            expected: self.expected_tokens(),
            answer: self.plan.report.answer_cap.map_or(reserve, |cap| cap.sent),
            reserve,
            answered: self.target.answered,
            by_one_host: self.target.profile().has_hosts,
        }
    }

    /// Returns the estimated tokens that were cut from the client's request, in the provider's count; `None` if the client
    /// does not read them as usage, or if nothing was cut.
    pub fn left_out_tokens(&self, usage: UsageMode) -> Option<u32> {
        let report = &self.plan.report;
        if usage == UsageMode::AsSent || !self.is_guarded() {
            return None;
        }
        let raw = report.raw_before.checked_sub(self.raw_sent)?;
        let sent = self.raw_sent.max(1);
        let tokens = u64::from(raw) * u64::from(report.expected) / u64::from(sent);
        u32::try_from(tokens).ok().filter(|&tokens| tokens > 0)
    }

    /// Describes what was done to the request, in the words of header and log. `answer`: given at the end of the answer,
    /// whose facts are then added.
    pub fn describe_actions(&self, answer: Option<JudgedAnswer<'_>>) -> String {
        let mut words = vec![self.plan.report.format_actions()];
        words.retain(|word| word != NO_ACTION);
        let edits = self
            .client_edits
            .map(|edits| format!("client-edited={edits}"));
        words.extend(edits);
        if self.recovery.holds_recall && self.plan.report.is_cut() {
            words.push("no-recall".to_owned());
        }
        words.extend(self.recovery.action_words());
        words.extend(self.compaction.list_actions().map(str::to_owned));
        let refits = self.refits + self.size_refits;
        if refits > 0 {
            words.push(format!("refitted={refits}"));
        }
        if let Some(answer) = answer {
            let dropped = answer.response.input_changes.count_dropped();
            let of_answer = [
                answer
                    .silently_truncated
                    .then(|| "provider-truncated".to_owned()),
                (dropped > 0).then(|| format!("thinking-dropped={dropped}")),
                (answer.response.window_exceeded).then(|| "window-exceeded".to_owned()),
            ];
            words.extend(of_answer.into_iter().flatten());
        }
        if words.is_empty() {
            words.push(NO_ACTION.to_owned());
        }
        match self.mode {
            GuardMode::Guard => words.join(", "),
            GuardMode::DryRun => format!("dry-run, {}", words.join(", ")),
            GuardMode::Off => "guard-off".to_owned(),
        }
    }
}

/// Builds the guard's policy for a request to `target`. `reasoning`: what the session knows about the model's reasoning.
pub(super) fn session_policy<'a>(
    app: &'a App,
    target: &'a Target,
    reasoning: ReasoningMemory,
) -> Policy<'a> {
    let policy = guard_policy(app, target);
    let profile = if reasoning.is_bound {
        policy.profile.with_bound_reasoning()
    } else {
        policy.profile
    };
    Policy { profile, ..policy }
}

/// The guard's policy for a request to `target`.
pub fn guard_policy<'a>(app: &'a App, target: &'a Target) -> Policy<'a> {
    Policy {
        window_is_guessed: target.window.is_guessed(),
        input_limit: target.window.input,
        ..Policy::new(
            target.profile(),
            target.window.tokens,
            target.token_rule(),
            &app.config.guard,
        )
    }
}
