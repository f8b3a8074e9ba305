//! A cache of recently saved states, and of keys that the file does not have.
//!
//! The writer commits every change through [`RecentStates::commit_changes`]. It removes all changed entries before
//! the commit and inserts the new states after it. So the cache never has a state that is already replaced in the
//! file.
//!
//! Only exact keys lead to a state. A client that echoes the last answer unchanged causes a find of one; other finds
//! read the file.
//!
//! Only reads add absent keys, except keys written since the read began. The file is locked, so no other process
//! changes it.

use std::num::NonZeroUsize;

use parking_lot::Mutex;

use lru::LruCache;

use super::{
    read::StateHit,
    row::{GenerationHead, KeyPlace, key_place},
};
use crate::store::{StateKey, Tenant};

/// Most bytes of all states.
const MAX_BYTES: usize = 8 << 20;
/// Bytes of an entry without its state and commands.
const OVERHEAD_BYTES: usize = 256;
/// Most absent keys. Requests with the same examples before their question search for the same keys.
const MAX_ABSENT: NonZeroUsize = NonZeroUsize::new(16_384).expect("not zero");
/// Groups of keys, each with the time of its last write.
const GROUPS: usize = 1_024;

/// The state of an exact key, with the tenant and key that a find must match.
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

/// The changes of a transaction.
#[derive(Debug, Default)]
pub(super) struct BatchChanges {
    /// Keys that moved or were removed.
    keys: Vec<KeyPlace>,
    saved: Vec<(KeyPlace, CachedState)>,
    /// The commands of a session changed.
    commands: bool,
}

impl BatchChanges {
    /// `hit` is the result of a find of the exact key after the commit.
    pub(super) fn add_saved(&mut self, tenant: Tenant, head: &GenerationHead, hit: StateHit) {
        self.add_keys(head);
        let exact = head.keys.exact;
        let place = key_place(head.prefix_group, &exact);
        self.saved.push((place, CachedState { tenant, exact, hit }));
    }

    /// Adds the keys of a generation that is replaced or removed.
    pub(super) fn add_keys(&mut self, head: &GenerationHead) {
        let keys = head.keys.iter();
        self.keys
            .extend(keys.map(|(_, key)| key_place(head.prefix_group, key)));
    }

    /// Commands are rare, so they clear all cached states.
    pub(super) fn add_commands(&mut self) {
        self.commands = true;
    }
}

/// The number of changes when a read began.
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
    /// The last change by group of keys; the highest number during a commit.
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
    /// The result of [`super::read::find_state`], from the cache.
    ///
    /// # Errors
    /// The file must be read. Its absent keys may be given to [`Self::learn_absent`].
    pub(super) fn find_state(
        &self,
        tenant: &Tenant,
        prefix_group: u64,
        keys: &[StateKey],
        horizon: u64,
    ) -> Result<Option<StateHit>, ReadSince> {
        let mut table = self.0.lock();
        for (at, key) in keys.iter().enumerate() {
            let place = key_place(prefix_group, key);
            if table.absent.get(&place).is_some() {
                continue;
            }
            return match table.states.get(&place) {
                // SECURITY: the whole tenant and the whole key are compared, as with a row of the file. An expired hit
                // needs the file, since the session may have been used with another of its states.
                Some(CachedState {
                    tenant: owner,
                    exact,
                    hit,
                }) if owner == tenant && exact == key && hit.used_s >= horizon => {
                    let mut hit = hit.clone();
                    hit.found.at = at;
                    Ok(Some(hit))
                }
                _ => Err(ReadSince(table.changes)),
            };
        }
        Ok(None)
    }

    /// Adds the keys that a read did not find, except those written since it began.
    pub(super) fn learn_absent(&self, since: ReadSince, absent: Vec<KeyPlace>) {
        let mut table = self.0.lock();
        for place in absent {
            if table.written[key_group(&place)] <= since.0 {
                table.absent.put(place, ());
            }
        }
    }

    /// Commits a transaction with these changes, and applies them to the cache. For the writer alone.
    pub(super) fn commit_changes(
        &self,
        changes: BatchChanges,
        commit: impl FnOnce() -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.0.lock().begin_commit(&changes);
        let committed = commit();
        self.0.lock().end_commit(changes, committed.is_ok());
        committed
    }

    /// Clears the cache, and ignores the absent keys of reads that began earlier. For the writer alone.
    pub(super) fn clear(&self) {
        let mut table = self.0.lock();
        table.forget_all_states();
        table.absent.clear();
        table.changes += 1;
        let now = table.changes;
        table.written.fill(now);
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }
}

impl RecentTable {
    fn begin_commit(&mut self, changes: &BatchChanges) {
        for place in &changes.keys {
            self.written[key_group(place)] = u64::MAX;
            self.absent.pop(place);
            self.forget_state(place);
        }
        if changes.commands {
            self.forget_all_states();
        }
    }

    fn end_commit(&mut self, changes: BatchChanges, committed: bool) {
        self.changes += 1;
        for place in &changes.keys {
            self.written[key_group(place)] = self.changes;
        }
        // With changed commands, the states saved before the change have old ones.
        if !committed || changes.commands {
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
