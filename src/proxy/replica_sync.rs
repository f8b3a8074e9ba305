//! What replicas learn from each other through the store: windows of models, and how many tokens
//! their texts take.
//!
//! What an answer taught is told before its end is released, so that whichever replica gets the next
//! request of that session knows it; and before a request is planned, what others told is taken over.
//! Of one name the newest counts. Both are bounded in time, and no request fails for either. Nothing
//! of a conversation is told, nor of a client.
//!
//! Names come from requests and values from outside: both are bounded, and what cannot be read is
//! passed over, as is what is said of a provider that is not there (any more).

use std::{
    collections::BTreeSet,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures_util::future::join_all;
use lru::LruCache;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::{timeout, timeout_at};

use crate::{
    provider::{
        Registry,
        learnt::{Lessons, Moment},
    },
    session::ratios::Ratios,
    store::{MAX_SHARED_NAME_BYTES, Store},
    telemetry::metrics::{StoreCounts, StoreOperation},
};

mod spelling;

use spelling::{Kind, Model, name, place, read_name, read_value, value};

/// After a failure nobody asks for so long.
const REST: Duration = Duration::from_secs(1);
/// A request that asked nothing of the store cannot have seen that there is news: it looks itself,
/// where nobody did for so long.
const UNSEEN_FOR: Duration = Duration::from_secs(1);

/// Of so many models it is remembered what was told; what the stages remember is bounded alike.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not zero");

/// A ratio is told where it moved by so much; by less than the second only now and then, since every
/// telling makes all replicas read.
const MOVED: f64 = 0.005;
const MOVED_FAR: f64 = 0.05;
const NOW_AND_THEN_MS: u64 = 5_000;

/// A stamp that is further ahead comes from no clock of ours.
const MOST_AHEAD_MS: u64 = 24 * 60 * 60 * 1_000;

/// Tells and hears.
pub struct Sharing {
    store: Arc<dyn Store>,
    counts: StoreCounts,
    hear_within: Duration,
    known: Mutex<Known>,
    hearing: Mutex<Hearing>,
    /// One reads for all.
    one: tokio::sync::Mutex<()>,
    /// Held while something is told: one tells for all, and whoever comes meanwhile waits, since what it
    /// learnt may be on its way.
    telling: tokio::sync::Mutex<()>,
}

/// Those who learn.
#[derive(Clone, Copy)]
pub struct Learners<'a> {
    pub registry: &'a Registry,
    pub ratios: &'a Ratios,
}

struct Known {
    /// Models of which something may have been learnt that was not told.
    touched: BTreeSet<Model>,
    /// By the names of what was told.
    windows: LruCache<Bytes, Stamped<Lessons>>,
    ratios: LruCache<Bytes, Stamped<f64>>,
}

struct Hearing {
    /// The version that was taken over last.
    version: Option<u64>,
    heard: Option<Instant>,
    failed: Option<Instant>,
}

/// What was told, and when: by the wall clock, and later than all that was known of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Stamped<T> {
    at_ms: u64,
    what: T,
}

impl Sharing {
    /// A request waits for what others told as long as it does for its state: `hear_within`.
    pub fn new(store: Arc<dyn Store>, counts: StoreCounts, hear_within: Duration) -> Self {
        Self {
            store,
            counts,
            hear_within,
            known: Mutex::new(Known {
                touched: BTreeSet::new(),
                windows: LruCache::new(MAX_MODELS),
                ratios: LruCache::new(MAX_MODELS),
            }),
            hearing: Mutex::new(Hearing {
                version: None,
                heard: None,
                failed: None,
            }),
            one: tokio::sync::Mutex::new(()),
            telling: tokio::sync::Mutex::new(()),
        }
    }

    /// Something may have been learnt of that model.
    pub fn touch(&self, provider: &str, model: &str) {
        let mut known = self.known();
        if known.touched.len() < MAX_MODELS.get() {
            known.touched.insert((provider.into(), model.into()));
        }
    }

