//! Summaries on their way: which are being made in this process, by whom, and how many at a time.
//!
//! What is decided and asked is in [`crate::compaction`]. Here is what it needs of the world: a
//! task apart from any request, the summary model, a bound on how many run, and a memory of the
//! newest ones, so that the same request sent again asks for none twice. No texts are logged here.

mod begin;
mod coming;
mod first;
mod held;
mod job;
mod kept;
mod part;
mod vain;
mod who;

use std::{
    collections::HashSet,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;
use tokio::sync::watch;

use self::vain::{Vain, Whose};
pub use self::{first::Waiting, held::held, job::Job, kept::Kept, part::Part};
use crate::{
    compaction::{JobId, Outcome},
    provider::{
        Target,
        breaker::{Breaker, State},
    },
    session::SessionId,
    store::Key,
    telemetry::metrics::{Metrics, Summaries},
};

/// Jobs that are remembered, those that are over included: as long as a request may be sent again.
const MAX_JOBS: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");
/// Summary models whose failures are counted.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");
/// Failures in a row after which a summary model is left alone, and for how long.
const FAILURES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(60);
/// Sessions that one job is for.
const MAX_SESSIONS: usize = 16;
/// Models of which it was said why they are not summarised.
const MAX_SAID: usize = 1_024;

/// What of all jobs is shared, under whatever settings.
#[derive(Debug)]
pub struct Compacting {
    now: Mutex<Now>,
    counts: Summaries,
}

#[derive(Debug)]
struct Now {
    running: usize,
    /// By the request that it was begun for.
    jobs: LruCache<Key, Slot>,
    /// By the place and name of the summary model.
    breakers: LruCache<(Arc<str>, Box<str>), Arc<Breaker>>,
    said: HashSet<String>,
    vain: Vain,
}

/// A job as those see it who wait for it.
#[derive(Clone, Debug)]
struct Slot {
    id: JobId,
    result: Result,
    /// Where what becomes of it is to be found. More than one where a first request was sent again,
    /// since nothing tells that it is the same session.
    sessions: Vec<SessionId>,
    /// A request waited for it in vain.
    late: bool,
}

/// What comes of a job; its sender is gone where nothing does.
type Result = watch::Receiver<Option<Outcome>>;

/// What comes of wanting a job.
pub(super) enum Begun {
    /// One of our own, to be run.
    New(Ticket),
    /// The same request had one begun before.
    Same(JobId),
    /// The same request had one, and it failed.
    Failed,
    /// As many run as may.
    Full,
}

/// The right to run a job; dropped, there is none.
#[derive(Debug)]
pub(super) struct Ticket {
    id: JobId,
    key: Key,
    /// Of the request that it was begun for.
    session: SessionId,
    sender: watch::Sender<Option<Outcome>>,
    /// Its job was begun.
    ran: bool,
    all: Arc<Compacting>,
}

impl Compacting {
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            now: Mutex::new(Now {
                running: 0,
                jobs: LruCache::new(MAX_JOBS),
                breakers: LruCache::new(MAX_MODELS),
                said: HashSet::new(),
                vain: Vain::default(),
            }),
            counts: metrics.summaries(),
        }
    }

    /// Begins a job for a request of a session, unless one was begun for the same request before;
    /// `most` may run.
    pub(super) fn begin(
        self: &Arc<Self>,
        (key, session): (Key, SessionId),
        id: JobId,
        most: usize,
    ) -> Begun {
        let mut now = self.lock();
        if let Some(slot) = now.jobs.get_mut(&key) {
            let gone = slot.result.has_changed().is_err();
            match &*slot.result.borrow() {
                Some(outcome) if outcome.summary.is_none() => return Begun::Failed,
                None if gone => {}
                _ => {
                    let sessions = &mut slot.sessions;
                    if sessions.len() < MAX_SESSIONS && !sessions.contains(&session) {
                        sessions.push(session);
                    }
                    return Begun::Same(slot.id);
                }
            }
        }
        if now.running >= most {
            self.counts.ended("skipped");
            return Begun::Full;
        }
        now.running += 1;
        self.counts.running.inc();
        let (sender, result) = watch::channel(None);
        let sessions = vec![session];
        let slot = Slot {
            id,
            result,
            sessions,
            late: false,
        };
        now.jobs.put(key, slot);
        Begun::New(Ticket {
            id,
            key,
            session,
            sender,
            ran: false,
            all: Arc::clone(self),
        })
    }

    /// The job of that name, where this process has begun it and it may still come to something.
    pub(super) fn result(&self, id: JobId) -> Option<Result> {
        let now = self.lock();
        let slot = now.jobs.iter().find(|(_, slot)| slot.id == id);
        slot.map(|(_, slot)| slot.result.clone())
    }

    /// Whether a request waited in vain for the job of that name.
    pub(super) fn is_late(&self, id: JobId) -> bool {
        let now = self.lock();
        now.jobs.iter().any(|(_, slot)| slot.id == id && slot.late)
    }

    /// A request waited in vain for the job of that name.
    pub(super) fn mark_late(&self, id: JobId) {
        let mut now = self.lock();
        if let Some((_, slot)) = now.jobs.iter_mut().find(|(_, slot)| slot.id == id) {
            slot.late = true;
        }
    }

    /// What many failures of a summary model tell. Apart from the provider's own: what fails a
    /// summary need not fail a conversation.
    pub(super) fn breaker(&self, target: &Target) -> Arc<Breaker> {
        let place = Arc::clone(&target.provider.place);
        let name = (place, target.model.as_str().into());
        let mut now = self.lock();
        let new = || Arc::new(Breaker::new(FAILURES, PAUSE));
        Arc::clone(now.breakers.get_or_insert(name, new))
    }

    /// Whether it is left alone for now.
    fn is_paused(&self, target: &Target) -> bool {
        self.breaker(target).state(Instant::now()) == State::Open
    }

    /// The same, counted as a summary that is not made.
    pub(super) fn pauses(&self, target: &Target) -> bool {
        let pauses = self.is_paused(target);
        if pauses {
            self.counts.ended("skipped");
        }
        pauses
    }

    /// Says once of a model why its conversations are not summarised.
    pub(super) fn say_unknown(&self, target: &Target) {
        let id = target.id();
        let mut now = self.lock();
        if now.said.len() < MAX_SAID && now.said.insert(id.clone()) {
            tracing::warn!(
                "conversations of {id:?} are not summarised by themselves, since nobody knows its \
                 window; set context_length in [models.{id:?}]"
            );
        }
    }

    /// Whether another one would be in vain as well, as far as can be told.
    fn is_in_vain(&self, whose: Whose) -> bool {
        self.lock().vain.too_many(whose, Instant::now())
    }

    /// The same, counted as a summary that is not made.
    pub(super) fn in_vain(&self, whose: Whose) -> bool {
        let vain = self.is_in_vain(whose);
        if vain {
            self.counts.ended("skipped");
        }
        vain
    }

    /// One was begun that nobody has come back for yet.
    pub(super) fn unclaimed(&self, whose: Whose) {
        self.lock().vain.begun(whose, Instant::now());
    }

    /// One went out with a request that came later.
    pub(super) fn claimed(&self, whose: Whose) {
        self.lock().vain.claimed(whose);
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    pub(super) const fn id(&self) -> JobId {
        self.id
    }

    /// Tells those who wait what came of it; gives the sessions that it is for.
    pub(super) fn tell(&self, outcome: Outcome) -> Vec<SessionId> {
        // Under the lock, so that nobody joins in between.
        let mut now = self.all.lock();
        self.sender.send_replace(Some(outcome));
        let slot = now.jobs.peek_mut(&self.key).filter(|it| it.id == self.id);
        let sessions = slot.map(|slot| std::mem::take(&mut slot.sessions));
        // Many others that were begun since have taken its place.
        sessions.unwrap_or_else(|| vec![self.session])
    }

    pub(super) fn counts(&self) -> &Summaries {
        &self.all.counts
    }
}

impl Drop for Ticket {
    /// CANCEL: a job that was dropped on its way leaves its place, and its request may have another.
    fn drop(&mut self) {
        let mut now = self.all.lock();
        now.running = now.running.saturating_sub(1);
        self.all.counts.running.dec();
        if self.sender.borrow().is_none() {
            let word = if self.ran { "stopped" } else { "skipped" };
            self.all.counts.ended(word);
            let own = now.jobs.peek(&self.key).map(|slot| slot.id);
            if own == Some(self.id) {
                now.jobs.pop(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
