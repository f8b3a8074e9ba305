//! The list of one provider: what was listed last, and when to ask again.

use std::{
    collections::BTreeMap,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use super::{
    ModelListError,
    parse_list::{Listed, ListedModel},
};
use crate::{
    provider::{Bounds, Provider},
    unix_time::unix_ms_now,
};

/// The time to the next request, after a list and after a failure.
pub(super) const FRESH_FOR: Duration = Duration::from_secs(3_600);
pub(super) const PAUSE: Duration = Duration::from_secs(60);
/// The same of an engine that may have been restarted, or may have loaded a model of unknown window.
pub(super) const SHORT_PAUSE: Duration = Duration::from_secs(1);
/// How often it is asked so soon for one model, and for how many models.
pub(super) const MAX_TRIES: u8 = 3;
const MAX_NAMED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct ModelList {
    pub(super) asking: bool,
    /// When it was asked last, and the same in milliseconds since 1970; `None` before the first answer or failure.
    pub(super) asked: Option<Instant>,
    pub(super) asked_ms: u64,
    pub(super) failed: bool,
    pub(super) is_engine: bool,
    /// What is known may be wrong: the engine refused a prompt, or could not be reached.
    pub(super) stale: bool,
    /// Models that requests named, and how often their windows were asked for.
    pub(super) named: BTreeMap<String, u8>,
    pub(super) models: BTreeMap<String, ListedModel>,
    /// The windows with which models were loaded last, in tokens. A model that was unloaded is loaded with the same window
    /// again, unless its settings change.
    pub(super) loaded: BTreeMap<String, u32>,
}

/// A model whose window is another one than before, in tokens.
pub(super) struct ChangedWindow {
    pub(super) id: String,
    pub(super) before: Option<u32>,
    pub(super) now: Option<u32>,
}

impl ModelList {
    pub(super) fn is_awaited(&self) -> bool {
        self.asking && self.asked.is_none()
    }

    pub(super) fn find_bounds(&self, model: &str) -> Option<Bounds> {
        let listed = find_by_tag(&self.models, model)?.bounds;
        Some(match find_by_tag(&self.loaded, model) {
            Some(&loaded) => Bounds {
                window: Some(loaded),
                ..listed
            },
            None => listed,
        })
    }

    /// Notes a model that a request named. Returns whether to ask again may tell its window.
    pub(super) fn note_named(&mut self, model: &str) -> bool {
        let is_unknown = |it: Bounds| it.window.is_none();
        let is_open = self.asked.is_none() || self.find_bounds(model).is_some_and(is_unknown);
        if is_open && !self.named.contains_key(model) {
            if self.named.len() >= MAX_NAMED {
                self.named.clear();
            }
            self.named.insert(model.to_owned(), 0);
        }
        let may_try = |tries: &u8| *tries < MAX_TRIES;
        is_open && self.named.get(model).is_some_and(may_try)
    }

    /// The time from the last answer or failure to the next question.
    pub(super) fn pause(&self, provider: &Provider, may_learn: bool) -> Duration {
        let is_engine = self.is_engine
            || provider.config.profile.is_engine()
            || (self.failed && provider.is_on_this_machine());
        let was_away = || provider.unreachable_ms.load(Relaxed) > self.asked_ms;
        if is_engine && (self.stale || may_learn || was_away()) {
            SHORT_PAUSE
        } else if is_engine || self.failed {
            PAUSE
        } else {
            FRESH_FOR
        }
    }

    /// The models whose windows differ from those before.
    pub(super) fn record_answer(
        &mut self,
        listed: Result<Listed, ModelListError>,
        now: Instant,
    ) -> Result<Vec<ChangedWindow>, ModelListError> {
        (self.asking, self.asked, self.asked_ms) = (false, Some(now), unix_ms_now());
        self.failed = listed.is_err();
        self.stale |= listed.as_ref().is_err_and(ModelListError::may_end_soon);
        let listed = listed?;
        let window = |list: &Self, id: &str| list.find_bounds(id)?.window;
        let ids = listed.models.keys().cloned();
        let before: Vec<_> = ids.map(|id| (window(self, &id), id)).collect();
        let is_same = |id: &String| {
            let models = [&self.models, &listed.models];
            let [before, now] = models.map(|models| models.get(id).map(|it| it.bounds));
            before == now
        };
        self.loaded.retain(|id, _| is_same(id));
        let is_listed = |id: &String| listed.models.contains_key(id);
        let loaded = listed.loaded.into_iter().filter(|(id, _)| is_listed(id));
        self.loaded.extend(loaded);
        (self.models, self.is_engine) = (listed.models, listed.is_engine);
        let changed = before.into_iter().filter_map(|(before, id)| {
            let now = window(self, &id);
            (now != before).then_some(ChangedWindow { id, before, now })
        });
        Ok(changed.collect())
    }
}

/// What is known of a model. Ollama lists it by its tag, also where the client does not name it.
pub(super) fn find_by_tag<'m, T>(models: &'m BTreeMap<String, T>, model: &str) -> Option<&'m T> {
    let latest = || models.get(&format!("{model}:latest"));
    models.get(model).or_else(latest)
}