    /// Takes over what others told since the last time; whether this call read it.
    /// `passed`: the store was asked something for this request, and so would have said.
    pub async fn hear(&self, learners: Learners<'_>, passed: bool) -> bool {
        if !self.is_due(passed) {
            return false;
        }
        let read = timeout(self.hear_within, async {
            let _one = self.one.lock().await;
            // Somebody may have read while this one waited.
            if !self.is_due(passed) {
                return Ok(());
            }
            let shared = self.store.shared().await?;
            for (name, value) in &shared.all {
                self.take(learners, name, value);
            }
            let mut hearing = self.hearing();
            hearing.version = Some(shared.version);
            hearing.heard = Some(Instant::now());
            hearing.failed = None;
            Ok::<_, crate::store::StoreError>(())
        });
        let begun = Instant::now();
        let read = read.await;
        self.counts.took(StoreOperation::Share, begun.elapsed());
        let failed = match read {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", self.hear_within),
        };
        self.hearing().failed = Some(Instant::now());
        self.counts.failed(StoreOperation::Share);
        tracing::debug!(
            error = failed,
            "what other replicas learnt could not be read"
        );
        false
    }

    /// The next request is to read all there is, and take it over as if nothing was told before:
    /// providers came and went.
    pub fn hear_again(&self) {
        let mut known = self.known();
        known.windows.clear();
        known.ratios.clear();
        drop(known);
        self.hearing().version = None;
    }

    fn is_due(&self, passed: bool) -> bool {
        let version = self.store.shared_version();
        let hearing = self.hearing();
        if hearing.failed.is_some_and(|at| at.elapsed() < REST) {
            return false;
        }
        let unseen = hearing.heard.is_none_or(|at| at.elapsed() >= UNSEEN_FOR);
        hearing.version != Some(version) || (!passed && unseen)
    }

    /// Takes one thing over, where it is newer than what is known of it.
    fn take(&self, learners: Learners<'_>, name: &Bytes, value: &[u8]) {
        let Some((kind, at, (provider, model))) = read_name(name) else {
            return;
        };
        let there = learners.registry.named(&provider).ok();
        let Some(there) = there.filter(|there| place(there) == at) else {
            return;
        };
        let now = moment();
        let mut known = self.known();
        let known = &mut *known;
        let key = (provider, model);
        let tell = match kind {
            Kind::Window => newer(&mut known.windows, name, value, now).map(|theirs| {
                let written = (theirs.what, theirs.at_ms);
                let learnt = &learners.registry.learnt;
                learnt.hear(&there.place, &key.1, written, now);
                // Where something here speaks against it, that is to be told.
                let merged = learnt.lessons(&there.place, &key.1, now);
                merged.is_some_and(|merged| merged.is_news(&theirs.what))
            }),
            Kind::Ratio => newer(&mut known.ratios, name, value, now).map(|theirs| {
                learners.ratios.hear(&key.0, &key.1, theirs.what);
                false
            }),
        };
        if tell.unwrap_or_else(|older| older) && known.touched.len() < MAX_MODELS.get() {
            known.touched.insert(key);
        }
    }

    /// Tells what was learnt and not told, `within` a bound, and what another caller is telling has been told,
    /// too, at the end. What fails is told with a later answer.
    ///
    /// CANCEL: a dropped call leaves untold what was not told.
    pub async fn tell(&self, learners: Learners<'_>, within: Duration) {
        let until = Instant::now() + within;
        let Ok(_telling) = timeout_at(until.into(), self.telling.lock()).await else {
            return;
        };
        let mut untold = Untold {
            sharing: self,
            models: std::mem::take(&mut self.known().touched),
        };
        if untold.models.is_empty() {
            return;
        }
        let now = moment();
        let models = untold.models.iter();
        let news: Vec<_> = models
            .flat_map(|model| self.news(learners, model, now))
            .collect();
        let told = news.iter().map(|news| async {
            let shared = self.store.share(&news.name, news.value.clone());
            let begun = Instant::now();
            let shared = timeout_at(until.into(), shared).await;
            self.counts.took(StoreOperation::Share, begun.elapsed());
            let failed = match shared {
                Ok(Ok(())) => return true,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {within:?}"),
            };
            self.counts.failed(StoreOperation::Share);
            tracing::debug!(error = failed, "what was learnt could not be told");
            false
        });
        let told = join_all(told).await;
        let mut known = self.known();
        let mut failed = BTreeSet::new();
        for (news, told) in news.iter().zip(told) {
            match told {
                true => news.note(&mut known),
                false => drop(failed.insert(news.model.clone())),
            }
        }
        drop(known);
        untold.models = failed;
    }

