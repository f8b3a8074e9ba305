//! What a report says of the model that a request is fitted to.

use crate::{
    config::ModelConfig,
    conversation::Conversation,
    guard::{self, PastAnswers, Policy, budget::default_budget, explain::ExplainedModel},
    health::limits::choose_health_limits,
    provider::{Target, Window},
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
