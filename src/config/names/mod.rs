//! Names of models: who serves them, and what they are called there.
//!
//! A name with a slash is `provider/model` only where such a provider is configured: the names of
//! open models have slashes of their own. No windows and no sockets here, so that the settings are
//! checked by the same rules that requests follow.
//!
//! A name is followed through its aliases to its places, and to those of its fallbacks.

mod overrides;
mod references;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use thiserror::Error;

use self::overrides::merge_overrides;
use super::{Config, ModelConfig, ProviderConfig};
pub(super) use references::{check_references, read_aliases};

/// Names are kept where something is learnt of a model, so that their length is bounded; in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 1_024;

/// Everything that is configured of names.
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

/// A place with what is told of it, and its share beside its neighbours'.
#[derive(Clone, Debug)]
pub struct ResolvedDeployment {
    pub served_model: ServedModel,
    pub settings: ModelConfig,
    pub weight: u32,
}

/// Nobody to send a request to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelNameError {
    #[error("There is no provider `{name}`. Configured are: {existing}.")]
    Provider { name: String, existing: String },
    #[error(
        "The model `{model}` does not exist or you do not have access to it. Name it \
         `provider/model`, or set default_provider. Configured providers are: {existing}."
    )]
    Model { model: String, existing: String },
    #[error("No model has a name of over {MAX_NAME_BYTES} bytes.")]
    LongName,
    #[error("The model `{model}` is served by {candidates}. Name it `provider/model`.")]
    Ambiguous { model: String, candidates: String },
}

