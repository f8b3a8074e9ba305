//! The registry: from the name of a model to its candidates, their windows and settings.
//!
//! Providers are identified by their configured names, never by what they say of themselves. Windows
//! change by what errors, lists of models and a fetched catalogue teach; no completion waits for that.
//! A registry under new settings keeps the learnt windows, and each provider whose settings did not
//! change, with its connections and its breaker.

mod current_window;
mod offered_models;
mod reload;
mod target;

use std::{
    collections::{BTreeMap, HashSet},
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;

pub(super) use self::target::try_lend_credentials;
pub use self::{offered_models::OfferedModel, target::Target};
use super::{
    ModelCandidates, Provider, Window,
    background::BackgroundTasks,
    catalogue::{
        fetched_catalogue::{CatalogueFetchError, FetchedCatalogue},
        table::{WindowTable, built_in_date, built_in_since, built_in_table},
    },
    learnt_windows::{LearntWindows, LessonScope},
    model_lists::{ModelListError, ModelLists},
    names::{MAX_NAME_BYTES, ModelNameError, ModelNames, ResolvedDeployment, strip_long_window},
    overflow::hide_private,
};
use crate::config::{Config, Outgoing};

/// Models with an unknown window, and unknown wordings, that are remembered as logged.
const MAX_REPORTED: usize = 1_024;

/// All providers.
#[derive(Clone, Debug)]
pub struct Registry {
    providers: BTreeMap<String, Arc<Provider>>,
    names: ModelNames,
    outgoing: Outgoing,
    pub learnt: Arc<LearntWindows>,
    listed: Arc<ModelLists>,
    /// `None`: `catalogue.url` is not set.
    fetched: Option<Arc<FetchedCatalogue>>,
    background: Arc<BackgroundTasks>,
    reported: Arc<Mutex<HashSet<String>>>,
}

/// A provider's name, and how many models it listed.
pub type ModelListResult = (Arc<str>, Result<usize, ModelListError>);

impl Registry {
    /// Sends no request before [`Registry::start`].
    ///
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub fn new(config: &Config) -> io::Result<Self> {
        let empty = Self {
            providers: BTreeMap::new(),
            names: ModelNames::new(config),
            outgoing: config.server.outgoing.clone(),
            learnt: Arc::new(LearntWindows::new(config.catalogue.learnt_max_age)),
            listed: Arc::default(),
            fetched: None,
            background: Arc::default(),
            reported: Arc::default(),
        };
        empty.with_settings(config)
    }

    /// Begins to fetch the catalogue and the lists of models in the background. This ends when the
    /// last registry made from this one is dropped. Called from within a runtime.
    pub fn start(&self) {
        if self.background.start() {
            self.start_catalogue_refresh();
        }
    }

    /// The deployment of `model` with the largest weight; `chosen` is a provider that the client named
    /// beside it. An empty name goes to the default provider. Logs nothing.
    ///
    /// # Errors
    /// No provider serves it; the message names what exists.
    pub fn resolve_target(
        &self,
        model: &str,
        chosen: Option<&str>,
    ) -> Result<Target, ModelNameError> {
        let heaviest = self.look_up_candidates(model, chosen)?.pick_heaviest();
        heaviest.ok_or_else(|| self.names.unknown_model(model))
    }

    /// The candidates for `model`, only of provider `chosen` where the client named one. Logs a warning
    /// for each unknown window.
    ///
    /// # Errors
    /// No provider serves it; the message names what exists.
    pub fn choose_candidates(
        &self,
        model: &str,
        chosen: Option<&str>,
    ) -> Result<ModelCandidates, ModelNameError> {
        let choice = self.look_up_candidates(model, chosen)?;
        for target in choice.targets() {
            self.ask_for_window(target);
            self.warn_unknown_window(target);
        }
        Ok(choice)
    }

    /// The same as [`Registry::choose_candidates`], with its errors, but logs nothing.
    pub fn look_up_candidates(
        &self,
        model: &str,
        chosen: Option<&str>,
    ) -> Result<ModelCandidates, ModelNameError> {
        if model.len() > MAX_NAME_BYTES {
            return Err(ModelNameError::LongName);
        }
        let bare = self.strip_suffix(model, chosen);
        let asked = bare.unwrap_or(model);
        let name = self.names.resolve_aliases(asked, chosen);
        let configured = self.names.find_deployments(&name, chosen);
        let asked_is_configured = *name != *asked
            || configured.is_some()
            || chosen.is_none() && self.names.is_redirected(&name);
        let deployments = match configured {
            Some(deployments) => deployments,
            None => self.names.resolve_deployments(&name, chosen)?,
        };
        let (mut taken, mut lent) = (HashSet::new(), None);
        let first = deployments.first();
        let fallbacks = first.map(|first| first.settings.fallback.clone());
        let fallbacks = fallbacks.into_iter().flatten().filter_map(|name| {
            // The configuration check refuses a fallback that no provider serves.
            let name = self.names.resolve_aliases(&name, None);
            let mut group = self.names.resolve_deployments(&name, None).ok()?;
            group.retain(|next| chosen.is_none_or(|chosen| next.served_model.provider == chosen));
            Some(group)
        });
        let groups = std::iter::once(deployments)
            .chain(fallbacks)
            .map(|mut group| {
                group.retain(|next| taken.insert(next.served_model.clone()));
                let targets = group.into_iter().filter_map(|next| {
                    let weight = next.weight;
                    let mut target = self.make_target(next, chosen).ok()?;
                    target.asks_long_window = bare.is_some();
                    try_lend_credentials(&mut lent, &target.provider).then_some((target, weight))
                });
                targets.collect()
            });
        Ok(ModelCandidates {
            groups: groups.collect(),
            asked: asked.to_owned(),
            asked_is_configured,
        })
    }

    /// A requested name without the suffix for the long window; `None` where it has none, or where the settings or the
    /// provider's list have a model of that very name.
    fn strip_suffix<'m>(&self, model: &'m str, chosen: Option<&str>) -> Option<&'m str> {
        let bare = strip_long_window(model)?;
        let served = self.names.resolve_model(model, chosen).ok();
        let is_model = served.is_some_and(|served| {
            let provider = self.providers.get(&served.provider);
            provider.is_some_and(|provider| self.is_spelt_out(provider, &served.model))
        });
        (!is_model && !self.names.has_section(model)).then_some(bare)
    }

    /// The model to use instead of cutting a conversation, where one is configured and its window
    /// is larger.
    pub fn find_larger(&self, target: &Target) -> Option<Target> {
        let larger = target.settings.larger.as_deref()?;
        let larger = self.resolve_target(larger, None).ok()?;
        let mut lent = None;
        let fits = try_lend_credentials(&mut lent, &target.provider)
            && try_lend_credentials(&mut lent, &larger.provider)
            && larger.window.tokens > target.window.tokens;
        let larger = fits.then_some(larger)?;
        self.warn_unknown_window(&larger);
        Some(larger)
    }

    /// All providers, by name.
    pub fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.providers.values().map(|provider| &**provider)
    }

    /// The same, to be kept.
    pub fn shared_providers(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.providers.values()
    }

    /// Whether the settings, the provider's list or the catalogue have a model of exactly that name, so
    /// that it is not only a client's text.
    pub fn is_spelt_out(&self, provider: &Provider, model: &str) -> bool {
        let full_name = format!("{}/{model}", provider.name);
        let is_configured = |(name, owner): &(&str, Option<&str>)| {
            (*name == model || *name == full_name)
                && owner.is_none_or(|owner| owner == &*provider.name)
        };
        self.listed.find_bounds(&provider.endpoint, model).is_some()
            || provider.has_exact_model(model, &self.current_catalogue())
            || self.names.list_configured_names().iter().any(is_configured)
    }

    /// Logs once how a provider words a refusal that no table knows, without what it repeats of the `request`.
    pub fn warn_unknown_wording(&self, target: &Target, wording: &str, request: &[u8]) {
        let (provider, model) = (&*target.provider.name, &*target.model);
        if self.is_first_report(format!("{provider}: {wording}")) {
            let wording = hide_private(wording, request);
            tracing::warn!(
                provider,
                model,
                wording,
                "{provider} refused a request with an unknown error text; if the text is about the length of the request, please report it"
            );
        }
    }

    /// # Errors
    /// There is no provider of that name.
    pub fn find_provider(&self, name: &str) -> Result<&Arc<Provider>, ModelNameError> {
        let found = self.providers.get(name);
        found.ok_or_else(|| self.names.unknown_provider(name))
    }

    /// The provider for requests that name no model: the default one, else the only one.
    ///
    /// # Errors
    /// There are several, and none is the default.
    pub fn find_default_provider(&self) -> Result<&Arc<Provider>, ModelNameError> {
        self.find_provider(self.names.find_default_provider()?)
    }

    /// Fetches the catalogue now: its number of models. `None`: no address is configured.
    pub async fn fetch_catalogue(&self) -> Option<Result<usize, CatalogueFetchError>> {
        Some(self.fetched.as_ref()?.refresh_now().await)
    }

    /// Which catalogue is used, and how old it is, for a person.
    pub fn describe_catalogue(&self) -> String {
        let (models, date) = (self.current_catalogue().rows, built_in_date());
        let fetched = self.fetched.as_ref();
        let age = fetched.and_then(|fetched| fetched.describe_age(SystemTime::now()));
        match age {
            Some(age) => format!("catalogue: {age}, {models} models; the rest built in, of {date}"),
            None => format!("catalogue: built in, of {date}, {models} models"),
        }
    }

    /// How old the newest table of windows is.
    pub fn catalogue_age(&self, now: SystemTime) -> Duration {
        let fetched = self.fetched.as_ref();
        let age = fetched.and_then(|fetched| fetched.age_at(now));
        age.unwrap_or_else(|| now.duration_since(built_in_since()).unwrap_or_default())
    }

    /// The fetched table of windows, else the built-in one.
    fn current_catalogue(&self) -> Arc<WindowTable> {
        let fetched = self.fetched.as_ref().and_then(|fetched| fetched.table());
        fetched.unwrap_or_else(|| Arc::clone(built_in_table()))
    }

    /// Refreshes this catalogue from now on, and no longer the one before.
    fn start_catalogue_refresh(&self) {
        let fetched = self.fetched.clone();
        self.background
            .replace_standing_task(fetched.map(FetchedCatalogue::refresh_forever));
    }

    fn make_target(
        &self,
        deployment: ResolvedDeployment,
        chosen: Option<&str>,
    ) -> Result<Target, ModelNameError> {
        let (served, mut settings) = (deployment.served_model, deployment.settings);
        let provider = self.find_provider(&served.provider)?;
        if let Some(chosen) = chosen {
            let is_at_chosen = |name: &String| {
                let name = self.names.resolve_aliases(name, None);
                let found = self.names.resolve_deployments(&name, None);
                found.is_ok_and(|all| all.iter().all(|next| next.served_model.provider == chosen))
            };
            settings.larger = settings.larger.filter(is_at_chosen);
        }
        let mut target = Target {
            window: Window::ASSUMED,
            provider: Arc::clone(provider),
            model: served.model,
            settings,
            scope: LessonScope::default(),
            asks_long_window: false,
            answered: 0,
        };
        target.window = self.current_window(&target);
        Ok(target)
    }

    /// Whether nothing was logged of this yet, and more may be.
    pub fn is_first_report(&self, of: String) -> bool {
        let mut reported = self.reported.lock();
        reported.len() < MAX_REPORTED && reported.insert(of)
    }
}
