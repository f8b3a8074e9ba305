//! The registry: the name of a model -> who serves it, what it holds, what is told of it.
//!
//! Providers are told apart by their configured names, never by what they say of themselves. What
//! changes is what is learnt of windows, by errors, lists and a fetched catalogue; no completion waits
//! for any of it. A registry of other settings goes on with what this one has learnt, and with the
//! providers that are set as before, their connections and breakers included.

mod offered_models;
mod reload;

use std::{
    collections::{BTreeMap, HashSet},
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

pub use self::offered_models::OfferedModel;
use super::{
    ASSUMED_WINDOW, ModelCandidates, Provider, Window, WindowSource,
    background::BackgroundTasks,
    catalogue::{
        fetched_catalogue::{CatalogueFetchError, FetchedCatalogue},
        table::{WindowTable, built_in_table},
    },
    learnt_windows::{LearntWindows, Lesson, RefusedPrompt},
    model_lists::{ModelListError, ModelLists},
    names::{MAX_NAME_BYTES, ModelNameError, ModelNames, ResolvedDeployment},
    window,
};
use crate::{
    config::{Auth, Config, GuardConfig, ModelConfig},
    health::limits::{HealthLimits, choose_health_limits},
};

/// Unknown models that are remembered as reported.
const MAX_REPORTED: usize = 1_024;

/// All providers.
#[derive(Debug)]
pub struct Registry {
    providers: BTreeMap<String, Arc<Provider>>,
    names: ModelNames,
    /// Whether clients have keys of their own, so that nothing of theirs is a provider's.
    client_keys: bool,
    /// What providers taught of their windows.
    pub learnt: Arc<LearntWindows>,
    listed: Arc<ModelLists>,
    /// `None`: no address of a newer catalogue is configured.
    fetched: Option<Arc<FetchedCatalogue>>,
    background: Arc<BackgroundTasks>,
    reported: Arc<Mutex<HashSet<String>>>,
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

/// What came of asking a provider for its list of models.
pub type ModelListResult = (Arc<str>, Result<usize, ModelListError>);

impl Registry {
    /// Nobody is asked for anything before [`Registry::start`].
    ///
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub fn new(config: &Config) -> io::Result<Self> {
        let nothing = Self {
            providers: BTreeMap::new(),
            names: ModelNames::new(config),
            client_keys: false,
            learnt: Arc::new(LearntWindows::new(config.catalogue.learnt_max_age)),
            listed: Arc::default(),
            fetched: None,
            background: Arc::default(),
            reported: Arc::default(),
        };
        nothing.with_settings(config)
    }

    /// Begins to fetch the catalogue, and to ask providers for their lists where they are wanted.
    /// All of it ends when this and all that were made of it are dropped. Called from within a runtime.
    pub fn start(&self) {
        if self.background.start() {
            self.start_catalogue_refresh();
        }
    }

    /// Who serves `model`, of several places the one with the largest weight; `chosen` is a provider
    /// that the client named beside it. For whoever only looks: nothing is said in the log.
    ///
    /// An empty name, as of a request without one, goes to the default provider.
    ///
    /// # Errors
    /// Nobody does; the message names what exists.
    pub fn resolve_target(
        &self,
        model: &str,
        chosen: Option<&str>,
    ) -> Result<Target, ModelNameError> {
        let choice = self.look_up_candidates(model, chosen)?;
        choice
            .pick_heaviest()
            .ok_or_else(|| self.names.unknown_model(model))
    }

    /// Who may answer for `model`; `chosen` is a provider that the client named beside it, and then
    /// nobody else does.
    ///
    /// # Errors
    /// Nobody does; the message names what exists.
    pub fn choose_candidates(
        &self,
        model: &str,
        chosen: Option<&str>,
    ) -> Result<ModelCandidates, ModelNameError> {
        let choice = self.look_up_candidates(model, chosen)?;
        for target in choice.targets() {
            self.warn_unknown_window(target);
        }
        Ok(choice)
    }

    /// The same, for whoever only looks: nothing is said in the log.
    ///
    /// # Errors
    /// As with [`Registry::choose`].
    pub fn look_up_candidates(
        &self,
        model: &str,
        chosen: Option<&str>,
    ) -> Result<ModelCandidates, ModelNameError> {
        if model.len() > MAX_NAME_BYTES {
            return Err(ModelNameError::LongName);
        }
        let name = self.names.resolve_aliases(model, chosen);
        let deployed = self.names.find_deployments(&name, chosen);
        let asked_is_configured = *name != *model || deployed.is_some();
        let own = match deployed {
            Some(own) => own,
            None => self.names.resolve_deployments(&name, chosen)?,
        };
        let (mut taken, mut lent) = (HashSet::new(), None);
        let fallbacks = own.first().map(|one| one.settings.fallback.clone());
        let fallbacks = fallbacks.into_iter().flatten().filter_map(|name| {
            // Settings with a fallback that nobody serves are refused.
            let name = self.names.resolve_aliases(&name, None);
            let mut places = self.names.resolve_deployments(&name, None).ok()?;
            places.retain(|one| chosen.is_none_or(|chosen| one.served_model.provider == chosen));
            Some(places)
        });
        let groups = std::iter::once(own).chain(fallbacks).map(|mut group| {
            group.retain(|one| taken.insert(one.served_model.clone()));
            let targets = group.into_iter().filter_map(|one| {
                let weight = one.weight;
                let target = self.make_target(one, chosen).ok()?;
                try_lend_credentials(&mut lent, &target.provider).then_some((target, weight))
            });
            targets.collect()
        });
        Ok(ModelCandidates {
            groups: groups.collect(),
            asked_is_configured,
        })
    }

    /// The model to use instead of cutting a conversation, where one is configured and its window
    /// is larger.
    pub fn find_larger(&self, target: &Target) -> Option<Target> {
        let larger = self
            .resolve_target(target.settings.larger.as_deref()?, None)
            .ok()?;
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

    /// Whether somebody spelt out that name of a model (the settings, its provider's own list, the
    /// catalogue), so that it is more than a client's own words.
    pub fn is_spelt_out(&self, provider: &Provider, model: &str) -> bool {
        let full = format!("{}/{model}", provider.name);
        let is = |name: &str| name == model || name == full;
        self.listed.find_bounds(&provider.endpoint, model).is_some()
            || provider.has_exact_model(model, &self.current_catalogue())
            || self
                .names
                .list_configured_names()
                .iter()
                .any(|(name, of)| is(name) && of.is_none_or(|of| of == &*provider.name))
    }

    /// Learns from a refusal.
    pub fn learn_from_refusal(&self, target: &Target, refused: &RefusedPrompt) -> Lesson {
        let (place, model) = (&target.provider.endpoint, &target.model);
        self.learnt
            .record_refused_prompt(place, model, refused, SystemTime::now())
    }

    /// The window of a model as it is known now.
    pub fn current_window(&self, target: &Target) -> Window {
        self.find_window(&target.provider, &target.model, &target.settings)
    }

    /// The provider of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn find_provider(&self, name: &str) -> Result<&Arc<Provider>, ModelNameError> {
        let found = self.providers.get(name);
        found.ok_or_else(|| self.names.unknown_provider(name))
    }

    /// Who gets what names no model: the default provider, else the only one.
    ///
    /// # Errors
    /// There are several, and none is the default.
    pub fn find_default_provider(&self) -> Result<&Arc<Provider>, ModelNameError> {
        self.find_provider(self.names.find_default_provider()?)
    }

    /// Waits for the first answers of the providers whose lists are wanted, but no longer than
    /// `limit`. Does nothing before [`Registry::start`].
    pub async fn wait_for_lists(&self, limit: Duration) {
        if self.background.is_started() {
            // Every model is looked at, and so every provider is asked whose list is wanted.
            let _ = self.list_offered_models();
            for provider in self.providers.values() {
                self.ask_list_if_due(provider, provider.is_catalogued(&self.current_catalogue()));
            }
            self.listed.wait_until_settled(limit).await;
        }
    }

    /// Asks every provider for its list of models now, and says what came of it.
    pub async fn ask_for_lists(&self) -> Vec<ModelListResult> {
        let remote = self.providers.values().filter(|one| one.is_remote());
        let asked = remote.map(|provider| async {
            let listed = self.listed.ask_provider(provider, self.client_keys).await;
            (Arc::clone(&provider.name), listed)
        });
        futures_util::future::join_all(asked).await
    }

    /// Fetches the catalogue now: how many models there are. `None`: none is configured.
    pub async fn fetch_catalogue(&self) -> Option<Result<usize, CatalogueFetchError>> {
        Some(self.fetched.as_ref()?.refresh_now().await)
    }

    /// The windows of models: what was fetched, else those of the binary.
    fn current_catalogue(&self) -> Arc<WindowTable> {
        let fetched = self.fetched.as_ref().and_then(|fetched| fetched.table());
        fetched.unwrap_or_else(|| Arc::clone(built_in_table()))
    }

    /// Begins to keep the catalogue fresh, in the place of another one.
    fn start_catalogue_refresh(&self) {
        let fetched = self.fetched.clone();
        self.background
            .replace_standing_task(fetched.map(FetchedCatalogue::refresh_forever));
    }

    fn make_target(
        &self,
        one: ResolvedDeployment,
        chosen: Option<&str>,
    ) -> Result<Target, ModelNameError> {
        let provider = self.find_provider(&one.served_model.provider)?;
        let mut settings = one.settings;
        if let Some(chosen) = chosen {
            let leads_there = |name: &str| {
                let place = self.names.resolve_aliases(name, None);
                let found = self.names.resolve_deployments(&place, None);
                found.is_ok_and(|found| found.iter().all(|one| one.served_model.provider == chosen))
            };
            settings.larger = settings.larger.filter(|name| leads_there(name));
        }
        Ok(Target {
            window: self.find_window(provider, &one.served_model.model, &settings),
            provider: Arc::clone(provider),
            model: one.served_model.model,
            settings,
        })
    }

    fn find_window(&self, provider: &Arc<Provider>, model: &str, settings: &ModelConfig) -> Window {
        let catalogue = self.current_catalogue();
        let own = provider.find_window(model, &catalogue);
        self.ask_list_if_due(provider, own.is_some());
        let learnt = self
            .learnt
            .find_bounds(&provider.endpoint, model, SystemTime::now());
        let listed = self.listed.find_bounds(&provider.endpoint, model);
        // A server of one model answers to any name. What else is said of the name has precedence.
        let only = || {
            let told = settings.context_length.or(settings.input_length);
            let one = self.listed.find_only_bounds(&provider.endpoint);
            one.filter(|_| told.is_none() && !provider.is_catalogued(&catalogue))
        };
        let listed = listed.or_else(only).unwrap_or_default();
        let by_name = || {
            let told = settings.context_length.or(listed.window);
            let found = told
                .is_none()
                .then(|| provider.find_window_by_name(model, &catalogue));
            found.flatten()
        };
        window::combine_sources(learnt, listed, settings, own.or_else(by_name))
    }

    /// Asks a provider for its list where that is due; `known`: the catalogue has what was asked for.
    fn ask_list_if_due(&self, provider: &Arc<Provider>, known: bool) {
        let wanted = provider.config.ask_models.unwrap_or(!known);
        if !wanted
            || provider.why_list_hidden().is_some()
            || !self.background.is_started()
            || !self.listed.begin_if_due(&provider.endpoint, Instant::now())
        {
            return;
        }
        let (listed, provider) = (Arc::clone(&self.listed), Arc::clone(provider));
        let client_keys = self.client_keys;
        self.background.spawn(async move {
            let provider_name = &*provider.name;
            match listed.ask_provider(&provider, client_keys).await {
                Ok(models) => tracing::debug!(provider = provider_name, models, "models listed"),
                Err(error) => {
                    tracing::info!(provider = provider_name, %error, "a provider did not list its models");
                }
            }
        });
    }

    /// Says once of a model that its window is not known, and not before its provider had time to
    /// tell it.
    fn warn_unknown_window(&self, target: &Target) {
        let (provider, model) = (&*target.provider.name, &*target.model);
        if target.window.source != WindowSource::Assumed
            || self.listed.is_awaited(&target.provider.endpoint)
        {
            return;
        }
        let id = target.id();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() < MAX_REPORTED && reported.insert(id.clone()) {
            tracing::warn!(
                provider,
                model,
                window = ASSUMED_WINDOW,
                "nobody knows the window of {id:?}, so {ASSUMED_WINDOW} tokens are assumed; set context_length in [models.{id:?}]"
            );
        }
    }
}

impl Target {
    /// Its full name: `provider/model`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.provider.name, self.model)
    }

    /// The prompt sizes at which the level changes; `own` is the budget of one request in tokens, where they
    /// are for one.
    pub fn compute_limits(&self, guard: &GuardConfig, own: Option<u32>) -> HealthLimits {
        let (window, settings) = (self.window, &self.settings);
        let inside = self.provider.config.profile.answer_inside_window;
        choose_health_limits(
            window.known_tokens(),
            window.input,
            inside,
            guard,
            settings,
            own,
        )
    }
}

/// SECURITY: a client's own credentials are for one provider. Of several that would get them, all
/// but the first written are left out. `lent`: the base URL of that one.
pub(super) fn try_lend_credentials(lent: &mut Option<String>, provider: &Provider) -> bool {
    let Auth::Client = provider.config.auth else {
        return true;
    };
    let base_url = provider.config.base_url.as_deref().unwrap_or_default();
    lent.get_or_insert_with(|| base_url.to_owned()) == base_url
}
