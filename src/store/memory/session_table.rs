//! The memory store's sessions in the order of their use, and its table of keys.
//!
//! The key table holds pointers to generations instead of keys. A look-up compares the generation's key and its
//! session's tenant. So a key costs a few bytes, and another tenant's key never matches.

use std::collections::HashMap;

use bytes::Bytes;
use hashbrown::HashTable;
use lru::LruCache;

use super::{
    super::{Account, FoundState, LooseKeys, SessionId, StateKey, StateToSave, StoreError, Tenant},
    record::{Generation, KeyPointer, LooseRecord, SessionRecord},
};
use crate::store::{key::KeyKind, limits::StoreLimits};

/// Memory of a session without its generations, and of a generation without its state: with the allocator's overhead,
/// and with maps that have just grown. `benches/store.rs` compares it with what the process takes.
const SESSION_BYTES: usize = 304;
const GENERATION_BYTES: usize = 168;

pub(super) const fn session_cost(commands: usize) -> usize {
    SESSION_BYTES + commands
}

pub(super) const fn generation_cost(state: usize) -> usize {
    GENERATION_BYTES + state
}

/// Most expired sessions that one write removes.
pub(super) const MAX_EXPIRED_PER_WRITE: usize = 32;

pub(super) struct SessionTable {
    /// Least recently used last. The cache itself has no bound, since bytes count as well.
    pub(super) records: LruCache<u32, SessionRecord>,
    ids: HashMap<(Account, SessionId), u32>,
    pub(super) keys: HashTable<KeyPointer>,
    next: u32,
    pub(super) bytes: usize,
}

impl Default for SessionTable {
    fn default() -> Self {
        Self {
            records: LruCache::unbounded(),
            ids: HashMap::new(),
            keys: HashTable::new(),
            next: 0,
            bytes: 0,
        }
    }
}

impl SessionTable {
    pub(super) fn find_state(
        &mut self,
        tenant: &Tenant,
        keys: &[StateKey],
        now: u64,
        horizon: u64,
    ) -> Option<FoundState> {
        let (id, found) = keys.iter().enumerate().find_map(|(at, key)| {
            let pointer = self.find_pointer(tenant, key)?;
            let (record, generation) = resolve_generation(&self.records, pointer)?;
            if generation.is_ambiguous(pointer.key_kind()) || record.used_s < horizon {
                return None;
            }
            let found = FoundState {
                at,
                state: Bytes::copy_from_slice(&generation.state),
                commands: Bytes::copy_from_slice(&record.commands),
            };
            Some((pointer.record, found))
        })?;
        // A find counts as a use of the session.
        if let Some(record) = self.records.get_mut(&id) {
            record.used_s = record.used_s.max(now);
        }
        Some(found)
    }

    /// The session of one account, or of any, unless it has expired.
    pub(super) fn find_record(
        &self,
        account: Option<&Account>,
        session: SessionId,
        horizon: u64,
    ) -> Option<(u32, &SessionRecord)> {
        let (id, record) = match account {
            Some(account) => {
                let id = self.ids.get(&(*account, session))?;
                (id, self.records.peek(id)?)
            }
            None => {
                let mut records = self.records.iter();
                records.find(|(_, record)| record.session == session)?
            }
        };
        (record.used_s >= horizon).then_some((*id, record))
    }

    /// The sessions of one account, or of all, that have not expired; newest first.
    pub(super) fn iter_account(
        &self,
        account: Option<&Account>,
        horizon: u64,
    ) -> impl Iterator<Item = &SessionRecord> {
        let records = self.records.iter().map(|(_, record)| record);
        records.filter(move |record| {
            let selected = account.is_none_or(|account| record.tenant.account() == *account);
            selected && record.used_s >= horizon
        })
    }

    /// Replaces the commands of a session, without a use of it; `false` if there is no such session.
    pub(super) fn put_commands(
        &mut self,
        account: Option<&Account>,
        session: SessionId,
        commands: &[u8],
        horizon: u64,
    ) -> bool {
        let found = self.find_record(account, session, horizon);
        let id = found.map(|(id, _)| id);
        let Some(record) = id.and_then(|id| self.records.peek_mut(&id)) else {
            return false;
        };
        let freed = record.commands.len();
        record.commands = commands.into();
        self.bytes = self.bytes.saturating_sub(freed) + commands.len();
        true
    }

    pub(super) fn save_state(
        &mut self,
        saved: &StateToSave,
        loose: Option<&LooseKeys>,
        now: u64,
    ) -> Result<(), StoreError> {
        let id = self.find_or_create_record(saved)?;
        let ambiguous = self.is_ambiguous(saved);
        let loose = loose.map(|keys| LooseRecord {
            keys: *keys,
            ambiguous: keys.map(|key| self.is_of_other_session(&saved.tenant, &key, id)),
        });
        let record = self.records.peek(&id);
        if let Some(at) = record.and_then(|record| record.find_retried(saved)) {
            self.remove_generation(id, at);
        }
        let Some(record) = self.records.get_mut(&id) else {
            return Ok(());
        };
        record.saved_s = now;
        record.used_s = now;
        let number = record.append_generation(saved, ambiguous, loose);
        let newest = record.generations.last();
        self.bytes += generation_cost(saved.state.len());
        self.bytes += newest.map_or(0, Generation::loose_bytes);
        for kind in KeyKind::ALL {
            self.set_pointer(KeyPointer::new(id, number, kind));
        }
        while let Some(record) = self.records.peek(&id)
            && let Some(at) = record.find_superfluous()
        {
            self.remove_generation(id, at);
        }
        Ok(())
    }

