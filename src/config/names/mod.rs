//! Names of models: which provider serves a name, and under which name there.
//!
//! A name with a slash is `provider/model` only where that provider is configured, since the names of open models
//! contain slashes too, and where no setting for that very name names another provider. A name is resolved through its aliases to its deployments, and then to its fallbacks.
//! The checks of the settings and the requests use the same code. No windows and no I/O here.

mod overrides;
mod references;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use thiserror::Error;

use self::overrides::merge_overrides;
use super::{Config, ModelConfig, ProviderConfig, provider::write_known_sections};
pub(super) use references::{check_references, read_aliases};

/// Bytes of the longest name of a model. Names are kept with what is learnt of a model, so they are bounded.
pub(crate) const MAX_NAME_BYTES: usize = 1_024;

/// The parts of the settings that names are resolved with.
#[derive(Clone, Debug)]
pub struct ModelNames {
    providers: BTreeMap<String, ProviderConfig>,
    aliases: BTreeMap<String, String>,
    models: BTreeMap<String, ModelConfig>,
    default_provider: Option<String>,
}

/// A model at a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServedModel {
    pub provider: String,
    pub model: String,
}

/// A model at a provider with the settings that apply to it, and its share of the sessions as a weight.
#[derive(Clone, Debug)]
pub struct ResolvedDeployment {
    pub served_model: ServedModel,
    pub settings: ModelConfig,
    pub weight: u32,
}

/// Why a name has no provider.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelNameError {
    #[error("There is no provider `{name}`. {remedy}")]
    Provider { name: String, remedy: String },
    #[error(
        "The request names no model, so the proxy cannot choose a provider. Name one in `model`, as in \"gpt-4o\" or \
         \"provider/model\"; where a request takes no model, put the provider before the path, as in /openai/v1/files. {remedy}"
    )]
    Unnamed { remedy: String },
    #[error("The model `{model}` does not exist or you do not have access to it. {remedy}")]
    Model { model: String, remedy: String },
    #[error("No model has a name of over {MAX_NAME_BYTES} bytes.")]
    LongName,
    #[error("The model `{model}` is served by {candidates}. Name it `provider/model`.")]
    Ambiguous { model: String, candidates: String },
}

/// Whether a name matches a pattern, which may end with a `*`.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// With this behind its name, clients ask for a model with its window of 1,000,000 tokens, as Claude Code does.
const LONG_WINDOW: &str = "[1m]";

/// A name without the suffix that asks for the long window, in either case; `None`: it has no such suffix.
pub(crate) fn strip_long_window(name: &str) -> Option<&str> {
    let (bare, suffix) = name.split_at_checked(name.len().checked_sub(LONG_WINDOW.len())?)?;
    (!bare.is_empty() && suffix.eq_ignore_ascii_case(LONG_WINDOW)).then_some(bare)
}

/// The order among patterns that match a name: the largest is an exact name, else the longest pattern.
fn rank_pattern(pattern: &str) -> (bool, usize) {
    (!pattern.ends_with('*'), pattern.len())
}

impl ModelNames {
    pub fn new(config: &Config) -> Self {
        Self {
            providers: config.providers.clone(),
            aliases: config.aliases.clone(),
            models: config.models.clone(),
            default_provider: config.default_provider.clone(),
        }
    }

