//! What was read and written of late, so that most requests need neither the file nor a thread that may
//! block.
//!
//! It never says anything that a sound file does not: the writer commits every change through it, before
//! whoever waits for it is answered; of what is just being committed it says nothing; what was read in a
//! view from before such a change is not taken over; and where a key, or what it points to, is not here,
//! the file is asked. It is emptied as soon as another file is found in the place of this one.

mod circle;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use lru::LruCache;

use self::circle::Circle;
use super::{
    read::{Hit, Read},
    row::{Head, Place, key_place},
};
use crate::store::{Found, Key, Tenant, key::KeyKind};

/// What all of it may take.
const MAX_BYTES: usize = 8 << 20;
/// What a circle takes beside what is in it, and a generation beside its state.
const BESIDE: usize = 256;
/// Changes that are remembered, for reads that began before them.
const CHANGES: usize = 256;

/// A change that the writer made.
#[derive(Debug)]
pub(super) enum Change {
    /// These keys point to a new generation now.
    Saved(Place, Arc<Generation>),
    /// A generation is gone, with the keys that pointed to it.
    Gone(Place, Head),
    /// A session counts as used in that second.
    Used(i64, u64),
    Ordered(i64, Bytes),
    /// Something that could not be read is gone.
    Unreadable,
}

/// What becomes of a session as a whole.
#[derive(Debug, Default)]
struct News {
    used_s: Option<u64>,
    orders: Option<Bytes>,
}

/// All changes of a transaction, in their order.
pub(super) type Changes = Vec<Change>;

/// All that a request is told of a generation, and what it is held to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) tenant: Tenant,
    pub(super) head: Head,
    pub(super) state: Bytes,
    pub(super) orders: Bytes,
    pub(super) used_s: u64,
}

/// How far the changes had come when a read began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(u64);

#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Held>);

#[derive(Debug)]
struct Held {
    /// Grows with every change.
    version: u64,
    /// The newest changes, oldest first, each with its circle.
    changed: VecDeque<(u64, u64)>,
    /// Of reads that began before this version nothing is taken over.
    forgotten: u64,
    circles: LruCache<u64, Circle>,
    bytes: usize,
    landing: Landing,
}

/// What is just being committed. Others may have read it in the file before it is told here, and none of
/// them is to be told again what was true before.
#[derive(Debug, Default)]
struct Landing {
    everything: bool,
    /// Places of keys that point elsewhere after it. What a key points to is changed with its keys alone.
    keys: HashSet<[u8; 16]>,
    sessions: HashSet<i64>,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            version: 0,
            changed: VecDeque::new(),
            forgotten: 0,
            circles: LruCache::unbounded(),
            bytes: 0,
            landing: Landing::default(),
        }
    }
}

impl Recent {
    /// What [`super::read::find`] would find; `None` where only the file can tell.
    pub(super) fn find(
        &self,
        tenant: &Tenant,
        circle: u64,
        keys: &[Key],
        horizon: u64,
    ) -> Option<Option<Hit>> {
        let mut held = self.lock();
        let Held {
            circles, landing, ..
        } = &mut *held;
        if landing.everything {
            return None;
        }
        let known = circles.get(&circle)?;
        for (at, key) in keys.iter().enumerate() {
            let place = key_place(circle, key);
            if landing.keys.contains(&place) {
                return None;
            }
            if known.lacks(&place) {
                continue;
            }
            let Some((place, kind)) = Place::of_target(known.target(&place)?) else {
                continue;
            };
            let generation = known.generation(place)?;
            if landing.sessions.contains(&place.session()) {
                return None;
            }
            // SECURITY: the whole tenant and the whole key are compared, as with a row of the file.
            let fits = generation.tenant == *tenant && generation.head.keys.get(kind) == Some(key);
            if !fits || (kind == KeyKind::Bare && generation.head.ambiguous) {
                continue;
            }
            // It may have been used since, which not all of its generations are told.
            if generation.used_s < horizon {
                return None;
            }
            return Some(Some(Hit {
                found: Found {
                    at,
                    state: generation.state.clone(),
                    orders: generation.orders.clone(),
                },
                place,
                kind,
                head: generation.head,
                used_s: generation.used_s,
            }));
        }
        Some(None)
    }

    /// To be asked before a read begins.
    pub(super) fn since(&self) -> Since {
        Since(self.lock().version)
    }

    /// Takes over what was read, unless it has changed since.
    pub(super) fn learn(&self, since: Since, tenant: &Tenant, circle: u64, read: &Read) {
        let mut held = self.lock();
        let newer = |(version, other): &(u64, u64)| *version > since.0 && *other == circle;
        if since.0 < held.forgotten || held.changed.iter().any(newer) {
            return;
        }
        held.within(circle, |known| {
            known.learn(read);
            let Some(hit) = &read.hit else { return };
            if let Some(key) = hit.head.keys.get(hit.kind) {
                known.point(key_place(circle, key), hit.place.target(hit.kind));
            }
            let generation = Generation {
                tenant: *tenant,
                head: hit.head,
                state: hit.found.state.clone(),
                orders: hit.found.orders.clone(),
                used_s: hit.used_s,
            };
            known.put(hit.place, Arc::new(generation));
        });
        held.shrink();
    }

