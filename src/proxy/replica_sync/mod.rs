//! Replica sync: shares windows of models, and ratios of estimated to counted tokens, through the store.
//!
//! The lessons of an answer are published before its end is released, so that any replica knows them when it gets the
//! session's next request. Before a request is planned, the other replicas' lessons are pulled. The newest value of a name
//! counts. Publishing and pulling are bounded in time, and no request fails because of them. Nothing of a conversation is
//! published, and of a client only the keyed digest of the credential that its provider gets.
//!
//! Names come from requests and values from the store, so both are bounded. Unreadable values, and those about
//! providers that are not configured, are ignored.
//!
//! Every answer of the store has the version of the shared values, so that they are read only after a change. Stamps
//! grow even if a clock is set back. A lesson is ignored if an answer of this replica has disproved it since. Sessions'
//! states need no sync: any replica finds them in the store. Breakers and refusals of `stream_options` are not shared:
//! they decide which provider is asked, but not what a prompt contains.

mod row;

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;

use bytes::Bytes;
use futures_util::future::join_all;
use lru::LruCache;
use tokio::time::{error::Elapsed, timeout, timeout_at};

use self::row::{RowName, SharedFact, StampedFact};
use crate::{
    provider::{
        Registry, Target,
        learnt_windows::{LessonKey, LessonScope},
    },
    session::token_ratios::TokenRatios,
    store::{MAX_SHARED, MAX_SHARED_NAME_BYTES, Store, StoreError},
    telemetry::metrics::{Metrics, StoreOperation},
    unix_time::to_unix_ms,
};

/// How long nothing is pulled after a failure.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// A request that made no call to the store has not seen the version of the shared values. It pulls if no request has pulled
/// for this long.
const UNSEEN_FOR: Duration = Duration::from_secs(1);

/// Models that may have unpublished lessons; lessons of models have the same bound.
const MAX_MODELS: usize = 1_024;
/// Published values that are remembered: as many as the store keeps.
const MAX_ROWS: NonZeroUsize = NonZeroUsize::new(MAX_SHARED).expect("it is not zero");
/// Lessons of one client's account in the store, so that they do not displace those of others there.
const MAX_ROWS_OF_ACCOUNT: usize = 256;

/// A stamp that is further ahead does not come from the clock of a replica.
const MOST_AHEAD_MS: u64 = 24 * 60 * 60 * 1_000;

pub struct ReplicaSync {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    ratios: Arc<TokenRatios>,
    pull_within: Duration,
    state: Mutex<SyncState>,
    /// Held while one request pulls for all.
    pulling: tokio::sync::Mutex<()>,
    /// Held while one request publishes for all. Others wait, since their lessons may be among those.
    publishing: tokio::sync::Mutex<()>,
}

/// The names of a provider and of a model, and the scope for which lessons were learnt.
type ModelKey = (Box<str>, Box<str>, LessonScope);

struct SyncState {
    /// Models that may have unpublished lessons.
    changed: BTreeSet<ModelKey>,
    /// The value that was published last, by its name in the store.
    published: LruCache<Bytes, StampedFact>,
    /// The version that was pulled last.
    version: Option<u64>,
    pulled: Option<Instant>,
    failed: Option<Instant>,
}

impl ReplicaSync {
    /// `pull_within` bounds the wait of a request.
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

    /// Marks a model for [`ReplicaSync::publish`]: it may have new lessons.
    pub fn mark_changed(&self, target: &Target) {
        let scope = LessonScope {
            session: None,
            ..target.scope
        };
        let mut state = self.state.lock();
        state.mark_changed(&target.provider.name, &target.model, scope);
    }

    /// Merges what other replicas published since the last pull. Returns whether the values were read, by this request or by
    /// another one while this one waited. `passed`: this request has called the store, whose answer had the version.
    pub async fn pull(&self, registry: &Registry, passed: bool) -> bool {
        if !self.is_pull_due(passed) {
            return false;
        }
        let begun = Instant::now();
        let read = timeout(self.pull_within, async {
            let _one = self.pulling.lock().await;
            // Another request may have pulled while this one waited.
            if !self.is_pull_due(passed) {
                return Ok(());
            }
            let shared = self.store.read_shared().await?;
            for (name, value) in &shared.all {
                self.merge_value(registry, name, value);
            }
            let mut state = self.state.lock();
            state.version = Some(shared.version);
            state.pulled = Some(Instant::now());
            state.failed = None;
            Ok(())
        });
        let is_read = self.note_call(begun, read.await);
        if !is_read {
            self.state.lock().failed = Some(Instant::now());
        }
        is_read
    }

    /// Makes the next request pull all values again, since the configured providers changed.
    pub fn pull_again(&self) {
        let mut state = self.state.lock();
        state.published.clear();
        state.version = None;
    }

    fn is_pull_due(&self, passed: bool) -> bool {
        let version = self.store.shared_version();
        let state = self.state.lock();
        let is_paused = |failed: Instant| failed.elapsed() < PAUSE_AFTER_FAILURE;
        let is_old = |pulled: Instant| pulled.elapsed() >= UNSEEN_FOR;
        !state.failed.is_some_and(is_paused)
            && (state.version != Some(version) || (!passed && state.pulled.is_none_or(is_old)))
    }