    /// The name at the end of all aliases. Where the client chose a provider, an alias counts only if it leads to
    /// that provider, which may have a model of this name itself.
    pub fn resolve_aliases<'m>(&self, model: &'m str, chosen: Option<&str>) -> Cow<'m, str> {
        let mut name = Cow::Borrowed(model);
        // Checked settings have no loop of aliases; the bound ends the others.
        for _ in 0..self.aliases.len() {
            match self.resolve_alias(&name) {
                Some(next) => name = next.into(),
                None => break,
            }
        }
        let leads_to = |chosen: &str| {
            let found = self.resolve_deployments(&name, None).unwrap_or_default();
            let mut providers = found.iter().map(|found| &found.served_model.provider);
            providers.any(|provider| provider == chosen)
        };
        match chosen {
            Some(chosen) if name != model && !leads_to(chosen) => model.into(),
            _ => name,
        }
    }

    /// Whether the settings have a section or an alias of exactly that name.
    pub fn has_section(&self, name: &str) -> bool {
        self.models.contains_key(name) || self.aliases.contains_key(name)
    }

    /// Follows one alias: the exact one, else the longest pattern. `None` where a name stands for itself, as with
    /// `"*" = "model"` for that model.
    fn resolve_alias(&self, model: &str) -> Option<String> {
        let aliases = self.aliases.iter();
        let matching = aliases.filter(|(pattern, _)| matches_pattern(pattern, model));
        let (pattern, to) = matching.max_by_key(|(pattern, _)| rank_pattern(pattern))?;
        let prefix = pattern.strip_suffix('*');
        let rest = prefix.and_then(|prefix| model.strip_prefix(prefix));
        let name = match (to.strip_suffix('*'), rest) {
            (Some(to), Some(rest)) => format!("{to}{rest}"),
            _ => to.clone(),
        };
        (!model.is_empty() && name != model).then_some(name)
    }

    /// Whether the settings list deployments for a name.
    pub fn has_deployments(&self, name: &str) -> bool {
        let model = self.models.get(name);
        model.is_some_and(|model| !model.deployments.is_empty())
    }

    /// The deployments of a name that is no alias, each once; never empty. `chosen` keeps those of one provider.
    ///
    /// # Errors
    /// No provider serves it.
    pub fn resolve_deployments(
        &self,
        name: &str,
        chosen: Option<&str>,
    ) -> Result<Vec<ResolvedDeployment>, ModelNameError> {
        if let Some(deployments) = self.find_deployments(name, chosen) {
            return Ok(deployments);
        }
        if chosen.is_none() && self.has_deployments(name) {
            return Err(self.unknown_model(name));
        }
        let served_model = self.resolve_model(name, chosen)?;
        Ok(vec![ResolvedDeployment {
            settings: self.find_overrides(name, &served_model),
            served_model,
            weight: 1,
        }])
    }

    /// The deployments that the settings list for a model, those of the chosen provider only; `None` where there
    /// are none.
    pub fn find_deployments(
        &self,
        name: &str,
        chosen: Option<&str>,
    ) -> Option<Vec<ResolvedDeployment>> {
        let model = self.models.get(name)?;
        let mut found: Vec<ResolvedDeployment> = Vec::new();
        for deployment in &model.deployments {
            let name = self.resolve_aliases(&deployment.model, None);
            // Checked settings have a provider for each deployment.
            let Ok(served_model) = self.resolve_model(&name, None) else {
                continue;
            };
            let is_elsewhere = chosen.is_some_and(|chosen| chosen != served_model.provider);
            if is_elsewhere || found.iter().any(|known| known.served_model == served_model) {
                continue;
            }
            found.push(ResolvedDeployment {
                settings: merge_overrides(model, self.find_overrides(&name, &served_model)),
                served_model,
                weight: deployment.weight,
            });
        }
        (!found.is_empty()).then_some(found)
    }

    /// # Errors
    /// No provider has that name.
    pub fn find_provider(&self, name: &str) -> Result<&str, ModelNameError> {
        match self.providers.get_key_value(name) {
            Some((name, _)) => Ok(name),
            None => Err(self.unknown_provider(name)),
        }
    }

    /// The provider for requests without a model: the default one, else the only one.
    ///
    /// # Errors
    /// There are several, and none is the default.
    pub fn find_default_provider(&self) -> Result<&str, ModelNameError> {
        let remote = self.providers.iter();
        let mut remote = remote.filter(|(_, it)| it.base_url.is_some() && !it.is_known);
        match (&self.default_provider, remote.next(), remote.next()) {
            (Some(name), ..) => self.find_provider(name),
            (None, Some((only, _)), None) => Ok(only),
            _ => Err(self.unknown_model("")),
        }
    }

    /// The one provider that serves a name without aliases and deployments, and the model's name there.
    ///
    /// # Errors
    /// No provider serves it; the message lists the providers.
    pub fn resolve_model(
        &self,
        name: &str,
        chosen: Option<&str>,
    ) -> Result<ServedModel, ModelNameError> {
        let (provider, model) = match chosen {
            Some(chosen) => {
                let rest = name.strip_prefix(chosen);
                let bare = rest.and_then(|rest| rest.strip_prefix('/'));
                (self.find_provider(chosen)?, bare.unwrap_or(name))
            }
            None => self.find_serving_provider(name)?,
        };
        if self
            .providers
            .get(provider)
            .is_some_and(|it| !it.may_serve(model))
        {
            return Err(self.unknown_model(name));
        }
        Ok(ServedModel {
            provider: provider.to_owned(),
            model: model.to_owned(),
        })
    }

    /// Whether the models of a provider's own list stand in lists.
    pub fn is_listed(&self, provider: &str) -> bool {
        let provider = self.providers.get(provider);
        provider.is_none_or(|provider| provider.listed)
    }

    /// Whether a provider or a setting names the model, so that it does not only fall to the default provider.
    pub fn is_claimed(&self, name: &str) -> bool {
        let prefixed = name.split_once('/');
        prefixed.is_some_and(|(left, _)| self.providers.contains_key(left))
            || self.models.contains_key(name)
            || !matches!(self.match_provider(name), Ok(None))
    }

    /// Every model's name in the settings that is neither a pattern nor an alias, with the provider that is set
    /// for it. A name may be there several times.
    pub fn list_configured_names(&self) -> Vec<(&str, Option<&str>)> {
        let mut names: Vec<(&str, Option<&str>)> = Vec::new();
        for (provider, settings) in &self.providers {
            let models = settings.models.iter();
            names.extend(models.map(|model| (model.as_str(), Some(provider.as_str()))));
        }
        for (name, model) in &self.models {
            names.push((name, model.provider.as_deref()));
            let deployments = model.deployments.iter();
            let others = deployments.map(|deployment| &deployment.model);
            let others = others.chain(&model.fallback).chain(&model.larger);
            names.extend(others.map(|name| (name.as_str(), None)));
        }
        let aliased = self.aliases.values();
        names.extend(aliased.map(|name| (name.as_str(), None)));
        names.retain(|(name, _)| !name.ends_with('*'));
        names
    }

    /// Every alias that is no pattern.
    pub fn list_aliases(&self) -> impl Iterator<Item = &str> {
        let names = self.aliases.keys().map(String::as_str);
        names.filter(|name| !name.ends_with('*'))
    }

    fn find_serving_provider<'m>(&self, model: &'m str) -> Result<(&str, &'m str), ModelNameError> {
        if let Some((left, right)) = model.split_once('/')
            && let Ok(provider) = self.find_provider(left)
        {
            let other = self.find_other_provider(left, model);
            return other.map_or(Ok((provider, right)), |other| Ok((other, model)));
        }
        if let Some(name) = self.models.get(model).and_then(|m| m.provider.as_deref()) {
            return Ok((self.find_provider(name)?, model));
        }
        if let Some(provider) = self.match_provider(model)? {
            return Ok((provider, model));
        }
        let default = self.find_default_provider();
        Ok((default.map_err(|_| self.unknown_model(model))?, model))
    }

    /// Whether the settings name another provider for a name than the one with which it begins.
    pub(crate) fn is_redirected(&self, name: &str) -> bool {
        let prefixed = name.split_once('/');
        prefixed.is_some_and(|(left, _)| self.find_other_provider(left, name).is_some())
    }

    /// The provider other than `left` that the settings name for `left/model`: those of that very name, else those of the
    /// longest pattern that begins with `left/`.
    fn find_other_provider(&self, left: &str, model: &str) -> Option<&str> {
        let named = self.models.iter().filter(|(key, settings)| {
            let rest = key.strip_prefix(left);
            settings.provider.is_some()
                && rest.is_some_and(|rest| rest.starts_with('/'))
                && matches_pattern(key, model)
        });
        let (_, settings) = named.max_by_key(|(key, _)| rank_pattern(key))?;
        let other = self.find_provider(settings.provider.as_deref()?).ok()?;
        (other != left).then_some(other)
    }

    /// The provider with the most exact pattern for a bare name, among the patterns of providers and of models. Of
    /// several with the same pattern, it is the default one.
    pub(crate) fn match_provider(&self, model: &str) -> Result<Option<&str>, ModelNameError> {
        let of_providers = self.providers.iter().flat_map(|(name, provider)| {
            let patterns = provider.models.iter();
            patterns.map(move |pattern| (pattern, name.as_str()))
        });
        let of_models = self.models.iter().filter_map(|(pattern, model)| {
            let provider = self.find_provider(model.provider.as_deref()?).ok()?;
            Some((pattern, provider))
        });
        let of_models = of_models.filter(|(pattern, _)| pattern.ends_with('*'));
        let mut matching: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (pattern, provider) in of_providers.chain(of_models) {
            if matches_pattern(pattern, model) {
                let providers = matching.entry(rank_pattern(pattern)).or_default();
                providers.insert(provider);
            }
        }
        let best = matching.into_values().next_back();
        let best: Vec<_> = best.into_iter().flatten().collect();
        let default = self.default_provider.as_deref();
        match best[..] {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            _ if default.is_some_and(|default| best.contains(&default)) => Ok(default),
            _ => Err(ModelNameError::Ambiguous {
                model: model.to_owned(),
                candidates: best.join(", "),
            }),
        }
    }

    pub(crate) fn unknown_provider(&self, name: &str) -> ModelNameError {
        ModelNameError::Provider {
            name: name.to_owned(),
            remedy: self.write_remedy("Configured are"),
        }
    }

    pub(crate) fn unknown_model(&self, model: &str) -> ModelNameError {
        let has_known = self.providers.values().any(|provider| provider.is_known);
        if model.is_empty() {
            return ModelNameError::Unnamed {
                remedy: self.write_remedy("Providers are"),
            };
        }
        if has_known {
            return ModelNameError::Model {
                model: model.to_owned(),
                remedy: write_first_settings(model),
            };
        }
        let remedy = "Name it `provider/model`, or set default_provider. Configured providers are";
        ModelNameError::Model {
            model: model.to_owned(),
            remedy: self.write_remedy(remedy),
        }
    }

    /// The words with the names of all providers behind them; without any provider, what to write in the settings.
    fn write_remedy(&self, words: &str) -> String {
        if self.providers.is_empty() {
            return "No provider is configured: add a section [providers.NAME] to the settings."
                .to_owned();
        }
        let names: Vec<_> = self.providers.keys().map(String::as_str).collect();
        format!("{words}: {}.", names.join(", "))
    }
}

