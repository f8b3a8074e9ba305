//! The names that clients may use, for lists of models.

use std::collections::{BTreeMap, BTreeSet};

use super::{Registry, Target};
use crate::provider::{WindowSource, catalogue::look_up_window_by_name, matches_pattern};

/// A name that clients may use.
#[derive(Clone, Debug)]
pub struct OfferedModel {
    pub id: String,
    /// The deployment with the smallest window: what fits there fits all of them.
    pub target: Target,
    /// An alias, or a model with deployments. Such a name may be permitted to a client by itself.
    pub is_configured: bool,
}

impl Registry {
    /// Every name that the settings or a provider's list spell out, sorted by name.
    pub fn list_offered_models(&self) -> Vec<OfferedModel> {
        let mut names = BTreeSet::new();
        for (name, provider) in self.names.list_configured_names() {
            if self.names.has_deployments(name) {
                names.insert(name.to_owned());
            } else if let Ok(choice) = self.look_up_candidates(name, provider) {
                names.extend(choice.deployments().iter().map(|(target, _)| target.id()));
            }
        }
        let listed = self.providers.iter();
        for (name, provider) in listed.filter(|(name, _)| self.names.is_listed(name)) {
            let built_in = provider.built_in_models().iter();
            let built_in = built_in.map(|(model, _)| (*model).to_owned());
            let ids = built_in.chain(self.listed.list_ids(&provider.endpoint));
            names.extend(ids.map(|model| format!("{name}/{model}")));
        }
        names.extend(self.names.list_aliases().map(str::to_owned));
        let offers = names.iter().filter_map(|name| self.offer_name(name));
        offers.collect()
    }

    /// The same, with the bare name of each `provider/model` that leads only there: clients use it
    /// without a proxy. Sorted by name.
    pub fn list_offered_by_all_names(&self) -> Vec<OfferedModel> {
        let offered = self.list_offered_models();
        let bare = offered.iter().filter_map(|full| self.offer_bare_name(full));
        let bare: Vec<_> = bare.collect();
        let mut all = BTreeMap::new();
        for model in offered.into_iter().chain(bare) {
            all.entry(model.id.clone()).or_insert(model);
        }
        all.into_values().collect()
    }

    /// The same model under its bare name; `None`: the name does not lead to this model alone.
    fn offer_bare_name(&self, offered: &OfferedModel) -> Option<OfferedModel> {
        let choice = self.look_up_candidates(&offered.target.model, None).ok()?;
        match choice.deployments() {
            [(only, _)] if only.id() == offered.id => Some(OfferedModel {
                id: offered.target.model.clone(),
                target: only.clone(),
                is_configured: choice.asked_is_configured,
            }),
            _ => None,
        }
    }

    /// The model of a name that is spelt out, or whose window is known; `None` for a name that would
    /// only go to the default provider.
    pub fn find_offered(&self, id: &str) -> Option<OfferedModel> {
        let found = self.offer_name(id)?;
        let is_known = found.is_configured || found.target.window.source != WindowSource::Assumed;
        let is_listed = || {
            let all = self.list_offered_by_all_names();
            all.iter().any(|model| model.id == id)
        };
        (is_known || is_listed()).then_some(found)
    }

    /// The names that a pattern covers, of those that are offered or that the catalogue has for a provider, sorted.
    pub fn list_covered_names(&self, pattern: &str) -> BTreeSet<String> {
        let offered = self.list_offered_by_all_names().into_iter();
        let mut names: BTreeSet<String> = offered.map(|offered| offered.id).collect();
        let catalogue = self.current_catalogue();
        for (name, provider) in &self.providers {
            for model in provider.list_catalogue_models(&catalogue) {
                names.insert(format!("{name}/{model}"));
                if self.names.is_claimed(model) {
                    names.insert(model.to_owned());
                }
            }
        }
        names.retain(|name| matches_pattern(pattern, name));
        names
    }

    /// The model of any name.
    ///
    /// # Errors
    /// No provider serves it. The message has the catalogue's window too, where all providers there agree on one.
    pub fn explain_name(&self, name: &str) -> Result<OfferedModel, String> {
        let refused = match self.look_up_candidates(name, None) {
            Ok(_) => "it has no deployment".to_owned(),
            Err(error) => error.to_string(),
        };
        let known = look_up_window_by_name(&self.current_catalogue(), name);
        let known = known.map(|window| {
            let tokens = window.tokens;
            format!("\nThe catalogue has it with a window of {tokens} tokens.")
        });
        let found = self.offer_name(name);
        found.ok_or_else(|| format!("{name}: {refused}{}", known.unwrap_or_default()))
    }

    /// Names that clients used and whose window was unknown then, as they stand now; of many, some.
    pub fn list_reported(&self) -> Vec<OfferedModel> {
        let reported = self.reported.lock().clone();
        let offers = reported.iter().filter_map(|name| self.offer_name(name));
        // Other reports are no names of models.
        offers.filter(|it| it.id == it.target.id()).collect()
    }

    fn offer_name(&self, id: &str) -> Option<OfferedModel> {
        let choice = self.look_up_candidates(id, None).ok()?;
        let targets = choice.deployments().iter().map(|(target, _)| target);
        let smallest = targets.min_by_key(|target| target.window.tokens)?;
        Some(OfferedModel {
            id: id.to_owned(),
            target: smallest.clone(),
            is_configured: choice.asked_is_configured,
        })
    }
}