    /// What is known of a model and worth telling.
    fn news(&self, learners: Learners<'_>, model: &Model, now: Moment) -> Vec<News> {
        let (provider, called) = (&*model.0, &*model.1);
        let Ok(there) = learners.registry.named(provider) else {
            return Vec::new();
        };
        let lessons = learners.registry.learnt.lessons(&there.place, called, now);
        let ratio = learners.ratios.known(provider, called);
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
                News::of(model, name, What::Lessons(news))
            });
        let ratio = ratio.zip(named(Kind::Ratio)).and_then(|(ratio, name)| {
            let told = known.ratios.peek(&name);
            let news = told.is_none_or(|told| moved(ratio, told, now));
            let news = news.then(|| stamped(ratio, told, now))?;
            News::of(model, name, What::Ratio(news))
        });
        window.into_iter().chain(ratio).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hearing(&self) -> MutexGuard<'_, Hearing> {
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").finish_non_exhaustive()
    }
}

/// Something to be told.
struct News {
    model: Model,
    what: What,
    name: Bytes,
    value: Bytes,
}

enum What {
    Lessons(Stamped<Lessons>),
    Ratio(Stamped<f64>),
}

impl News {
    /// `None`: it cannot be written.
    fn of(model: &Model, name: Bytes, what: What) -> Option<Self> {
        let value = match &what {
            What::Lessons(lessons) => value(lessons),
            What::Ratio(ratio) => value(ratio),
        };
        Some(Self {
            model: model.clone(),
            name,
            value: value?.into(),
            what,
        })
    }

    fn note(&self, known: &mut Known) {
        let name = self.name.clone();
        match self.what {
            What::Lessons(lessons) => drop(known.windows.put(name, lessons)),
            What::Ratio(ratio) => drop(known.ratios.put(name, ratio)),
        }
    }
}

/// Models taken to be told of; those that are left go back.
struct Untold<'a> {
    sharing: &'a Sharing,
    models: BTreeSet<Model>,
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if !self.models.is_empty() {
            self.sharing.known().touched.append(&mut self.models);
        }
    }
}

/// What stands there, if it is newer than what is known, and is known from now on. Else whether it
/// is older, and so ours is to be told again.
fn newer<T: Copy + PartialEq + DeserializeOwned>(
    told: &mut LruCache<Bytes, Stamped<T>>,
    name: &Bytes,
    value: &[u8],
    now: Moment,
) -> Result<Stamped<T>, bool> {
    let theirs: Stamped<T> = read_value(value).ok_or(false)?;
    if theirs.at_ms > now.wall_ms.saturating_add(MOST_AHEAD_MS) {
        return Err(false);
    }
    if let Some(ours) = told.get_mut(name)
        && theirs.at_ms <= ours.at_ms
    {
        let older = theirs.at_ms < ours.at_ms;
        ours.what = theirs.what;
        return Err(older);
    }
    told.put(name.clone(), theirs);
    Ok(theirs)
}

fn stamped<T>(what: T, told: Option<&Stamped<T>>, now: Moment) -> Stamped<T> {
    let after = told.map_or(0, |told| told.at_ms.saturating_add(1));
    Stamped {
        at_ms: now.wall_ms.max(after),
        what,
    }
}

fn moved(ratio: f64, told: &Stamped<f64>, now: Moment) -> bool {
    let by = (ratio / told.what - 1.0).abs();
    let recent = now.wall_ms.saturating_sub(told.at_ms) < NOW_AND_THEN_MS;
    by > if recent { MOVED_FAR } else { MOVED }
}

fn moment() -> Moment {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    Moment {
        instant: Instant::now(),
        wall_ms: wall.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        }),
    }
}

#[cfg(test)]
mod tests;
