//! The names that clients may use, for lists of models.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::PoisonError,
};

use super::{Registry, Target};
use crate::provider::WindowSource;

/// A name that clients may use.
#[derive(Clone, Debug)]
pub struct OfferedModel {
    pub id: String,
    /// Who answers to it. Of several places, the one with the smallest window: what fits there
    /// fits everywhere.
    pub target: Target,
    /// Whether it is a name of the settings, which a client may be given by itself.
    pub is_configured: bool,
}

impl Registry {
    /// Every name that clients may use and that somebody spelt out: in the settings, or in a
    /// provider's own list. In the order of the names.
    pub fn list_offered_models(&self) -> Vec<OfferedModel> {
        let mut names = BTreeSet::new();
        for (name, provider) in self.names.list_configured_names() {
            if self.names.has_deployments(name) {
                names.insert(name.to_owned());
            } else if let Ok(choice) = self.look_up_candidates(name, provider) {
                names.extend(choice.deployments().iter().map(|(target, _)| target.id()));
            }
        }
        for (name, provider) in &self.providers {
            let own = provider.built_in_models().iter();
            let own = own.map(|(model, _)| (*model).to_owned());
            let ids = own.chain(self.listed.list_ids(&provider.endpoint));
            names.extend(ids.map(|model| format!("{name}/{model}")));
        }
        names.extend(self.names.list_aliases().map(str::to_owned));
        let offers = names.iter().filter_map(|name| self.offer_name(name));
        offers.collect()
    }

    /// The same, and of each `provider/model` also the bare name, where that leads to it and nowhere
    /// else: it is the name that a client uses without a proxy. In the order of the names.
    pub fn list_offered_by_all_names(&self) -> Vec<OfferedModel> {
        let offered = self.list_offered_models();
        let bare = offered.iter().filter_map(|one| self.offer_bare_name(one));
        let bare: Vec<_> = bare.collect();
        let mut all = BTreeMap::new();
        for one in offered.into_iter().chain(bare) {
            all.entry(one.id.clone()).or_insert(one);
        }
        all.into_values().collect()
    }

    /// The same model under its bare name; `None`: the name leads elsewhere, or nowhere.
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

    /// A name that clients may use: one that somebody spelt out, or one of which more is known than
    /// that the default provider would be asked for it.
    pub fn find_offered(&self, id: &str) -> Option<OfferedModel> {
        let found = self.offer_name(id)?;
        let known = found.is_configured || found.target.window.source != WindowSource::Assumed;
        let spelt_out = || {
            let all = self.list_offered_by_all_names();
            all.into_iter().any(|one| one.id == id)
        };
        (known || spelt_out()).then_some(found)
    }

    /// Names that clients used and of which nobody knew the window, as they stand now; of many, some.
    pub fn list_reported(&self) -> Vec<OfferedModel> {
        let reported = self.reported.lock();
        let reported = reported.unwrap_or_else(PoisonError::into_inner).clone();
        let offers = reported.iter().filter_map(|name| self.offer_name(name));
        offers.collect()
    }

    fn offer_name(&self, id: &str) -> Option<OfferedModel> {
        let choice = self.look_up_candidates(id, None).ok()?;
        let is_configured = choice.asked_is_configured;
        let places = choice.deployments().iter().map(|(target, _)| target);
        let target = places.min_by_key(|target| target.window.tokens)?.clone();
        Some(OfferedModel {
            id: id.to_owned(),
            target,
            is_configured,
        })
    }
}
