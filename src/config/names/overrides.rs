//! What the settings tell of a model in one place.

use super::{ModelNames, ServedModel, matches_pattern};
use crate::config::ModelConfig;

impl ModelNames {
    /// What is told of a model: under the name that was asked for, as `provider/model`, or bare;
    /// else by the longest pattern. A key that names another provider is another model's.
    pub(super) fn find_overrides(&self, asked: &str, place: &ServedModel) -> ModelConfig {
        let ServedModel { provider, model } = place;
        let full = format!("{provider}/{model}");
        let names = [asked, &full, model];
        let fits = |key: &str, told: &ModelConfig| {
            let of_it = told.provider.as_ref().is_none_or(|own| own == provider);
            // One with places of its own is the model that is asked for by that name, and no other.
            of_it && (told.deployments.is_empty() || key == asked)
        };
        let exact = names.into_iter().find_map(|name| {
            let told = self.models.get(name)?;
            fits(name, told).then_some(told)
        });
        let by_pattern = || {
            let patterns = self.models.iter().filter(|(pattern, told)| {
                pattern.ends_with('*')
                    && fits(pattern, told)
                    && names.iter().any(|name| matches_pattern(pattern, name))
            });
            let longest = patterns.max_by_key(|(pattern, _)| pattern.len());
            longest.map(|(_, told)| told)
        };
        exact.or_else(by_pattern).cloned().unwrap_or_default()
    }
}

/// What is told of a place, as a part of a model that has told things of its own: those come first,
/// but a place never holds more than is told of it. Who else answers is the model's business alone.
pub(super) fn merge_overrides(model: &ModelConfig, place: ModelConfig) -> ModelConfig {
    let least = |a: Option<u32>, b: Option<u32>| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    ModelConfig {
        provider: place.provider,
        context_length: least(model.context_length, place.context_length),
        input_length: least(model.input_length, place.input_length),
        optimal_max_tokens: model.optimal_max_tokens.or(place.optimal_max_tokens),
        critical_max_tokens: model.critical_max_tokens.or(place.critical_max_tokens),
        caution_cadence: model.caution_cadence.or(place.caution_cadence),
        recovery: model.recovery.or(place.recovery),
        deployments: Vec::new(),
        fallback: model.fallback.clone(),
        larger: model.larger.clone(),
    }
}