    /// Removes some expired sessions, least recently used first.
    pub(super) fn remove_expired(&mut self, horizon: u64) {
        for _ in 0..MAX_EXPIRED_PER_WRITE {
            match self.records.peek_lru() {
                Some((_, record)) if record.used_s < horizon => self.remove_oldest(),
                _ => return,
            }
        }
    }

    /// Removes the least recently used sessions until the limits hold.
    pub(super) fn enforce_limits(&mut self, limits: &StoreLimits) {
        while !self.records.is_empty()
            && (self.records.len() > limits.sessions || self.bytes > limits.bytes)
        {
            self.remove_oldest();
        }
    }

    fn find_or_create_record(&mut self, saved: &StateToSave) -> Result<u32, StoreError> {
        let name = (saved.tenant.account(), saved.session);
        if let Some(&id) = self.ids.get(&name) {
            // SECURITY: the end users of one account may know each other's session ids.
            let record = self.records.peek(&id);
            let record = record.filter(|record| record.tenant == saved.tenant);
            return record.map(|_| id).ok_or(StoreError::Foreign);
        }
        while self.records.contains(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.ids.insert(name, id);
        self.records.put(id, SessionRecord::new(saved));
        self.bytes += session_cost(0);
        Ok(id)
    }

    /// Whether the bare key has seen another answer.
    fn is_ambiguous(&self, saved: &StateToSave) -> bool {
        self.find_pointer(&saved.tenant, &saved.keys.bare)
            .and_then(|pointer| resolve_generation(&self.records, pointer))
            .is_some_and(|(_, seen)| seen.ambiguous || seen.answer != saved.answer as u64)
    }

    /// Whether another session than this one has saved under a loose key.
    fn is_of_other_session(&self, tenant: &Tenant, key: &StateKey, id: u32) -> bool {
        self.find_pointer(tenant, key).is_some_and(|pointer| {
            let found = resolve_generation(&self.records, pointer);
            let seen = found.is_some_and(|(_, seen)| seen.is_ambiguous(pointer.key_kind()));
            seen || pointer.record != id
        })
    }

    #[cfg(test)]
    pub(super) fn is_current(&self, pointer: KeyPointer) -> bool {
        resolve_pointer(&self.records, pointer)
            .is_some_and(|(tenant, key)| self.find_pointer(tenant, key) == Some(pointer))
    }

    fn find_pointer(&self, tenant: &Tenant, key: &StateKey) -> Option<KeyPointer> {
        let is_key =
            |pointer: &KeyPointer| resolve_pointer(&self.records, *pointer) == Some((tenant, key));
        self.keys.find(hash_key(tenant, key), is_key).copied()
    }

    /// Inserts the pointer of a key, or replaces the key's earlier one.
    fn set_pointer(&mut self, pointer: KeyPointer) {
        let records = &self.records;
        let Some((tenant, key)) = resolve_pointer(records, pointer) else {
            return;
        };
        let hash = |(tenant, key): (&Tenant, &StateKey)| hash_key(tenant, key);
        let entry = self.keys.entry(
            hash_key(tenant, key),
            |known| resolve_pointer(records, *known) == Some((tenant, key)),
            |known| resolve_pointer(records, *known).map_or(0, hash),
        );
        entry.insert(pointer);
    }

    /// Removes a generation and the keys that still point to it; keys that moved to another generation stay.
    fn remove_generation(&mut self, id: u32, at: usize) {
        let Some(record) = self.records.peek_mut(&id) else {
            return;
        };
        let tenant = record.tenant;
        let old = record.generations.remove(at);
        for kind in KeyKind::ALL {
            let Some(key) = old.find_key(kind) else {
                continue;
            };
            let pointer = KeyPointer::new(id, old.number, kind);
            let hash = hash_key(&tenant, key);
            if let Ok(entry) = self.keys.find_entry(hash, |known| *known == pointer) {
                entry.remove();
            }
        }
        let freed = generation_cost(old.state.len()) + old.loose_bytes();
        self.bytes = self.bytes.saturating_sub(freed);
    }

    fn remove_oldest(&mut self) {
        let Some((&id, record)) = self.records.peek_lru() else {
            return;
        };
        for at in (0..record.generations.len()).rev() {
            self.remove_generation(id, at);
        }
        let Some((_, record)) = self.records.pop_lru() else {
            return;
        };
        self.ids.remove(&(record.tenant.account(), record.session));
        let freed = session_cost(record.commands.len());
        self.bytes = self.bytes.saturating_sub(freed);
    }
}

fn resolve_generation(
    records: &LruCache<u32, SessionRecord>,
    pointer: KeyPointer,
) -> Option<(&SessionRecord, &Generation)> {
    let record = records.peek(&pointer.record)?;
    let generation = record.find_generation(pointer.generation_number())?;
    Some((record, generation))
}

/// The key of a pointer and its tenant.
fn resolve_pointer(
    records: &LruCache<u32, SessionRecord>,
    pointer: KeyPointer,
) -> Option<(&Tenant, &StateKey)> {
    let (record, generation) = resolve_generation(records, pointer)?;
    let key = generation.find_key(pointer.key_kind())?;
    Some((&record.tenant, key))
}

/// Keys and tenants are digests, so their bits need no hash. A tenant's digest is secret, so no client can cause
/// collisions.
fn hash_key(tenant: &Tenant, key: &StateKey) -> u64 {
    let half = |bytes: &[u8; 16]| u128::from_le_bytes(*bytes) as u64;
    half(tenant.id()) ^ half(key.as_bytes())
}
