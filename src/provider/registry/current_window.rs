//! The window of a model as it is known now, and when providers are asked for it.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use super::{ModelListResult, Registry, Target};
use crate::{
    config::profile::{find_beta_window, list_window_betas},
    provider::{
        Bounds, Provider, Window, WindowSource,
        catalogue::SANE_WINDOWS,
        learnt_windows::{Lesson, LessonKey, LessonScope, RefusedPrompt},
        window,
    },
};

impl Registry {
    /// The window of a model as it is known now, for whom the target is.
    pub fn current_window(&self, target: &Target) -> Window {
        let (provider, model, settings) = (&target.provider, &*target.model, &target.settings);
        let (catalogue, endpoint) = (self.current_catalogue(), &provider.endpoint);
        let catalogued = provider.find_window(model, &catalogue);
        let is_known = catalogued.is_some_and(|window| !window.is_guessed());
        self.ask_list_if_due(provider, None, is_known);
        let (now, key) = (SystemTime::now(), target.lesson_key());
        // An engine has one window for all sessions, whatever one was answered before it was restarted.
        let is_engine = self.listed.is_engine(endpoint);
        let answered = if is_engine { 0 } else { target.answered };
        let learnt = self.learnt.find_bounds(&key, answered, now);
        let base_url = provider.config.base_url.as_deref();
        if let Some(tokens) = find_beta_window(model, target.scope.betas, base_url) {
            let window = Window {
                tokens,
                source: WindowSource::Catalogue,
                ..Window::ASSUMED
            };
            return window::combine_sources(learnt, Bounds::default(), settings, Some(window));
        }
        // A server of one model answers to any name. Settings for the name have precedence.
        let is_set = settings.context_length.or(settings.input_length).is_some();
        let any_name = !is_set && !provider.is_catalogued(&catalogue);
        let only = || self.listed.find_only_bounds(endpoint).filter(|_| any_name);
        let listed = self.listed.find_bounds(endpoint, model).or_else(only);
        let listed = listed.unwrap_or_default();
        let elsewhere = || match settings.context_length.or(listed.window) {
            Some(_) => None,
            None => provider.find_window_elsewhere(model, &catalogue),
        };
        let longest = || {
            let accepted = self.learnt.find_longest_accepted(&key, now);
            accepted.max(learnt.input).max(Some(target.answered))
        };
        let smallest = || {
            let tokens = self.listed.find_smallest_window(endpoint, model)?;
            Some(Window {
                tokens,
                ..Window::ASSUMED
            })
        };
        let found = catalogued.or_else(elsewhere).or_else(smallest);
        let found = found.and_then(|window| match window.is_guessed() {
            // What an error has named is no guess.
            true if learnt.window.is_some() => None,
            true => Some(window.correct_guess(longest())),
            false => Some(window),
        });
        window::combine_sources(learnt, listed, settings, found)
    }

    /// The betas that a request for a model with its window of 1,000,000 tokens needs at its provider, beside those of its
    /// `scope`; 0 where it needs none, or where the account was refused them.
    pub fn find_long_window_betas(&self, target: &Target, scope: LessonScope) -> u8 {
        let base_url = target.provider.config.base_url.as_deref();
        let betas = list_window_betas(&target.model, base_url) & !scope.betas;
        let with = LessonScope {
            betas: scope.betas | betas,
            ..scope
        };
        let key = LessonKey::new(&target.provider.endpoint, &target.model, with);
        let learnt = self.learnt.find_bounds(&key, 0, SystemTime::now()).window;
        // A refused beta is remembered as a window no larger than the plain one (`learn_refused_betas`).
        let is_refused = learnt.is_some_and(|window| window <= self.plain_window(target, scope));
        if is_refused { 0 } else { betas }
    }

    /// Learns that the account of a request does not have the betas that its model needs for the long window, so that the
    /// model has its plain one. `scope`: that of the request without them.
    pub fn learn_refused_betas(&self, target: &Target, scope: LessonScope) {
        let plain = self.plain_window(target, scope);
        let (key, now) = (target.lesson_key(), SystemTime::now());
        self.learnt.record_window(&key, plain, now);
    }

