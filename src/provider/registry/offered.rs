//! The names that clients may use, for lists of models.

use std::{collections::BTreeSet, sync::PoisonError};

use super::{Registry, Target};
use crate::provider::Source;

/// A name that clients may use.
#[derive(Clone, Debug)]
pub struct Offered {
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
    pub fn offered(&self) -> Vec<Offered> {
        let mut names = BTreeSet::new();
        for (name, provider) in self.names.spelt_out() {
            if self.names.has_deployments(name) {
                names.insert(name.to_owned());
            } else if let Ok(choice) = self.look_up(name, provider) {
                names.extend(choice.deployments().iter().map(|(target, _)| target.id()));
            }
        }
        for (name, provider) in &self.providers {
            let own = provider.own_models().iter();
            let own = own.map(|(model, _)| (*model).to_owned());
            let ids = own.chain(self.listed.ids(&provider.place));
            names.extend(ids.map(|model| format!("{name}/{model}")));
        }
        names.extend(self.names.aliases().map(str::to_owned));
        let offers = names.iter().filter_map(|name| self.offer(name));
        offers.collect()
    }

    /// A name that clients may use: one that somebody spelt out, or one of which more is known than
    /// that the default provider would be asked for it.
    pub fn find(&self, id: &str) -> Option<Offered> {
        let found = self.offer(id)?;
        let known = found.is_configured || found.target.window.source != Source::Assumed;
        let spelt_out = || self.offered().into_iter().any(|one| one.id == id);
        (known || spelt_out()).then_some(found)
    }

    /// Names that clients used and of which nobody knew the window, as they stand now; of many, some.
    pub fn seen(&self) -> Vec<Offered> {
        let reported = self.reported.lock();
        let reported = reported.unwrap_or_else(PoisonError::into_inner).clone();
        let offers = reported.iter().filter_map(|name| self.offer(name));
        offers.collect()
    }

    fn offer(&self, id: &str) -> Option<Offered> {
        let choice = self.look_up(id, None).ok()?;
        let is_configured = choice.asked_is_configured;
        let places = choice.deployments().iter().map(|(target, _)| target);
        let target = places.min_by_key(|target| target.window.tokens)?.clone();
        Some(Offered {
            id: id.to_owned(),
            target,
            is_configured,
        })
    }
}
