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
//!
//! States need no more than the store: any replica finds them. Here is what no session owns. Every call to the
//! store brings the version of what is shared, so that it is read only where there is news. Stamps grow whatever
//! the clocks say, and a lesson that contradicts what was answered here since is not believed. Not shared are
//! breakers and who refuses `stream_options`: these say whom to ask, and nothing of what stands in a prompt.

mod row;

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
use tokio::time::{error::Elapsed, timeout, timeout_at};

use self::row::{RowName, SharedFact, StampedFact};
use crate::{
    provider::{Registry, learnt_windows::wall_ms},
    session::token_ratios::TokenRatios,
    store::{MAX_SHARED_NAME_BYTES, Store, StoreError},
    telemetry::metrics::{Metrics, StoreOperation},
};

/// How long nothing is pulled after a failure.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// A request that asked the store for nothing has not seen its version: it pulls if nobody did for so long.
const UNSEEN_FOR: Duration = Duration::from_secs(1);

/// Models of which something may be unpublished; what is learnt of models has the same bound.
const MAX_MODELS: usize = 1_024;
/// Published values that are remembered: two of each model.
const MAX_ROWS: NonZeroUsize = NonZeroUsize::new(2 * MAX_MODELS).expect("it is not zero");

/// A stamp that is further ahead does not come from the clock of a replica.
const MOST_AHEAD_MS: u64 = 24 * 60 * 60 * 1_000;

/// Publishes and pulls.
pub struct ReplicaSync {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    ratios: Arc<TokenRatios>,
    pull_within: Duration,
    state: Mutex<SyncState>,
    /// Held while one request pulls for all.
    pulling: tokio::sync::Mutex<()>,
    /// Held while one request publishes for all. Others wait: what they learnt may be on its way.
    publishing: tokio::sync::Mutex<()>,
}

/// The names of a provider and of a model.
type ModelKey = (Box<str>, Box<str>);

struct SyncState {
    /// Models of which something may have been learnt that is not published.
    changed: BTreeSet<ModelKey>,
    /// What was published last, by its name in the store.
    published: LruCache<Bytes, StampedFact>,
    /// The version that was pulled last.
    version: Option<u64>,
    pulled: Option<Instant>,
    failed: Option<Instant>,
}

impl ReplicaSync {
    /// `pull_within`: how long a request waits for what others published.
    pub fn new(
        store: Arc<dyn Store>,
        metrics: Arc<Metrics>,
        ratios: Arc<TokenRatios>,
        pull_within: Duration,
    ) -> Self {
        Self {
            store,
            metrics,
            ratios,
            pull_within,
            state: Mutex::new(SyncState {
                changed: BTreeSet::new(),
                published: LruCache::new(MAX_ROWS),
                version: None,
                pulled: None,
                failed: None,
            }),
            pulling: tokio::sync::Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
        }
    }

    /// Something may have been learnt of that model: it is looked at when the next answer publishes.
    pub fn mark_changed(&self, provider: &str, model: &str) {
        self.lock_state().mark_changed(provider, model);
    }

    /// Merges what others published since the last time; returns whether it was read.
    /// `passed`: the store was asked for something for this request, and its answer had the version.
    pub async fn pull(&self, registry: &Registry, passed: bool) -> bool {
        if !self.is_due(passed) {
            return false;
        }
        let begun = Instant::now();
        let read = timeout(self.pull_within, async {
            let _one = self.pulling.lock().await;
            // Another request may have pulled while this one waited.
            if !self.is_due(passed) {
                return Ok(());
            }
            let shared = self.store.read_shared().await?;
            for (name, value) in &shared.all {
                self.merge_value(registry, name, value);
            }
            let mut known = self.lock_state();
            known.version = Some(shared.version);
            known.pulled = Some(Instant::now());
            known.failed = None;
            Ok(())
        });
        let is_read = self.note_call(begun, read.await);
        if !is_read {
            self.lock_state().failed = Some(Instant::now());
        }
        is_read
    }

    /// Has the next request pull everything again, since providers came and went.
    pub fn pull_again(&self) {
        let mut known = self.lock_state();
        known.published.clear();
        known.version = None;
    }

    fn is_due(&self, passed: bool) -> bool {
        let version = self.store.shared_version();
        let known = self.lock_state();
        if known
            .failed
            .is_some_and(|at| at.elapsed() < PAUSE_AFTER_FAILURE)
        {
            return false;
        }
        let unseen = known.pulled.is_none_or(|at| at.elapsed() >= UNSEEN_FOR);
        known.version != Some(version) || (!passed && unseen)
    }

