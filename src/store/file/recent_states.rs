//! What finds need not ask the file for: states that were saved lately, and keys that the file does not
//! have.
//!
//! The writer commits every change through [`Recent::commit`]: before the commit all that the change
//! touches is forgotten, after it the new states are put in, and in between the file answers. So nothing
//! is said here that somebody has already seen replaced in the file.
//!
//! Only exact keys lead to a state. A request whose client echoes the last answer as it came asks for one
//! first; others read the file.
//!
//! Keys are noted as absent by reads only, except those that were written since the read began. The file is locked,
//! so nobody else changes it.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;

use super::{
    read::StateHit,
    row::{GenerationHead, KeyPlace, key_place},
};
use crate::store::{StateKey, StateToSave, Tenant};

/// What all states may take.
const MAX_BYTES: usize = 8 << 20;
/// What a state takes beside its own bytes and those of its orders.
const OVERHEAD_BYTES: usize = 256;
/// Keys that are known to be absent. Requests that have the same examples before their question look for
/// the same ones each time.
const MAX_ABSENT: NonZeroUsize = NonZeroUsize::new(16_384).expect("not zero");
/// Groups of keys for each of which it is known when the last one was written.
const GROUPS: usize = 1_024;

/// What an exact key leads to, and what a find is held to.
#[derive(Debug)]
struct CachedState {
    tenant: Tenant,
    exact: StateKey,
    hit: StateHit,
}

impl CachedState {
    fn size_bytes(&self) -> usize {
        OVERHEAD_BYTES + self.hit.found.state.len() + self.hit.found.commands.len()
    }
}

/// What a transaction changes.
#[derive(Debug, Default)]
pub(super) struct BatchChanges {
    /// Keys that point elsewhere now, or nowhere.
    keys: Vec<KeyPlace>,
    saved: Vec<(KeyPlace, CachedState)>,
    /// The orders of a session changed.
    orders: bool,
}

impl BatchChanges {
    /// `hit` is what a find of the exact key gives from now on.
    pub(super) fn add_saved(&mut self, saved: &StateToSave, head: &GenerationHead, hit: StateHit) {
        self.add_keys(head);
        let cached = CachedState {
            tenant: saved.tenant,
            exact: head.keys.exact,
            hit,
        };
        let place = key_place(head.prefix_group, &head.keys.exact);
        self.saved.push((place, cached));
    }

    /// The keys of a generation that is replaced or removed.
    pub(super) fn add_keys(&mut self, head: &GenerationHead) {
        let keys = head.keys.iter();
        self.keys
            .extend(keys.map(|(_, key)| key_place(head.prefix_group, key)));
    }

    /// Orders are rare: all states are forgotten for them.
    pub(super) fn add_orders(&mut self) {
        self.orders = true;
    }
}

/// The change after which a read began.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadSince(u64);

#[derive(Debug, Default)]
pub(super) struct RecentStates(Mutex<RecentTable>);

#[derive(Debug)]
struct RecentTable {
    states: LruCache<KeyPlace, CachedState>,
    bytes: usize,
    absent: LruCache<KeyPlace, ()>,
    /// Transactions so far.
    changes: u64,
    /// By group of keys: the last change of one of them. The highest number while one is being committed.
    written: [u64; GROUPS],
}

impl Default for RecentTable {
    fn default() -> Self {
        Self {
            states: LruCache::unbounded(),
            bytes: 0,
            absent: LruCache::new(MAX_ABSENT),
            changes: 0,
            written: [0; GROUPS],
        }
    }
}

impl RecentStates {
    /// What [`super::read::find`] finds.
    ///
    /// # Errors
    /// Only the file can tell. What is absent from it may be given to [`Recent::learn_absent`].
    pub(super) fn find_state(
        &self,
        tenant: &Tenant,
        circle: u64,
        keys: &[StateKey],
        horizon: u64,
    ) -> Result<Option<StateHit>, ReadSince> {
        let mut held = self.lock_table();
        for (at, key) in keys.iter().enumerate() {
            let place = key_place(circle, key);
            if held.absent.get(&place).is_some() {
                continue;
            }
            let cached = held.states.get(&place);
            // SECURITY: the whole tenant and the whole key are compared, as with a row of the file.
            let own = cached.filter(|it| it.tenant == *tenant && it.exact == *key);
            // An old session may have been used since with another of its states.
            let Some(cached) = own.filter(|it| it.hit.used_s >= horizon) else {
                return Err(ReadSince(held.changes));
            };
            let mut hit = cached.hit.clone();
            hit.found.at = at;
            return Ok(Some(hit));
        }
        Ok(None)
    }

    /// Takes over which keys a read did not find, except those that were written since it began.
    pub(super) fn learn_absent(&self, since: ReadSince, absent: Vec<KeyPlace>) {
        let mut held = self.lock_table();
        for place in absent {
            if held.written[key_group(&place)] <= since.0 {
                held.absent.put(place, ());
            }
        }
    }

    /// Commits a transaction that makes these changes, and takes them over. For the writer alone.
    ///
    /// # Errors
    /// It was not committed.
    pub(super) fn commit_changes(
        &self,
        changes: BatchChanges,
        commit: impl FnOnce() -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.lock_table().begin_commit(&changes);
        let committed = commit();
        self.lock_table().end_commit(changes, committed.is_ok());
        committed
    }

    /// Forgets everything, and takes nothing over from reads that began before. For the writer alone.
    pub(super) fn clear(&self) {
        let mut held = self.lock_table();
        held.forget_all_states();
        held.absent.clear();
        held.changes += 1;
        let now = held.changes;
        held.written.fill(now);
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lock_table().bytes
    }

    /// Nothing panics while this is held.
    fn lock_table(&self) -> MutexGuard<'_, RecentTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentTable {
    fn begin_commit(&mut self, changes: &BatchChanges) {
        for place in &changes.keys {
            self.written[key_group(place)] = u64::MAX;
            self.absent.pop(place);
            self.forget_state(place);
        }
        if changes.orders {
            self.forget_all_states();
        }
    }

    fn end_commit(&mut self, changes: BatchChanges, committed: bool) {
        self.changes += 1;
        for place in &changes.keys {
            self.written[key_group(place)] = self.changes;
        }
        // With orders, some of them may have been saved before the orders changed.
        if !committed || changes.orders {
            return;
        }
        for (place, state) in changes.saved {
            self.forget_state(&place);
            self.bytes += state.size_bytes();
            self.states.put(place, state);
        }
        while self.bytes > MAX_BYTES
            && let Some((_, state)) = self.states.pop_lru()
        {
            self.bytes -= state.size_bytes();
        }
    }

    fn forget_state(&mut self, place: &KeyPlace) {
        if let Some(state) = self.states.pop(place) {
            self.bytes -= state.size_bytes();
        }
    }

    fn forget_all_states(&mut self) {
        self.states.clear();
        self.bytes = 0;
    }
}

fn key_group(place: &KeyPlace) -> usize {
    usize::from(u16::from_le_bytes([place[8], place[9]])) % GROUPS
}