    /// The window of a model without a lesson of one session, in tokens.
    fn plain_window(&self, target: &Target, scope: LessonScope) -> u32 {
        let mut plain = target.clone();
        plain.scope = LessonScope {
            session: None,
            ..scope
        };
        plain.answered = 0;
        self.current_window(&plain).tokens
    }

    /// Asks for the window of a model that a request names, if that is unknown, or only set for a model of an engine: the engine
    /// may have loaded it since its last list. No request waits for it.
    pub fn ask_for_window(&self, target: &Target) {
        let (provider, source) = (&target.provider, target.window.source);
        let is_set = source == WindowSource::Config && self.listed.is_engine(&provider.endpoint);
        if is_set || target.window.is_guessed() {
            self.ask_list_if_due(provider, Some(&target.model), false);
        }
    }

    /// Asks a provider for its list where that is due; `known`: the catalogue has the model.
    fn ask_list_if_due(&self, provider: &Arc<Provider>, named: Option<&str>, known: bool) {
        let is_engine = provider.config.profile.is_engine();
        let wanted = provider.config.ask_models.unwrap_or(!known || is_engine);
        if !wanted
            || provider.why_list_not_asked().is_some()
            || !self.background.is_started()
            || !self.listed.begin_if_due(provider, named, Instant::now())
        {
            return;
        }
        let (listed, learnt) = (Arc::clone(&self.listed), Arc::clone(&self.learnt));
        let provider = Arc::clone(provider);
        self.background.spawn(async move {
            let name = &*provider.name;
            match listed.ask_provider(&provider, &learnt).await {
                Ok(models) => tracing::debug!(provider = name, models, "models listed"),
                Err(error) => tracing::info!(provider = name, %error, "listing models failed"),
            }
        });
    }

    /// Learns from a refusal. The words of an engine of one's own count whatever it answered before: it has one window for all,
    /// and was restarted with a smaller one.
    pub fn learn_from_refusal(&self, target: &Target, refused: &RefusedPrompt) -> Lesson {
        let (key, now, mut refused) = (target.lesson_key(), SystemTime::now(), *refused);
        if self.listed.is_engine(&key.endpoint) {
            self.listed.mark_stale(&key.endpoint);
            refused.answered = 0;
            let named = refused
                .overflow
                .window
                .filter(|named| SANE_WINDOWS.contains(named));
            if named.is_some() && self.learnt.find_longest_accepted(&key, now) > named {
                self.learnt.forget_lessons(&key.endpoint, Some(&key.model));
            }
        }
        self.learnt.record_refused_prompt(&key, &refused, now)
    }

    /// Waits for the first lists of models, but no longer than `limit`. Does nothing before
    /// [`Registry::start`].
    pub async fn wait_for_lists(&self, limit: Duration) {
        if self.background.is_started() {
            // This looks up every model, and so begins to ask every provider whose list is due.
            let _ = self.list_offered_models();
            for provider in self.providers.values() {
                let is_known = provider.is_catalogued(&self.current_catalogue());
                self.ask_list_if_due(provider, None, is_known);
            }
            self.listed.wait_until_settled(limit).await;
        }
    }

    /// Asks every remote provider for its list of models now.
    pub async fn ask_for_lists(&self) -> Vec<ModelListResult> {
        let providers = self.providers.values();
        let remote = providers.filter(|provider| provider.is_remote());
        let asked = remote.map(|provider| async {
            let listed = self.listed.ask_provider(provider, &self.learnt).await;
            (Arc::clone(&provider.name), listed)
        });
        futures_util::future::join_all(asked).await
    }

    /// Logs once for each model that its window is unknown, and not while its provider's first list
    /// is awaited.
    pub(super) fn warn_unknown_window(&self, target: &Target) {
        let (provider, model) = (&*target.provider.name, &*target.model);
        if target.window.source != WindowSource::Assumed
            || self.listed.is_awaited(&target.provider.endpoint)
        {
            return;
        }
        let (id, window) = (target.id(), target.window.tokens);
        if self.is_first_report(id.clone()) {
            tracing::warn!(
                provider,
                model,
                window,
                "the window of {id:?} is unknown, so {window} tokens are assumed; set context_length in [models.{id:?}]"
            );
        }
    }
}
