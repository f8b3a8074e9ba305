//! What replicas learn from each other through the store: windows of models, and the ratio of estimated to
//! counted tokens.
//!
//! What an answer taught is published before the end of the answer is released, so that any replica that gets
//! the next request of the session knows it. Before a request is planned, what others published is pulled. Of
//! one name the newest value counts. Both are bounded in time, and no request fails for either. Nothing of a
//! conversation or of a client is published.
//!
//! Names come from requests and values from the store: both are bounded. What cannot be read, and what is about
//! a provider that is not configured, is ignored.

use std::{
    collections::BTreeSet,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use futures_util::future::join_all;
use lru::LruCache;
use tokio::time::{timeout, timeout_at};

use crate::{
    provider::{Registry, learnt::Lessons},
    session::ratios::Ratios,
    store::{MAX_SHARED_NAME_BYTES, Store},
    telemetry::metrics::{Metrics, StoreOperation},
};

mod publication;
mod spelling;

use publication::{Publication, Stamped, What, moved, newer, stamped};
use spelling::{Kind, Model, name, place, read_name};

/// How long nothing is pulled after a failure.
const REST: Duration = Duration::from_secs(1);
/// A request that asked the store for nothing has not seen its version: it pulls if nobody did for so long.
const UNSEEN_FOR: Duration = Duration::from_secs(1);

/// Models whose published values are remembered; what is learnt of models has the same bound.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not zero");

/// Publishes and pulls.
pub struct ReplicaSync {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    pull_within: Duration,
    known: Mutex<Known>,
    pulling: Mutex<Pulling>,
    /// Held while one request pulls for all.
    one: tokio::sync::Mutex<()>,
    /// Held while one request publishes for all. Others wait: what they learnt may be on its way.
    publishing: tokio::sync::Mutex<()>,
}

/// What answers teach.
#[derive(Clone, Copy)]
pub struct LearntState<'a> {
    pub registry: &'a Registry,
    pub ratios: &'a Ratios,
}

struct Known {
    /// Models of which something may have been learnt that is not published.
    changed: BTreeSet<Model>,
    /// What was published last, by name.
    windows: LruCache<Bytes, Stamped<Lessons>>,
    ratios: LruCache<Bytes, Stamped<f64>>,
}

struct Pulling {
    /// The version that was pulled last.
    version: Option<u64>,
    pulled: Option<Instant>,
    failed: Option<Instant>,
}

