//! The settings of a model at a provider.

use super::{ModelNames, ServedModel, matches_pattern};
use crate::config::ModelConfig;

impl ModelNames {
    /// The settings of a model under the name of the request, else as `provider/model`, else bare, else under the
    /// longest pattern. Settings that name another provider belong to another model.
    pub(super) fn find_overrides(&self, requested: &str, served: &ServedModel) -> ModelConfig {
        let ServedModel { provider, model } = served;
        let full = format!("{provider}/{model}");
        let names = [requested, &full, model];
        let applies = |key: &str, settings: &ModelConfig| {
            let named = settings.provider.as_ref();
            let has_provider = named.is_none_or(|named| named == provider);
            // Settings with deployments apply to a request for that name only.
            has_provider && (settings.deployments.is_empty() || key == requested)
        };
        let exact = names.into_iter().find_map(|name| {
            let settings = self.models.get(name)?;
            applies(name, settings).then_some(settings)
        });
        let by_pattern = || {
            let patterns = self.models.iter().filter(|(pattern, settings)| {
                pattern.ends_with('*')
                    && applies(pattern, settings)
                    && names.iter().any(|name| matches_pattern(pattern, name))
            });
            let longest = patterns.max_by_key(|(pattern, _)| pattern.len());
            longest.map(|(_, settings)| settings)
        };
        exact.or_else(by_pattern).cloned().unwrap_or_default()
    }
}

/// The settings of one deployment of `model`. Those of `model` override those of the deployment, except that the
/// smaller window counts. Fallbacks are those of `model`.
pub(super) fn merge_overrides(model: &ModelConfig, deployment: ModelConfig) -> ModelConfig {
    let smaller = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
    ModelConfig {
        provider: deployment.provider,
        context_length: smaller(model.context_length, deployment.context_length),
        input_length: smaller(model.input_length, deployment.input_length),
        optimal_max_tokens: model.optimal_max_tokens.or(deployment.optimal_max_tokens),
        critical_max_tokens: model.critical_max_tokens.or(deployment.critical_max_tokens),
        caution_cadence: model.caution_cadence.or(deployment.caution_cadence),
        recovery: model.recovery.or(deployment.recovery),
        deployments: Vec::new(),
        fallback: model.fallback.clone(),
        larger: model.larger.clone(),
    }
}
