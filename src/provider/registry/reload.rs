//! A reload: a registry under new settings takes over from the one before.
//!
//! Both share the learnt windows, and each provider whose settings did not change, with its
//! connections and its breaker. Requests that began with the old registry keep it and its providers.
//!
//! Learnt windows are keyed by a provider's name and address, so that an answer that began before a
//! reload teaches nothing about another server under the same name.

use std::{collections::BTreeMap, io, sync::Arc};

use super::Registry;
use crate::{
    config::Config,
    provider::{Provider, catalogue::fetched_catalogue::FetchedCatalogue, names::ModelNames},
};

impl Registry {
    /// A registry under new settings. This one does not change, and nothing starts, before
    /// [`Registry::take_over`].
    ///
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub fn with_settings(&self, config: &Config) -> io::Result<Self> {
        let mut providers = BTreeMap::new();
        let outgoing = &config.server.outgoing;
        for (name, settings) in &config.providers {
            let provider = match self.providers.get(name) {
                Some(provider) if provider.config == *settings && self.outgoing == *outgoing => {
                    Arc::clone(provider)
                }
                _ => Arc::new(Provider::new(name, settings, outgoing)?),
            };
            providers.insert(name.clone(), provider);
        }
        let fetched = match &self.fetched {
            Some(fetched) if fetched.matches_settings(&config.catalogue, outgoing) => {
                Some(Arc::clone(fetched))
            }
            // Nothing has to be known of models that are built in.
            _ => (config.providers.values())
                .any(|provider| provider.base_url.is_some() && !provider.is_known)
                .then(|| FetchedCatalogue::open(&config.catalogue, &config.server))
                .flatten(),
        };
        Ok(Self {
            providers,
            names: ModelNames::new(config),
            outgoing: outgoing.clone(),
            learnt: Arc::clone(&self.learnt),
            listed: Arc::clone(&self.listed),
            fetched,
            background: Arc::clone(&self.background),
            reported: Arc::clone(&self.reported),
        })
    }

    /// Replaces `before`, from which it was made. Learnt windows and lists are kept for the providers
    /// whose address did not change.
    pub fn take_over(&self, before: &Self, config: &Config) {
        let fetched = |registry: &Self| registry.fetched.as_ref().map(Arc::as_ptr);
        if fetched(self) != fetched(before) {
            self.start_catalogue_refresh();
        }
        self.learnt.set_max_age(config.catalogue.learnt_max_age);
        let providers = self.providers();
        let kept: Vec<_> = providers.map(|provider| &provider.endpoint).collect();
        for provider in before.providers() {
            if !kept.contains(&&provider.endpoint) {
                self.learnt.forget_lessons(&provider.endpoint, None);
            }
        }
        self.listed.keep_only(&kept);
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
        provider::{
            Bounds,
            learnt_windows::{LessonKey, LessonScope},
        },
    };

    /// Two providers that have the settings of the built-in one, but for their address.
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
    fn unchanged_providers_survive_a_reload() {
        let mut config = config();
        let before = Registry::new(&config).unwrap();
        change(&mut config, "b", |b| {
            b.idle_timeout = Duration::from_secs(1)
        });
        let after = before.with_settings(&config).unwrap();
        let same = |name: &str| Arc::ptr_eq(&before.providers[name], &after.providers[name]);
        assert!(same("a") && same("simulated") && !same("b"));
        let endpoint = |registry: &Registry| Arc::clone(&registry.providers["b"].endpoint);
        assert_eq!(
            endpoint(&before),
            endpoint(&after),
            "its address is the same"
        );
    }

    #[test]
    fn learnt_windows_are_kept_while_the_address_is_the_same() {
        let mut config = config();
        let before = Registry::new(&config).unwrap();
        let now = SystemTime::now();
        let endpoint =
            |registry: &Registry, name: &str| Arc::clone(&registry.providers[name].endpoint);
        let key = |registry: &Registry, name: &str| {
            LessonKey::new(&endpoint(registry, name), "m", LessonScope::default())
        };
        let bounds_at = |registry: &Registry, name: &str, time: SystemTime| {
            registry.learnt.find_bounds(&key(registry, name), 0, time)
        };
        let is_known =
            |registry: &Registry, name: &str| bounds_at(registry, name, now) != Bounds::default();
        let truncate = |registry: &Registry, name: &str, tokens: u32| {
            let key = key(registry, name);
            registry.learnt.record_truncation(&key, tokens, now);
        };
        for name in ["a", "b"] {
            truncate(&before, name, 5_000);
            assert!(
                before
                    .listed
                    .begin_if_due(&before.providers[name], None, Instant::now())
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
        assert!(is_known(&before, "a"));
        assert!(!is_known(&before, "b"), "it is gone");
        // An answer that began before the reload ends.
        truncate(&before, "b", 4_000);
        assert!(is_known(&after, "a") && !is_known(&after, "b"));
        let awaited = |name: &str| after.listed.is_awaited(&endpoint(&after, name));
        assert!(awaited("a") && !awaited("b"));
        // What is learnt from now on expires as the new settings say.
        truncate(&after, "b", 5_000);
        assert!(is_known(&after, "b"));
        let later = now + Duration::from_secs(11);
        assert_eq!(bounds_at(&after, "b", later), Bounds::default());
        assert_ne!(bounds_at(&after, "a", later), Bounds::default());
    }

    #[tokio::test]
    async fn one_task_fetches_the_catalogue_however_often_its_address_changes() {
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
        let wait_for_tasks = async |most| {
            let ended = async {
                while metrics.num_alive_tasks() > most {
                    tokio::task::yield_now().await;
                }
            };
            let limit = Duration::from_secs(20);
            tokio::time::timeout(limit, ended).await.expect("in time");
        };
        wait_for_tasks(1).await;
        config.catalogue.url = None;
        let off = registry.with_settings(&config).unwrap();
        off.take_over(&registry, &config);
        wait_for_tasks(0).await;
    }
}