    /// Merges one value, where it is newer than what is known. What is known here and not there is published
    /// with the next answer.
    fn merge_value(&self, registry: &Registry, name: &Bytes, value: &[u8]) {
        let Some(row) = RowName::from_bytes(name) else {
            return;
        };
        let there = registry.find_provider(&row.provider).ok();
        let Some(there) = there.filter(|there| row.is_about(there)) else {
            return;
        };
        let now = SystemTime::now();
        let theirs = StampedFact::from_bytes(row.letter, value);
        let theirs = theirs.filter(|it| it.at_ms <= wall_ms(now).saturating_add(MOST_AHEAD_MS));
        let Some(theirs) = theirs else {
            return;
        };
        let mut known = self.lock_state();
        let stamp = known.published.get(name).map(|published| published.at_ms);
        let kept = StampedFact {
            // Where the own stamp is later, the next one has to be later than that.
            at_ms: stamp.unwrap_or(0).max(theirs.at_ms),
            ..theirs
        };
        known.published.put(name.clone(), kept);
        let publishes = match (stamp, theirs.learnt) {
            (Some(stamp), _) if theirs.at_ms <= stamp => theirs.at_ms < stamp,
            (_, SharedFact::Window(lessons)) => {
                let learnt = &registry.learnt;
                let merged =
                    learnt.merge_lessons(&there.endpoint, &row.model, lessons, theirs.at_ms, now);
                // Something learnt here contradicts it.
                merged.is_news(&lessons)
            }
            (_, SharedFact::Ratio(ratio)) => {
                self.ratios
                    .apply_replicated(&row.provider, &row.model, ratio);
                false
            }
        };
        if publishes {
            known.mark_changed(&row.provider, &row.model);
        }
    }

    /// Publishes what was learnt, `within` a bound. What another caller was publishing meanwhile is published,
    /// too, when this returns. What fails is published with a later answer.
    ///
    /// CANCEL: what a dropped call did not publish stays marked as changed.
    pub async fn publish(&self, registry: &Registry, within: Duration) {
        let until = Instant::now() + within;
        let Ok(_one) = timeout_at(until.into(), self.publishing.lock()).await else {
            return;
        };
        let rows = self.collect_unpublished(registry);
        if rows.is_empty() {
            return;
        }
        let published = rows.into_iter().map(|(name, value)| async move {
            let begun = Instant::now();
            let shared = self.store.publish_shared(&name, value.to_bytes());
            let shared = timeout_at(until.into(), shared).await;
            self.note_call(begun, shared).then_some((name, value))
        });
        let published = join_all(published).await;
        let mut known = self.lock_state();
        for (name, value) in published.into_iter().flatten() {
            known.published.put(name, value);
        }
        drop(known);
        // Models of which all is published are changed no more.
        self.collect_unpublished(registry);
    }

    /// What was learnt of models and is worth publishing, by names in the store. Models of which there is
    /// nothing are changed no more.
    fn collect_unpublished(&self, registry: &Registry) -> Vec<(Bytes, StampedFact)> {
        let now = SystemTime::now();
        let mut rows = Vec::new();
        let known = &mut *self.lock_state();
        known.changed.retain(|model| {
            let before = rows.len();
            for (name, learnt) in self.collect_rows(registry, model, now) {
                let published = known.published.peek(&name);
                if learnt.is_worth_publishing(published, now) {
                    rows.push((name, StampedFact::stamp_after(published, learnt, now)));
                }
            }
            rows.len() > before
        });
        rows
    }

    /// What is known of a model, by names in the store.
    fn collect_rows(
        &self,
        registry: &Registry,
        (provider, model): &ModelKey,
        now: SystemTime,
    ) -> Vec<(Bytes, SharedFact)> {
        let Ok(there) = registry.find_provider(provider) else {
            return Vec::new();
        };
        let lessons = registry.learnt.export_lessons(&there.endpoint, model, now);
        let ratio = self.ratios.known_ratio(provider, model);
        let learnt = [
            lessons.map(SharedFact::Window),
            ratio.map(SharedFact::Ratio),
        ];
        let rows = learnt.into_iter().flatten().filter_map(|learnt| {
            let name = RowName::new(learnt.row_letter(), there, model).to_bytes()?;
            (name.len() <= MAX_SHARED_NAME_BYTES).then_some((name, learnt))
        });
        rows.collect()
    }

    /// Counts a call to the store, and returns whether it did what it was to do.
    fn note_call(&self, begun: Instant, called: Result<Result<(), StoreError>, Elapsed>) -> bool {
        let failed = match called {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {:?}", begun.elapsed())),
        };
        let metrics = &self.metrics;
        metrics.record_store_call(StoreOperation::Share, begun.elapsed(), failed.is_some());
        if let Some(error) = &failed {
            tracing::debug!(error, "what replicas learnt could not be shared");
        }
        failed.is_none()
    }

    fn lock_state(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SyncState {
    fn mark_changed(&mut self, provider: &str, model: &str) {
        if self.changed.len() < MAX_MODELS {
            self.changed.insert((provider.into(), model.into()));
        }
    }
}

impl fmt::Debug for ReplicaSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaSync").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
