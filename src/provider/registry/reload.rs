//! A registry under other settings, which goes on where the one before is.
//!
//! What is learnt of windows is shared, and so is a provider whose settings are the same, with its
//! connections and its breaker. Requests that began with the registry before keep it, and with it the
//! providers that are no more.
//!
//! Lessons go by a provider's name and address, so that an answer that began before a reload teaches nothing of
//! whoever has the name after it.

use std::{collections::BTreeMap, io, sync::Arc};

use super::Registry;
use crate::{
    config::Config,
    provider::{Provider, catalogue::fetched_catalogue::FetchedCatalogue, names::ModelNames},
};

impl Registry {
    /// The same under other settings. Nothing changes here, nor is anything begun, before
    /// [`Registry::take_over`].
    ///
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub fn with_settings(&self, config: &Config) -> io::Result<Self> {
        let mut providers = BTreeMap::new();
        for (name, settings) in &config.providers {
            let known = self.providers.get(name);
            let provider = match known.filter(|provider| provider.config == *settings) {
                Some(provider) => Arc::clone(provider),
                None => Arc::new(Provider::new(name, settings)?),
            };
            providers.insert(name.clone(), provider);
        }
        let fetched = match &self.fetched {
            Some(fetched) if fetched.matches_settings(&config.catalogue) => {
                Some(Arc::clone(fetched))
            }
            _ => FetchedCatalogue::open(&config.catalogue, &config.server.data_dir),
        };
        Ok(Self {
            providers,
            names: ModelNames::new(config),
            client_keys: !config.clients.is_empty(),
            learnt: Arc::clone(&self.learnt),
            listed: Arc::clone(&self.listed),
            fetched,
            background: Arc::clone(&self.background),
            reported: Arc::clone(&self.reported),
        })
    }

    /// Goes on in the place of `before`, of which it was made. What providers taught is kept for as
    /// long as they stay where they are.
    pub fn take_over(&self, before: &Self, config: &Config) {
        let fetched = |registry: &Self| registry.fetched.as_ref().map(Arc::as_ptr);
        if fetched(self) != fetched(before) {
            self.start_catalogue_refresh();
        }
        self.learnt.set_max_age(config.catalogue.learnt_max_age);
        let places: Vec<_> = self.providers.values().map(|one| &one.endpoint).collect();
        let before = before.providers.values().map(|one| &one.endpoint);
        for gone in before.filter(|place| !places.contains(place)) {
            self.learnt.forget_endpoint(gone);
        }
        self.listed.keep_only(&places);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, Instant, SystemTime},
    };

    use super::Registry;
    use crate::{
        config::{Config, ProviderConfig},
        provider::Bounds,
    };

    /// Two providers that are set like the built-in one, but for their address.
    fn config() -> Config {
        let mut config = Config::default();
        for (name, base_url) in [("a", "http://a/v1"), ("b", "http://b/v1")] {
            let mut provider = config.providers["simulated"].clone();
            provider.base_url = Some(base_url.to_owned());
            config.providers.insert(name.to_owned(), provider);
        }
        config
    }

    fn change(config: &mut Config, name: &str, change: impl FnOnce(&mut ProviderConfig)) {
        change(config.providers.get_mut(name).unwrap());
    }

    #[test]
    fn providers_that_are_set_as_before_are_the_same() {
        let mut config = config();
        let before = Registry::new(&config).unwrap();
        change(&mut config, "b", |b| {
            b.idle_timeout = Duration::from_secs(1)
        });
        let after = before.with_settings(&config).unwrap();
        let same = |name: &str| Arc::ptr_eq(&before.providers[name], &after.providers[name]);
        assert!(same("a") && same("simulated") && !same("b"));
        let place = |registry: &Registry| Arc::clone(&registry.providers["b"].endpoint);
        assert_eq!(place(&before), place(&after), "it is where it was");
    }

    #[test]
    fn what_a_provider_taught_stays_while_it_stays() {
        let mut config = config();
        let before = Registry::new(&config).unwrap();
        let now = SystemTime::now();
        let place =
            |registry: &Registry, name: &str| Arc::clone(&registry.providers[name].endpoint);
        let known = |registry: &Registry, name: &str| {
            registry
                .learnt
                .find_bounds(&place(registry, name), "m", now)
        };
        for name in ["a", "b"] {
            let there = place(&before, name);
            before.learnt.record_truncation(&there, "m", 5_000, now);
            assert!(
                before
                    .listed
                    .begin_if_due(&before.providers[name].endpoint, Instant::now())
            );
        }
        change(&mut config, "a", |a| {
            a.idle_timeout = Duration::from_secs(1)
        });
        change(&mut config, "b", |b| {
            b.base_url = Some("http://c/v1".to_owned())
        });
        config.catalogue.learnt_max_age = Duration::from_secs(10);
        let after = before.with_settings(&config).unwrap();
        after.take_over(&before, &config);
        assert_ne!(known(&before, "a"), Bounds::default());
        assert_eq!(known(&before, "b"), Bounds::default(), "it is gone");
        // An answer of the one before ends.
        before
            .learnt
            .record_truncation(&place(&before, "b"), "m", 4_000, now);
        assert_ne!(known(&after, "a"), Bounds::default());
        assert_eq!(known(&after, "b"), Bounds::default());
        let awaited = |name: &str| after.listed.is_awaited(&after.providers[name].endpoint);
        assert!(awaited("a") && !awaited("b"));
        // What is taught from now on holds for as long as the new settings say.
        after
            .learnt
            .record_truncation(&place(&after, "b"), "m", 5_000, now);
        let later = now + Duration::from_secs(11);
        assert_ne!(known(&after, "b"), Bounds::default());
        let later = |name| after.learnt.find_bounds(&place(&after, name), "m", later);
        assert_eq!(later("b"), Bounds::default());
        assert_ne!(later("a"), Bounds::default());
    }

    #[tokio::test]
    async fn a_catalogue_is_fetched_by_one_task_however_often_its_address_changes() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config();
        config.server.data_dir = folder.path().into();
        let url = |n: u32| Some(format!("http://127.0.0.1:9/{n}"));
        config.catalogue.url = url(0);
        let mut registry = Registry::new(&config).unwrap();
        registry.start();
        let metrics = tokio::runtime::Handle::current().metrics();
        for n in 1..20 {
            let same = registry.with_settings(&config).unwrap();
            let fetched = |registry: &Registry| registry.fetched.as_ref().map(Arc::as_ptr);
            assert_eq!(fetched(&same), fetched(&registry));
            config.catalogue.url = url(n);
            let next = registry.with_settings(&config).unwrap();
            next.take_over(&registry, &config);
            registry = next;
        }
        let alive = async |most| {
            let fallen = async {
                while metrics.num_alive_tasks() > most {
                    tokio::task::yield_now().await;
                }
            };
            let limit = Duration::from_secs(20);
            tokio::time::timeout(limit, fallen).await.expect("in time");
        };
        alive(1).await;
        config.catalogue.url = None;
        let off = registry.with_settings(&config).unwrap();
        off.take_over(&registry, &config);
        alive(0).await;
    }
}
