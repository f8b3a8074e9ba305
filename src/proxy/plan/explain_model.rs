//! The part of a report about the model that a request is fitted to.

use bytes::Bytes;

use crate::{
    config::{
        Config, ModelConfig, RecallMode, RecoveryConfig,
        profile::{PROFILES, Profile, find_profile},
        tokens::{TokenRule, find_token_rule},
    },
    conversation::Conversation,
    guard::{
        self, Policy, SessionKnowledge,
        budget::default_budget,
        explain::{ExplainedModel, PlanExplanation, explain_plan},
    },
    health::limits::{HealthLimits, choose_health_limits},
    provider::{Target, Window, WindowSource},
    recovery::{RecoveryHold, has_little_room},
};

/// The profile of unknown providers: every provider accepts a request that is valid by it.
const STRICTEST: &str = "template";

/// Facts of a model that the caller gives. They replace what is known of the model.
#[derive(Clone, Copy, Debug, Default)]
pub struct GivenModel {
    /// Tokens.
    pub window: Option<u32>,
    pub tokens: Option<&'static TokenRule>,
    pub profile: Option<&'static Profile>,
}

impl GivenModel {
    /// Chooses how a request for the model `name` is planned. Returns `None` if nobody serves the model and no window is
    /// given.
    pub fn choose_policy<'c>(
        self,
        name: &str,
        target: Option<&Target>,
        config: &'c Config,
    ) -> Option<(Window, Policy<'c>)> {
        // The model's input limit belongs to the model's window.
        let given = self.window.map(|tokens| Window {
            tokens,
            input: None,
            taught: None,
            source: WindowSource::Config,
        });
        let window = given.or_else(|| target.map(|target| target.window))?;
        let known = target.map(|target| target.provider.config.profile);
        let profile = self.profile.or(known).or_else(|| find_profile(STRICTEST));
        let sent_name = target.map_or(name, |target| &*target.model);
        let profile = profile.unwrap_or(&PROFILES[0]).for_model(sent_name);
        let by_name = || find_token_rule(sent_name, profile);
        let policy = Policy {
            window_is_guessed: window.is_guessed(),
            input_limit: window.input,
            ..Policy::new(
                profile,
                window.tokens,
                self.tokens.unwrap_or_else(by_name),
                &config.guard,
            )
        };
        Some((window, policy))
    }
}

/// Explains the model and its levels. `target` is `None` if nobody serves the model, `conversation` if the request has none.
pub fn explain_model(
    name: Option<String>,
    target: Option<&Target>,
    window: Window,
    policy: &Policy<'_>,
    conversation: Option<&Conversation>,
) -> ExplainedModel {
    let nothing_known = SessionKnowledge::default();
    let budget = conversation.map_or_else(
        || default_budget(policy),
        |conversation| guard::session_budget(conversation, policy, &nothing_known),
    );
    let nothing_set = ModelConfig::default();
    let settings = target.map_or(&nothing_set, |target| &target.settings);
    let limits = choose_health_limits(window.known_tokens(), budget.tokens, settings);
    ExplainedModel {
        name,
        provider: target.map(|target| target.provider.name.to_string()),
        caution_above: limits.optimal_max_tokens,
        critical_above: limits.critical_max_tokens,
        window_source: window.source.display_name(),
        ..ExplainedModel::default()
    }
}

/// Returns the request as it would be sent if it were the first of a session, and an explanation of its plan, with what
/// holds recovery back.
pub fn explain_request(
    conversation: &Conversation,
    policy: &Policy<'_>,
    model: ExplainedModel,
    recovery: &RecoveryConfig,
) -> (Bytes, PlanExplanation) {
    let limits = HealthLimits {
        optimal_max_tokens: model.caution_above,
        critical_max_tokens: model.critical_above,
    };
    let (fitted, report, mut explained) = explain_plan(conversation, policy, model);
    let window = explained.window.tokens;
    let hold = RecoveryHold::of_chat(conversation, window, recovery.chats);
    let hold = hold.or_else(|| RecoveryHold::of_fixed_part(&report, window, &limits));
    let has_tools = conversation.lists_tools() && policy.settings.recall == RecallMode::Auto;
    explained.recall_held = (has_tools && has_little_room(&report, window))
        .then_some("what must stay leaves less than a third of the window, or than 3000 tokens");
    explained.recovery_held = hold.filter(|_| recovery.enabled).map(|it| it.to_string());
    (fitted, explained)
}
