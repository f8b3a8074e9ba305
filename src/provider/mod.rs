//! The registry: model -> provider, window, settings.
//!
//! Providers are told apart by their configured names, never by what they say of themselves.
//! A name with a slash is `provider/model` only where such a provider is configured: the names of
//! open models have slashes of their own.

pub mod breaker;
pub mod catalogue;
mod client;
pub mod headers;
pub mod learnt;
pub mod overflow;
mod patience;
pub mod retry;
mod reuse;
pub mod simulated;
mod upstream;

use std::{
    collections::{BTreeMap, HashSet},
    io,
    sync::{Arc, Mutex, PoisonError},
};

use thiserror::Error;

pub use self::upstream::{Outgoing, Payload, Provider, Unsent, Upload, UploadBroken};
use crate::config::{Config, ModelConfig, ProviderConfig};

/// The window of a model that nobody knows: it drives cutting only.
pub const ASSUMED_WINDOW: u32 = 96_000;

/// The built-in provider's name.
pub const SIMULATED: &str = "simulated";

/// Unknown models that are remembered as reported.
const MAX_REPORTED: usize = 1_024;

/// All providers.
#[derive(Debug)]
pub struct Registry {
    providers: BTreeMap<String, Arc<Provider>>,
    models: BTreeMap<String, ModelConfig>,
    default_provider: Option<String>,
    /// What providers taught of their windows.
    pub learnt: learnt::Learnt,
    reported: Mutex<HashSet<String>>,
}

/// Who serves a model, and what is known of it.
#[derive(Clone, Debug)]
pub struct Target {
    pub provider: Arc<Provider>,
    /// The name to send.
    pub model: String,
    pub window: Window,
    pub settings: ModelConfig,
}

/// Who may answer a request for a model.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The places that serve it, with their weights.
    deployments: Vec<(Target, u32)>,
    /// Who answers where none of those does, in this order.
    fallbacks: Vec<Target>,
}

impl Choice {
    /// Leaves out the deployments that the client may not use; whether any is left. Fallbacks are
    /// whoever runs the proxy's to decide, and go with them.
    pub fn permit(&mut self, allowed: impl Fn(&Target) -> bool) -> bool {
        self.deployments.retain(|(target, _)| allowed(target));
        !self.deployments.is_empty()
    }

    /// All of them in the order in which one request tries them. The same seed gives the same order,
    /// so that a session stays where its cache is warm.
    pub fn order(self, seed: u64) -> Vec<Target> {
        let _ = seed;
        let deployments = self.deployments.into_iter().map(|(target, _)| target);
        deployments.chain(self.fallbacks).collect()
    }
}

/// What a model can hold, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub tokens: u32,
    /// The most that a prompt may have, where that is less.
    pub input: Option<u32>,
    pub source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An error of the provider named it.
    Learnt,
    /// The provider's own list of models.
    Provider,
    Config,
    Catalogue,
    Assumed,
}

impl Source {
    /// As commands name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Learnt => "an error",
            Self::Provider => "the provider",
            Self::Config => "settings",
            Self::Catalogue => "catalogue",
            Self::Assumed => "assumed",
        }
    }
}

/// Nobody to send a request to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unknown {
    #[error("There is no provider `{name}`. Configured are: {existing}.")]
    Provider { name: String, existing: String },
    #[error(
        "The model `{model}` does not exist or you do not have access to it. Name it \
         `provider/model`, or set default_provider. Configured providers are: {existing}."
    )]
    Model { model: String, existing: String },
    #[error("The model `{model}` is served by {candidates}. Name it `provider/model`.")]
    Ambiguous { model: String, candidates: String },
}

impl Registry {
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub fn new(config: &Config) -> io::Result<Self> {
        let default_provider = config.default_provider.clone();
        let learnt = learnt::Learnt::new(config.catalogue.learnt_max_age);
        Self::of(
            &config.providers,
            config.models.clone(),
            default_provider,
            learnt,
        )
    }

    fn of(
        configured: &BTreeMap<String, ProviderConfig>,
        models: BTreeMap<String, ModelConfig>,
        default_provider: Option<String>,
        learnt: learnt::Learnt,
    ) -> io::Result<Self> {
        let mut providers = BTreeMap::new();
        for (name, provider) in configured {
            let provider = Arc::new(Provider::new(name, provider)?);
            providers.insert(name.clone(), provider);
        }
        Ok(Self {
            providers,
            models,
            default_provider,
            learnt,
            reported: Mutex::default(),
        })
    }

    /// Who serves `model`; `chosen` is a provider that the client named beside it.
    ///
    /// An empty name, as of a request without one, goes to the default provider.
    ///
    /// # Errors
    /// Nobody does; the message names what exists.
    pub fn resolve(&self, model: &str, chosen: Option<&str>) -> Result<Target, Unknown> {
        let (provider, name) = match chosen {
            Some(chosen) => {
                let own = model.strip_prefix(chosen).and_then(|m| m.strip_prefix('/'));
                (self.named(chosen)?, own.unwrap_or(model))
            }
            None => self.serving(model)?,
        };
        let settings = [model, &format!("{}/{name}", provider.name), name]
            .into_iter()
            .find_map(|name| self.models.get(name))
            .cloned()
            .unwrap_or_default();
        let window = self.window(provider, name, &settings);
        Ok(Target {
            provider: Arc::clone(provider),
            model: name.to_owned(),
            window,
            settings,
        })
    }

