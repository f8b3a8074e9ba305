//! Which models and providers a client may use.

use super::admission::Client;
use crate::{
    error::Failure,
    provider::{ModelCandidates, Registry, Target},
};

/// Whether a client may use a model, by its name with or without the provider's.
///
/// SECURITY: a name whose first part is a provider's belongs to that provider: a key for `local/*` must not open
/// a model of another provider that is called `local/x` there.
fn allows_model(registry: &Registry, client: &Client, provider: &str, model: &str) -> bool {
    let prefix = model.split_once('/');
    let names_provider = prefix.is_some_and(|(name, _)| registry.find_provider(name).is_ok());
    client.may_use(&format!("{provider}/{model}")) || (!names_provider && client.may_use(model))
}

/// Whether a client that asked for `asked` may use the model behind the name. `is_configured`: the settings
/// define the name, as an alias or as a model with several candidates. Such a name may be allowed by itself, since
/// the operator who allows it knows its candidates.
pub fn allows_target(
    registry: &Registry,
    client: &Client,
    asked: &str,
    is_configured: bool,
    target: &Target,
) -> bool {
    (is_configured && client.may_use(asked))
        || allows_model(registry, client, &target.provider.name, &target.model)
}

/// Leaves only those deployments of the requested name that the client may use. Returns whether any is left.
pub fn retain_allowed(
    candidates: &mut ModelCandidates,
    registry: &Registry,
    client: &Client,
) -> bool {
    let (asked, is_configured) = (candidates.asked.clone(), candidates.asked_is_configured);
    candidates
        .retain_permitted(|target| allows_target(registry, client, &asked, is_configured, target))
}

/// The same error for a model that does not exist and one that the client may not use, as at OpenAI.
pub fn no_such_model(model: &str) -> Failure {
    Failure::ModelNotFound(format!(
        "The model `{model}` does not exist or you do not have access to it."
    ))
}

/// Whether a client may send a provider requests without a model: not if its key is for other providers.
pub fn allows_provider(registry: &Registry, client: &Client, provider: &str) -> bool {
    let opens = |pattern: &String| match pattern.split_once('/') {
        Some((name, _)) if registry.find_provider(name).is_ok() => name == provider,
        _ => true,
    };
    client.model_patterns().iter().any(opens)
}