/// Whether a name fits a pattern, which may have a `*` at its end.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// How much of a name a pattern says that fits: all of it, or so many bytes of its beginning.
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

    /// What a name stands for, through all its aliases. With a provider that the client named beside
    /// it, an alias counts only where it leads there: that provider may have a model of this name.
    pub fn resolve_aliases<'m>(&self, model: &'m str, chosen: Option<&str>) -> Cow<'m, str> {
        let mut name = Cow::Borrowed(model);
        // Settings with a chain that does not end are refused; this bounds all others.
        for _ in 0..self.aliases.len() {
            match self.resolve_alias(&name) {
                Some(next) => name = next.into(),
                None => break,
            }
        }
        let leads_there = |chosen: &str| {
            let found = self.resolve_deployments(&name, None);
            found.is_ok_and(|found| found.iter().any(|one| one.served_model.provider == chosen))
        };
        match chosen {
            Some(chosen) if name != model && !leads_there(chosen) => model.into(),
            _ => name,
        }
    }

    /// What the alias of that name stands for: the exact one, else that with the longest beginning.
    /// A name that would stand for itself (as where `*` is one model) stands for nothing more.
    fn resolve_alias(&self, model: &str) -> Option<String> {
        let aliases = self.aliases.iter();
        let fitting = aliases.filter(|(pattern, _)| matches_pattern(pattern, model));
        let (pattern, to) = fitting.max_by_key(|(pattern, _)| rank_pattern(pattern))?;
        let rest = pattern.strip_suffix('*');
        let rest = rest.and_then(|start| model.strip_prefix(start));
        let name = match (to.strip_suffix('*'), rest) {
            (Some(to), Some(rest)) => format!("{to}{rest}"),
            _ => to.clone(),
        };
        (!model.is_empty() && name != model).then_some(name)
    }

    /// Whether the settings give places to a model of that name.
    pub fn has_deployments(&self, name: &str) -> bool {
        let own = self.models.get(name);
        own.is_some_and(|model| !model.deployments.is_empty())
    }

    /// The places of a name without aliases, none twice, with the settings of each; never empty.
    ///
    /// # Errors
    /// Nobody serves it.
    pub fn resolve_deployments(
        &self,
        name: &str,
        chosen: Option<&str>,
    ) -> Result<Vec<ResolvedDeployment>, ModelNameError> {
        if let Some(deployed) = self.find_deployments(name, chosen) {
            return Ok(deployed);
        }
        if chosen.is_none() && self.has_deployments(name) {
            return Err(self.unknown_model(name));
        }
        let place = self.resolve_model(name, chosen)?;
        Ok(vec![ResolvedDeployment {
            settings: self.find_overrides(name, &place),
            served_model: place,
            weight: 1,
        }])
    }

    /// The places that the settings give to a model, those of the chosen provider only; `None` where
    /// there are none.
    pub fn find_deployments(
        &self,
        name: &str,
        chosen: Option<&str>,
    ) -> Option<Vec<ResolvedDeployment>> {
        let own = self.models.get(name)?;
        let mut found: Vec<ResolvedDeployment> = Vec::new();
        for deployment in &own.deployments {
            let name = self.resolve_aliases(&deployment.model, None);
            // Settings with a deployment that nobody serves are refused.
            let Ok(place) = self.resolve_model(&name, None) else {
                continue;
            };
            let elsewhere = chosen.is_some_and(|chosen| chosen != place.provider);
            if elsewhere || found.iter().any(|one| one.served_model == place) {
                continue;
            }
            found.push(ResolvedDeployment {
                settings: merge_overrides(own, self.find_overrides(&name, &place)),
                served_model: place,
                weight: deployment.weight,
            });
        }
        (!found.is_empty()).then_some(found)
    }

    /// The provider of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn find_provider(&self, name: &str) -> Result<&str, ModelNameError> {
        let found = self.providers.get_key_value(name);
        let found = found.map(|(name, _)| name.as_str());
        found.ok_or_else(|| self.unknown_provider(name))
    }

    /// Who gets what names no model: the default provider, else the only one.
    ///
    /// # Errors
    /// There are several, and none is the default.
    pub fn find_default_provider(&self) -> Result<&str, ModelNameError> {
        let remote = self.providers.iter();
        let mut remote = remote.filter(|(_, provider)| provider.base_url.is_some());
        match (&self.default_provider, remote.next(), remote.next()) {
            (Some(name), ..) => self.find_provider(name),
            (None, Some((only, _)), None) => Ok(only),
            _ => Err(self.unknown_model("")),
        }
    }

    /// Who serves a name without aliases, in one place.
    ///
    /// # Errors
    /// Nobody does; the message names what exists.
    pub fn resolve_model(
        &self,
        name: &str,
        chosen: Option<&str>,
    ) -> Result<ServedModel, ModelNameError> {
        let (provider, model) = match chosen {
            Some(chosen) => {
                let own = name.strip_prefix(chosen).and_then(|m| m.strip_prefix('/'));
                (self.find_provider(chosen)?, own.unwrap_or(name))
            }
            None => self.find_serving_provider(name)?,
        };
        Ok(ServedModel {
            provider: provider.to_owned(),
            model: model.to_owned(),
        })
    }

    /// Whether a provider or a setting claims that name, so that it is not just left to the default
    /// provider.
    pub fn is_claimed(&self, name: &str) -> bool {
        let prefixed = name.split_once('/');
        prefixed.is_some_and(|(left, _)| self.providers.contains_key(left))
            || self.models.contains_key(name)
            || !matches!(self.match_provider(name), Ok(None))
    }

    /// Every name that the settings spell out, without patterns and without aliases, with the
    /// provider that is said beside it.
    pub fn list_configured_names(&self) -> Vec<(&str, Option<&str>)> {
        let mut names: Vec<(&String, Option<&str>)> = Vec::new();
        for (name, provider) in &self.providers {
            let own = provider.models.iter();
            names.extend(own.map(|model| (model, Some(name.as_str()))));
        }
        for (name, model) in &self.models {
            names.push((name, model.provider.as_deref()));
            let places = model.deployments.iter().map(|one| &one.model);
            let others = places.chain(&model.fallback).chain(&model.larger);
            names.extend(others.map(|name| (name, None)));
        }
        names.extend(self.aliases.values().map(|name| (name, None)));
        let names = names.into_iter().map(|(name, of)| (name.as_str(), of));
        names.filter(|(name, _)| !name.ends_with('*')).collect()
    }

    /// Every alias that is a whole name.
    pub fn list_aliases(&self) -> impl Iterator<Item = &str> {
        let names = self.aliases.keys().map(String::as_str);
        names.filter(|name| !name.ends_with('*'))
    }

    fn find_serving_provider<'m>(&self, model: &'m str) -> Result<(&str, &'m str), ModelNameError> {
        if let Some((left, right)) = model.split_once('/')
            && let Ok(provider) = self.find_provider(left)
        {
            return Ok((provider, right));
        }
        if let Some(name) = self.models.get(model).and_then(|m| m.provider.as_deref()) {
            return Ok((self.find_provider(name)?, model));
        }
        if let Some(provider) = self.match_provider(model)? {
            return Ok((provider, model));
        }
        let fallback = self
            .find_default_provider()
            .map_err(|_| self.unknown_model(model))?;
        Ok((fallback, model))
    }

    /// The provider with the most exact pattern for a bare name, its own or one of the models'.
    fn match_provider(&self, model: &str) -> Result<Option<&str>, ModelNameError> {
        let own = self.providers.iter().flat_map(|(name, provider)| {
            let patterns = provider.models.iter();
            patterns.map(move |pattern| (pattern.as_str(), name.as_str()))
        });
        let told = self.models.iter().filter_map(|(pattern, told)| {
            let provider = self.find_provider(told.provider.as_deref()?).ok()?;
            pattern
                .ends_with('*')
                .then_some((pattern.as_str(), provider))
        });
        let mut fitting: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (pattern, provider) in own.chain(told) {
            if matches_pattern(pattern, model) {
                let best = fitting.entry(rank_pattern(pattern)).or_default();
                best.insert(provider);
            }
        }
        let best = fitting.pop_last().map(|(_, providers)| providers);
        let best: Vec<_> = best.into_iter().flatten().collect();
        match best[..] {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            _ => Err(ModelNameError::Ambiguous {
                model: model.to_owned(),
                candidates: best.join(", "),
            }),
        }
    }

    pub(crate) fn unknown_provider(&self, name: &str) -> ModelNameError {
        ModelNameError::Provider {
            name: name.to_owned(),
            existing: self.list_providers(),
        }
    }

    pub(crate) fn unknown_model(&self, model: &str) -> ModelNameError {
        ModelNameError::Model {
            model: model.to_owned(),
            existing: self.list_providers(),
        }
    }

    fn list_providers(&self) -> String {
        let names: Vec<_> = self.providers.keys().map(String::as_str).collect();
        names.join(", ")
    }
}