    /// Who may answer for `model`; `chosen` is a provider that the client named beside it, and then
    /// nobody else does.
    ///
    /// # Errors
    /// Nobody does; the message names what exists.
    pub fn choose(&self, model: &str, chosen: Option<&str>) -> Result<Choice, Unknown> {
        let target = self.resolve(model, chosen)?;
        Ok(Choice {
            deployments: vec![(target, 1)],
            fallbacks: Vec::new(),
        })
    }

    /// The model to use instead of cutting a conversation, where one is configured and its window
    /// is larger.
    pub fn larger(&self, target: &Target) -> Option<Target> {
        let larger = self
            .resolve(target.settings.larger.as_deref()?, None)
            .ok()?;
        (larger.window.tokens > target.window.tokens).then_some(larger)
    }

    /// The window of a model as it is known now.
    pub fn window_of(&self, target: &Target) -> Window {
        self.window(&target.provider, &target.model, &target.settings)
    }

    /// The provider of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(&self, name: &str) -> Result<&Arc<Provider>, Unknown> {
        self.providers.get(name).ok_or_else(|| Unknown::Provider {
            name: name.to_owned(),
            existing: self.names(),
        })
    }

    /// Who gets what names no model: the default provider, else the only one.
    ///
    /// # Errors
    /// There are several, and none is the default.
    pub fn fallback(&self) -> Result<&Arc<Provider>, Unknown> {
        if let Some(name) = &self.default_provider {
            return self.named(name);
        }
        let mut remote = self
            .providers
            .values()
            .filter(|provider| provider.is_remote());
        match (remote.next(), remote.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(Unknown::Model {
                model: String::new(),
                existing: self.names(),
            }),
        }
    }

    /// Every model that is known by name, as `provider/model`, with its window.
    pub fn models(&self) -> BTreeMap<String, Window> {
        let mut models = BTreeMap::new();
        let patterns = self.providers.values().flat_map(|provider| {
            let names = provider.config.models.iter().map(String::as_str);
            let own = provider.own_models().iter().map(|(name, _)| *name);
            names
                .chain(own)
                .map(move |name| (name, Some(&*provider.name)))
        });
        let told = self.models.iter();
        let told = told.map(|(name, model)| (name.as_str(), model.provider.as_deref()));
        let simulated = simulated::models().iter();
        let simulated = simulated.map(|(name, _)| (*name, Some(SIMULATED)));
        for (name, provider) in patterns.chain(told).chain(simulated) {
            if !name.ends_with('*')
                && let Ok(target) = self.resolve(name, provider)
            {
                let id = format!("{}/{}", target.provider.name, target.model);
                models.insert(id, target.window);
            }
        }
        models
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.providers.keys().map(String::as_str).collect();
        names.join(", ")
    }

    fn serving<'m>(&self, model: &'m str) -> Result<(&Arc<Provider>, &'m str), Unknown> {
        if let Some((left, right)) = model.split_once('/')
            && let Some(provider) = self.providers.get(left)
        {
            return Ok((provider, right));
        }
        if let Some(name) = self.models.get(model).and_then(|m| m.provider.as_deref()) {
            return Ok((self.named(name)?, model));
        }
        if let Some(provider) = self.matching(model)? {
            return Ok((provider, model));
        }
        let fallback = self.fallback().map_err(|_| Unknown::Model {
            model: model.to_owned(),
            existing: self.names(),
        })?;
        Ok((fallback, model))
    }

    /// The provider with the most exact pattern for a bare name.
    fn matching(&self, model: &str) -> Result<Option<&Arc<Provider>>, Unknown> {
        let exactness = |provider: &Arc<Provider>| {
            let patterns = provider.config.models.iter();
            let matching = patterns.filter(|pattern| matches(pattern, model));
            matching
                .map(|pattern| (!pattern.ends_with('*'), pattern.len()))
                .max()
        };
        let Some(best) = self.providers.values().filter_map(exactness).max() else {
            return Ok(None);
        };
        let candidates: Vec<_> = self
            .providers
            .values()
            .filter(|provider| exactness(provider) == Some(best))
            .collect();
        if let [only] = candidates[..] {
            return Ok(Some(only));
        }
        let names: Vec<_> = candidates.iter().map(|provider| &*provider.name).collect();
        Err(Unknown::Ambiguous {
            model: model.to_owned(),
            candidates: names.join(", "),
        })
    }

    fn window(&self, provider: &Provider, model: &str, settings: &ModelConfig) -> Window {
        let entry = provider.known(model);
        let input = settings
            .input_length
            .or_else(|| entry.as_ref().and_then(|entry| entry.input));
        let (tokens, source) = if let Some(tokens) = settings.context_length {
            (tokens, Source::Config)
        } else if let Some(entry) = &entry {
            (entry.context, Source::Catalogue)
        } else if let Some(input) = settings.input_length {
            (input, Source::Config)
        } else {
            self.report(&provider.name, model);
            (ASSUMED_WINDOW, Source::Assumed)
        };
        Window {
            tokens,
            input,
            source,
        }
    }

    /// Says once of a model that its window is not known.
    fn report(&self, provider: &str, model: &str) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() < MAX_REPORTED && reported.insert(format!("{provider}/{model}")) {
            tracing::warn!(
                provider,
                model,
                window = ASSUMED_WINDOW,
                "the window of this model is not known and is assumed; set models.NAME.context_length"
            );
        }
    }
}

/// Whether a name fits a pattern, which may have a `*` at its end.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests;