/// The settings that serve a model, for a proxy without any.
///
/// SECURITY: a provider that stands alone in the settings gets all names, and so the keys of all clients. The lines name
/// the two known providers, too, so that their keys still go to them.
fn write_first_settings(model: &str) -> String {
    let known = write_known_sections();
    // What stands before a slash would be taken for one of the two.
    let own = if model.contains('/') {
        format!("\n[models.{model:?}]\nprovider = \"mine\"")
    } else {
        String::new()
    };
    format!(
        "Without settings, this proxy serves the models of Anthropic and OpenAI only. To serve another, write these lines \
         into a file, with the address of its provider, and start with `plimsoll --config FILE`. A provider that stands there \
         alone gets every model name, with the client's own key.\n\
         [providers.mine]\nbase_url = \"https://HOST/v1\"\nauth = \"client\"\nmodels = [{model:?}]\n{known}{own}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_providers_an_error_says_what_to_write() {
        let mut config = Config::default();
        let remedy = |names: &ModelNames| {
            let errors = [names.unknown_provider("p"), names.unknown_model("m")];
            errors.map(|error| error.to_string())
        };
        assert_eq!(
            remedy(&ModelNames::new(&config)),
            [
                "There is no provider `p`. Configured are: simulated.",
                "The model `m` does not exist or you do not have access to it. Name it `provider/model`, or set \
                 default_provider. Configured providers are: simulated.",
            ]
        );
        config.providers.clear();
        let add = "No provider is configured: add a section [providers.NAME] to the settings.";
        assert_eq!(
            remedy(&ModelNames::new(&config)),
            [
                format!("There is no provider `p`. {add}"),
                format!("The model `m` does not exist or you do not have access to it. {add}"),
            ]
        );
    }
}
