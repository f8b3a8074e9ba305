//! A cache of recently saved states, and of keys that the file does not have, in one list of recent use.
//!
//! The writer commits every change through [`RecentStates::commit_changes`]. It removes all changed entries before
//! the commit and inserts the new states after it. So the cache never has a state that is already replaced in the
//! file.
//!
//! Only exact keys lead to a state. A client that echoes the last answer unchanged causes a find of one; other finds
//! read the file.
//!
//! Only reads add absent keys. A read does not add keys that were written since the read began. The file is locked, so
//! no other process changes it.

use parking_lot::Mutex;

use lru::LruCache;

use super::{
    read::StateHit,
    row::{GenerationHead, KeyPlace, key_place},
};
use crate::store::{StateKey, Tenant};

/// Most bytes of all entries.
const MAX_BYTES: usize = 8 << 20;
/// Bytes of a state's entry without the state and its commands.
const STATE_OVERHEAD: usize = 256;
/// Bytes of an absent key. Requests with the same examples before their question search for the same keys.
const ABSENT_BYTES: usize = 128;
/// Groups of keys, each with the time of its last write.
const GROUPS: usize = 1_024;

/// The state of an exact key, with the tenant and key that a find must match.
#[derive(Debug)]
struct CachedState {
    tenant: Tenant,
    exact: StateKey,
    hit: StateHit,
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
        self.keys.extend(head.key_places());
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
    /// The states of exact keys; `None` for an absent key.
    entries: LruCache<KeyPlace, Option<CachedState>>,
    bytes: usize,
    /// Transactions so far.
    changes: u64,
    /// The last change by group of keys; the highest number during a commit.
    written: [u64; GROUPS],
}

impl Default for RecentTable {
    fn default() -> Self {
        Self {
            entries: LruCache::unbounded(),
            bytes: 0,
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
            match table.entries.get(&key_place(prefix_group, key)) {
                Some(None) => {}
                // SECURITY: the whole tenant and the whole key are compared, as with a row of the file. An expired hit
                // needs the file, since the session may have been used with another of its states.
                Some(Some(cached))
                    if cached.tenant == *tenant
                        && cached.exact == *key
                        && cached.hit.used_s >= horizon =>
                {
                    let mut hit = cached.hit.clone();
                    hit.found.at = at;
                    return Ok(Some(hit));
                }
                _ => return Err(ReadSince(table.changes)),
            }
        }
        Ok(None)
    }

    /// Adds the keys that a read did not find, except those written since it began.
    pub(super) fn learn_absent(&self, since: ReadSince, absent: Vec<KeyPlace>) {
        let mut table = self.0.lock();
        for place in absent {
            if table.written[key_group(&place)] <= since.0 {
                table.put_entry(place, None);
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
        table.forget_all();
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
            self.forget_entry(place);
        }
        if changes.commands {
            self.forget_all();
        }
    }

    fn end_commit(&mut self, changes: BatchChanges, committed: bool) {
        self.changes += 1;
        for place in &changes.keys {
            self.written[key_group(place)] = self.changes;
        }
        // With changed commands, the states saved before the change have old ones.
        if committed && !changes.commands {
            for (place, state) in changes.saved {
                self.put_entry(place, Some(state));
            }
        }
    }

    fn put_entry(&mut self, place: KeyPlace, entry: Option<CachedState>) {
        self.forget_entry(&place);
        self.bytes += entry_bytes(&entry);
        self.entries.put(place, entry);
        while self.bytes > MAX_BYTES
            && let Some((_, oldest)) = self.entries.pop_lru()
        {
            self.bytes -= entry_bytes(&oldest);
        }
    }

    fn forget_entry(&mut self, place: &KeyPlace) {
        if let Some(entry) = self.entries.pop(place) {
            self.bytes -= entry_bytes(&entry);
        }
    }

    fn forget_all(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }
}

fn entry_bytes(entry: &Option<CachedState>) -> usize {
    entry.as_ref().map_or(ABSENT_BYTES, |cached| {
        STATE_OVERHEAD + cached.hit.found.state.len() + cached.hit.found.commands.len()
    })
}

fn key_group(place: &KeyPlace) -> usize {
    usize::from(u16::from_le_bytes([place[8], place[9]])) % GROUPS
}