    /// Has a step committed that makes these changes, and takes them over. Only the writer may.
    ///
    /// # Errors
    /// The step was not committed.
    pub(super) fn commit(
        &self,
        changes: Changes,
        commits: impl FnOnce() -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.lands(&changes);
        let committed = commits();
        match committed {
            Ok(()) => self.apply(changes),
            Err(_) => self.clear(),
        }
        committed
    }

    /// From now on until it is applied, the file may say it or not.
    pub(super) fn lands(&self, changes: &Changes) {
        let mut held = self.lock();
        changes.iter().for_each(|change| held.landing.add(change));
    }

    /// Takes over what was committed.
    pub(super) fn apply(&self, changes: Changes) {
        let mut held = self.lock();
        let mut sessions = HashMap::<i64, News>::new();
        for change in changes {
            match change {
                Change::Used(session, second) => {
                    sessions.entry(session).or_default().used_s = Some(second);
                }
                Change::Ordered(session, orders) => {
                    sessions.entry(session).or_default().orders = Some(orders);
                }
                change => held.apply(change),
            }
        }
        // Last: what was saved with them has the orders from before, or these.
        if !sessions.is_empty() {
            held.tell(&sessions);
        }
        held.shrink();
        // Last: half of it is not to be told.
        held.landing = Landing::default();
    }

    /// Another file may take the place of this one, or somebody else changed it. Only the writer may say so:
    /// what is just being committed is forgotten as well.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Nothing panics while this is held.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn apply(&mut self, change: Change) {
        self.version += 1;
        match change {
            Change::Saved(place, generation) => {
                let head = generation.head;
                self.note(head.circle);
                self.within(head.circle, |known| {
                    for (kind, key) in head.keys.iter() {
                        known.point(key_place(head.circle, key), place.target(kind));
                    }
                    known.put(place, generation);
                });
            }
            Change::Gone(place, head) => {
                self.note(head.circle);
                if self.circles.contains(&head.circle) {
                    self.within(head.circle, |known| known.remove(place));
                }
            }
            // Told apart, all at once.
            Change::Used(..) | Change::Ordered(..) => {}
            Change::Unreadable => self.clear(),
        }
    }

    /// Reads of a circle that began before now are too old.
    fn note(&mut self, circle: u64) {
        if self.changed.len() == CHANGES
            && let Some((version, _)) = self.changed.pop_front()
        {
            // Never back: changes of whole sessions are remembered by this alone.
            self.forgotten = self.forgotten.max(version);
        }
        self.changed.push_back((self.version, circle));
    }

    /// Changes a circle, which is begun where it is not here.
    fn within(&mut self, circle: u64, change: impl FnOnce(&mut Circle)) {
        let known = self.circles.get_or_insert_mut(circle, || {
            self.bytes += BESIDE;
            Circle::default()
        });
        let before = known.bytes();
        change(known);
        known.forget_unnamed();
        known.thin();
        self.bytes = self.bytes + known.bytes() - before;
    }

    /// Changes all that is known of sessions, in one walk over everything.
    fn tell(&mut self, sessions: &HashMap<i64, News>) {
        self.version += 1;
        self.forgotten = self.version;
        let mut bytes = 0;
        for (_, known) in &mut self.circles {
            for (place, generation) in &mut known.generations {
                if let Some(news) = sessions.get(&place.session()) {
                    let generation = Arc::make_mut(generation);
                    generation.used_s = news.used_s.unwrap_or(generation.used_s);
                    if let Some(orders) = &news.orders {
                        generation.orders = orders.clone();
                    }
                }
            }
            bytes += BESIDE + known.bytes();
        }
        self.bytes = bytes;
    }

    fn shrink(&mut self) {
        while self.bytes > MAX_BYTES
            && let Some((_, known)) = self.circles.pop_lru()
        {
            self.bytes -= BESIDE + known.bytes();
        }
    }

    fn clear(&mut self) {
        self.version += 1;
        self.forgotten = self.version;
        self.changed.clear();
        self.circles.clear();
        self.bytes = 0;
        self.landing = Landing::default();
    }
}

impl Landing {
    fn add(&mut self, change: &Change) {
        match change {
            Change::Saved(_, generation) => self.add_keys(&generation.head),
            Change::Gone(_, head) => self.add_keys(head),
            Change::Used(session, _) | Change::Ordered(session, _) => {
                self.sessions.insert(*session);
            }
            Change::Unreadable => self.everything = true,
        }
    }

    fn add_keys(&mut self, head: &Head) {
        let keys = head.keys.iter();
        self.keys
            .extend(keys.map(|(_, key)| key_place(head.circle, key)));
    }
}
