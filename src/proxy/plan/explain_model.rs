//! What a report says of the model that a request is fitted to.

use crate::{
    config::{ModelConfig, RecoveryConfig},
    conversation::Conversation,
    guard::{
        self, PastAnswers, Policy,
        budget::default_budget,
        explain::{ExplainedModel, PlanExplanation},
    },
    health::limits::{HealthLimits, choose_health_limits},
    provider::{Target, Window},
    recovery::{RecoveryHold, hold::FixedTokens},
};

/// `target` is `None` where nobody serves the model, and `conversation` where the request has none.
pub fn explain_model(
    name: Option<String>,
    target: Option<&Target>,
    window: Window,
    policy: &Policy<'_>,
    conversation: Option<&Conversation>,
) -> ExplainedModel {
    let past = PastAnswers::default();
    let budget = conversation.map_or_else(
        || default_budget(policy),
        |conversation| guard::session_budget(conversation, policy, &past),
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

/// Says in a report why recovery adds nothing to the request, or no caution prompts.
pub fn explain_recovery(
    explained: &mut PlanExplanation,
    conversation: &Conversation,
    settings: &RecoveryConfig,
) {
    let (model, window) = (&explained.model, explained.window.tokens);
    let limits = HealthLimits {
        optimal_max_tokens: model.caution_above,
        critical_max_tokens: model.critical_above,
    };
    let fixed = FixedTokens::from_report(&explained.report);
    let hold = RecoveryHold::of_chat(conversation, window, settings.chats);
    let hold = hold.or_else(|| RecoveryHold::of_fixed_part(fixed, window, &limits));
    explained.recovery_held = hold.filter(|_| settings.enabled).map(|it| it.to_string());
}