    /// Merges one value if it is newer. If this replica knows more, it marks the model as changed.
    fn merge_value(&self, registry: &Registry, name: &Bytes, value: &[u8]) {
        let Some(row) = RowName::from_bytes(name) else {
            return;
        };
        let provider = registry.find_provider(&row.provider).ok();
        let Some(provider) = provider.filter(|provider| row.is_about(provider)) else {
            return;
        };
        let now = SystemTime::now();
        let latest = to_unix_ms(now).saturating_add(MOST_AHEAD_MS);
        let received = StampedFact::from_bytes(row.kind, value);
        let Some(received) = received.filter(|received| received.at_ms <= latest) else {
            return;
        };
        let mut state = self.state.lock();
        let stamp = state.published.get(name).map(|published| published.at_ms);
        let kept = StampedFact {
            // The next stamp has to be later than both.
            at_ms: stamp.unwrap_or(0).max(received.at_ms),
            ..received
        };
        state.published.put(name.clone(), kept);
        let knows_more = match (stamp, received.learnt) {
            (Some(stamp), _) if received.at_ms <= stamp => received.at_ms < stamp,
            (_, SharedFact::Window(lessons)) => {
                let key = LessonKey::new(&provider.endpoint, &row.model, row.scope);
                let learnt = &registry.learnt;
                // The merged lessons differ from the received ones if a lesson of this replica contradicts these.
                learnt
                    .merge_lessons(&key, lessons, received.at_ms, now)
                    .is_news(&lessons)
            }
            (_, SharedFact::Ratio(ratio)) => {
                self.ratios
                    .apply_replicated(&row.provider, &row.model, ratio);
                false
            }
        };
        if knows_more {
            state.mark_changed(&row.provider, &row.model, row.scope);
        }
    }

    /// Publishes all new lessons, `within` a bound. If another caller is publishing, waits until its lessons are published too.
    /// Lessons that could not be published are published with a later answer.
    ///
    /// CANCEL: lessons that a dropped call did not publish stay marked as changed.
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
        let mut state = self.state.lock();
        for (name, value) in published.into_iter().flatten() {
            state.published.put(name, value);
        }
        drop(state);
        // Unmarks models without unpublished lessons.
        self.collect_unpublished(registry);
    }

    /// The lessons of marked models that are worth publishing, by names in the store. Unmarks models without any.
    fn collect_unpublished(&self, registry: &Registry) -> Vec<(Bytes, StampedFact)> {
        let now = SystemTime::now();
        let mut rows = Vec::new();
        let state = &mut *self.state.lock();
        state.changed.retain(|model| {
            let before = rows.len();
            for (name, learnt) in self.collect_rows(registry, model, now) {
                let published = state.published.peek(&name);
                let has_room = || published.is_some() || has_room_for(&state.published, model.2);
                if learnt.is_worth_publishing(published, now) && has_room() {
                    rows.push((name, StampedFact::stamp_after(published, learnt, now)));
                }
            }
            rows.len() > before
        });
        rows
    }

    /// The lessons of a model, by names in the store.
    fn collect_rows(
        &self,
        registry: &Registry,
        (provider, model, scope): &ModelKey,
        now: SystemTime,
    ) -> Vec<(Bytes, SharedFact)> {
        let Ok(found) = registry.find_provider(provider) else {
            return Vec::new();
        };
        let key = LessonKey::new(&found.endpoint, model, *scope);
        let lessons = registry.learnt.export_lessons(&key, now);
        let ratio = self.ratios.known_ratio(provider, model);
        let learnt = lessons.map(SharedFact::Window).into_iter();
        let learnt = learnt.chain(ratio.map(SharedFact::Ratio));
        let rows = learnt.filter_map(|learnt| {
            let name = RowName::new(learnt.row_kind(), found, model, *scope).to_bytes();
            (name.len() <= MAX_SHARED_NAME_BYTES).then_some((name, learnt))
        });
        rows.collect()
    }

    /// Records a call to the store, and returns whether it succeeded.
    fn note_call(&self, begun: Instant, result: Result<Result<(), StoreError>, Elapsed>) -> bool {
        let error = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {:?}", begun.elapsed())),
        };
        let metrics = &self.metrics;
        metrics.record_store_call(StoreOperation::Share, begun.elapsed(), error.is_some());
        if let Some(error) = &error {
            tracing::debug!(error, "replica sync failed: {error}");
        }
        error.is_none()
    }
}

impl SyncState {
    fn mark_changed(&mut self, provider: &str, model: &str, scope: LessonScope) {
        if self.changed.len() < MAX_MODELS {
            self.changed.insert((provider.into(), model.into(), scope));
        }
    }
}

/// Whether another lesson of a client's account may be published.
fn has_room_for(published: &LruCache<Bytes, StampedFact>, scope: LessonScope) -> bool {
    let rows = published
        .iter()
        .filter_map(|(name, _)| RowName::from_bytes(name));
    let count = || {
        rows.filter(|row| row.scope.account == scope.account)
            .count()
    };
    scope.account.is_none() || count() < MAX_ROWS_OF_ACCOUNT
}

#[cfg(test)]
mod tests;