impl ReplicaSync {
    /// `pull_within`: how long a request waits for what others published.
    pub fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>, pull_within: Duration) -> Self {
        Self {
            store,
            metrics,
            pull_within,
            known: Mutex::new(Known {
                changed: BTreeSet::new(),
                windows: LruCache::new(MAX_MODELS),
                ratios: LruCache::new(MAX_MODELS),
            }),
            pulling: Mutex::new(Pulling {
                version: None,
                pulled: None,
                failed: None,
            }),
            one: tokio::sync::Mutex::new(()),
            publishing: tokio::sync::Mutex::new(()),
        }
    }

    /// Something may have been learnt of that model: it is looked at when the next answer publishes.
    pub fn mark_changed(&self, provider: &str, model: &str) {
        let mut known = self.known();
        if known.changed.len() < MAX_MODELS.get() {
            known.changed.insert((provider.into(), model.into()));
        }
    }

    /// Merges what others published since the last time; returns whether this call read it.
    /// `passed`: the store was asked for something for this request, and its answer had the version.
    pub async fn pull(&self, learnt_state: LearntState<'_>, passed: bool) -> bool {
        if !self.is_due(passed) {
            return false;
        }
        let read = timeout(self.pull_within, async {
            let _one = self.one.lock().await;
            // Another request may have pulled while this one waited.
            if !self.is_due(passed) {
                return Ok(());
            }
            let shared = self.store.shared().await?;
            for (name, value) in &shared.all {
                self.merge(learnt_state, name, value);
            }
            let mut pulling = self.pulling();
            pulling.version = Some(shared.version);
            pulling.pulled = Some(Instant::now());
            pulling.failed = None;
            Ok::<_, crate::store::StoreError>(())
        });
        let begun = Instant::now();
        let read = read.await;
        self.count(begun, matches!(read, Ok(Ok(()))));
        let failed = match read {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", self.pull_within),
        };
        self.pulling().failed = Some(Instant::now());
        tracing::debug!(
            error = failed,
            "what other replicas learnt could not be read"
        );
        false
    }

    /// Has the next request pull everything again, since providers came and went.
    pub fn pull_again(&self) {
        let mut known = self.known();
        known.windows.clear();
        known.ratios.clear();
        drop(known);
        self.pulling().version = None;
    }

    fn is_due(&self, passed: bool) -> bool {
        let version = self.store.shared_version();
        let pulling = self.pulling();
        if pulling.failed.is_some_and(|at| at.elapsed() < REST) {
            return false;
        }
        let unseen = pulling.pulled.is_none_or(|at| at.elapsed() >= UNSEEN_FOR);
        pulling.version != Some(version) || (!passed && unseen)
    }

    /// Merges one value, where it is newer than what is known.
    fn merge(&self, learnt_state: LearntState<'_>, name: &Bytes, value: &[u8]) {
        let Some((kind, at, (provider, model))) = read_name(name) else {
            return;
        };
        let there = learnt_state.registry.named(&provider).ok();
        let Some(there) = there.filter(|there| place(there) == at) else {
            return;
        };
        let now = SystemTime::now();
        let mut known = self.known();
        let known = &mut *known;
        let key = (provider, model);
        let publish = match kind {
            Kind::Window => newer(&mut known.windows, name, value, now).map(|theirs| {
                let learnt = &learnt_state.registry.learnt;
                let merged = learnt.hear(&there.place, &key.1, theirs.what, theirs.at_ms, now);
                // Something learnt here contradicts it, and is published in turn.
                merged.is_news(&theirs.what)
            }),
            Kind::Ratio => newer(&mut known.ratios, name, value, now).map(|theirs| {
                learnt_state.ratios.hear(&key.0, &key.1, theirs.what);
                false
            }),
        };
        if publish.unwrap_or_else(|older| older) && known.changed.len() < MAX_MODELS.get() {
            known.changed.insert(key);
        }
    }

    /// Publishes what was learnt, `within` a bound. What another caller was publishing meanwhile is published,
    /// too, when this returns. What fails is published with a later answer.
    ///
    /// CANCEL: what a dropped call did not publish stays marked as changed.
    pub async fn publish(&self, learnt_state: LearntState<'_>, within: Duration) {
        let until = Instant::now() + within;
        let Ok(_one) = timeout_at(until.into(), self.publishing.lock()).await else {
            return;
        };
        let mut unpublished = Unpublished {
            replica_sync: self,
            models: std::mem::take(&mut self.known().changed),
        };
        if unpublished.models.is_empty() {
            return;
        }
        let now = SystemTime::now();
        let models = unpublished.models.iter();
        let publications: Vec<_> = models
            .flat_map(|model| self.publications(learnt_state, model, now))
            .collect();
        let published = publications.iter().map(|it| async {
            let shared = self.store.share(&it.name, it.value.clone());
            let begun = Instant::now();
            let shared = timeout_at(until.into(), shared).await;
            self.count(begun, matches!(shared, Ok(Ok(()))));
            let failed = match shared {
                Ok(Ok(())) => return true,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {within:?}"),
            };
            tracing::debug!(error = failed, "what was learnt could not be published");
            false
        });
        let published = join_all(published).await;
        let mut known = self.known();
        let mut failed = BTreeSet::new();
        for (publication, published) in publications.iter().zip(published) {
            match published {
                true => publication.note(&mut known),
                false => drop(failed.insert(publication.model.clone())),
            }
        }
        drop(known);
        unpublished.models = failed;
    }

    /// What is known of a model and is worth publishing.
    fn publications(
        &self,
        learnt_state: LearntState<'_>,
        model: &Model,
        now: SystemTime,
    ) -> Vec<Publication> {
        let (provider, called) = (&*model.0, &*model.1);
        let Ok(there) = learnt_state.registry.named(provider) else {
            return Vec::new();
        };
        let lessons = learnt_state
            .registry
            .learnt
            .lessons(&there.place, called, now);
        let ratio = learnt_state.ratios.known(provider, called);
        let named = |kind| {
            let name =
                name(kind, place(there), model).filter(|name| name.len() <= MAX_SHARED_NAME_BYTES);
            name.map(Bytes::from)
        };
        let known = self.known();
        let window = lessons
            .zip(named(Kind::Window))
            .and_then(|(lessons, name)| {
                let told = known.windows.peek(&name);
                let before = told.map(|told| told.what).unwrap_or_default();
                let news = lessons
                    .is_news(&before)
                    .then(|| stamped(lessons, told, now))?;
                Publication::of(model, name, What::Lessons(news))
            });
        let ratio = ratio.zip(named(Kind::Ratio)).and_then(|(ratio, name)| {
            let told = known.ratios.peek(&name);
            let news = told.is_none_or(|told| moved(ratio, told, now));
            let news = news.then(|| stamped(ratio, told, now))?;
            Publication::of(model, name, What::Ratio(news))
        });
        window.into_iter().chain(ratio).collect()
    }

    fn count(&self, begun: Instant, done: bool) {
        let metrics = &self.metrics;
        metrics.record_store(StoreOperation::Share, begun.elapsed(), !done);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pulling(&self) -> MutexGuard<'_, Pulling> {
        self.pulling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReplicaSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaSync").finish_non_exhaustive()
    }
}

/// Models that are being published; those that are left when this is dropped are marked as changed again.
struct Unpublished<'a> {
    replica_sync: &'a ReplicaSync,
    models: BTreeSet<Model>,
}

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        if !self.models.is_empty() {
            self.replica_sync.known().changed.append(&mut self.models);
        }
    }
}

#[cfg(test)]
mod tests;
