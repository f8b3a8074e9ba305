//! All that the memory store holds: sessions in the order of their use, and where each key points.
//!
//! The key table holds no keys: a place names the generation that has the key, and looking up
//! compares the generation's own key and its session's tenant. So a key costs a few bytes, and no
//! key of another tenant can ever match.

use std::collections::HashMap;

use bytes::Bytes;
use hashbrown::{HashTable, hash_table::Entry};
use lru::LruCache;

use super::{
    super::{
        Account, FoundState, SessionId, StateKey, StateToSave, StoreError, Tenant, key::KeyKind,
    },
    cost,
    record::SessionRecord,
};

/// Expired sessions removed by one write.
pub(super) const MAX_EXPIRED_PER_WRITE: usize = 32;

pub(super) struct SessionTable {
    /// Least recently used last; bounded here and not by itself, since bytes count as well.
    pub(super) records: LruCache<u32, SessionRecord>,
    ids: HashMap<(Account, SessionId), u32>,
    pub(super) keys: HashTable<KeyPointer>,
    next: u32,
    pub(super) bytes: usize,
}

/// The generation a key points to, and which of its keys it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyPointer {
    record: u32,
    /// The generation's number and two bits of kind.
    key: u32,
}

impl KeyPointer {
    /// Generations of one session that can be told apart.
    const NUMBERS: u32 = 1 << 30;

    const fn new(record: u32, number: u32, kind: KeyKind) -> Self {
        Self {
            record,
            key: number << 2 | kind as u32,
        }
    }

    const fn generation_number(self) -> u32 {
        self.key >> 2
    }

    fn key_kind(self) -> KeyKind {
        KeyKind::ALL[(self.key & 3) as usize % KeyKind::ALL.len()]
    }
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
            let place = self.find_pointer(tenant, key)?;
            let record = self.records.peek(&place.record)?;
            let generation = record.find_generation(place.generation_number())?;
            let good = place.key_kind() != KeyKind::Bare || !generation.ambiguous;
            (good && record.used_s >= horizon).then(|| {
                let state = Bytes::copy_from_slice(&generation.state);
                let orders = Bytes::copy_from_slice(&record.commands);
                (
                    place.record,
                    FoundState {
                        at,
                        state,
                        commands: orders,
                    },
                )
            })
        })?;
        // A session in use stays, and does not age.
        if let Some(record) = self.records.get_mut(&id) {
            record.used_s = record.used_s.max(now);
        }
        Some(found)
    }

    /// The session of that account, or of any, unless it has expired.
    pub(super) fn find_record(
        &self,
        account: Option<&Account>,
        session: SessionId,
        horizon: u64,
    ) -> Option<(u32, &SessionRecord)> {
        let (id, record) = match account {
            Some(account) => {
                let id = self.ids.get(&(*account, session))?;
                (*id, self.records.peek(id)?)
            }
            None => {
                let mut all = self.records.iter().map(|(id, record)| (*id, record));
                all.find(|(_, record)| record.session == session)?
            }
        };
        (record.used_s >= horizon).then_some((id, record))
    }

    /// The sessions of that account, or of any, that have not expired; newest first.
    pub(super) fn iter_account(
        &self,
        account: Option<&Account>,
        horizon: u64,
    ) -> impl Iterator<Item = &SessionRecord> {
        let records = self.records.iter().map(|(_, record)| record);
        records.filter(move |record| {
            record.used_s >= horizon && account.is_none_or(|own| record.tenant.account() == *own)
        })
    }

    /// Replaces the orders of a session, without using it. Returns whether it is there.
    pub(super) fn put_commands(
        &mut self,
        account: Option<&Account>,
        session: SessionId,
        orders: &[u8],
        horizon: u64,
    ) -> bool {
        let id = self
            .find_record(account, session, horizon)
            .map(|(id, _)| id);
        let Some(record) = id.and_then(|id| self.records.peek_mut(&id)) else {
            return false;
        };
        let freed = cost::commands_cost(record.commands.len());
        record.commands = orders.into();
        self.bytes = self.bytes.saturating_sub(freed) + cost::commands_cost(orders.len());
        true
    }

    pub(super) fn save_state(&mut self, saved: &StateToSave, now: u64) -> Result<(), StoreError> {
        let id = self.find_or_create_record(saved)?;
        let ambiguous = self.is_ambiguous(saved);
        let same = self
            .records
            .peek(&id)
            .and_then(|record| record.find_retried(saved));
        if let Some(at) = same {
            self.remove_generation(id, at);
        }
        let Some(record) = self.records.get_mut(&id) else {
            return Ok(());
        };
        record.saved_s = now;
        record.used_s = now;
        let number = record.append_generation(saved, ambiguous, KeyPointer::NUMBERS);
        self.bytes += cost::generation_cost(saved.state.len());
        for (kind, _) in saved.keys.iter() {
            self.set_pointer(KeyPointer::new(id, number, kind));
        }
        while let Some(at) = self
            .records
            .peek(&id)
            .and_then(SessionRecord::find_superfluous)
        {
            self.remove_generation(id, at);
        }
        Ok(())
    }

    /// Removes some of the expired, least recently used first.
    pub(super) fn remove_expired(&mut self, horizon: u64) {
        for _ in 0..MAX_EXPIRED_PER_WRITE {
            match self.records.peek_lru() {
                Some((_, record)) if record.used_s < horizon => self.remove_oldest(),
                _ => return,
            }
        }
    }

    /// Removes the least recently used until the bounds hold.
    pub(super) fn enforce_limits(&mut self, sessions: usize, bytes: usize) {
        while !self.records.is_empty() && (self.records.len() > sessions || self.bytes > bytes) {
            self.remove_oldest();
        }
    }

    /// The record of the session saved to, made where there is none.
    fn find_or_create_record(&mut self, saved: &StateToSave) -> Result<u32, StoreError> {
        let name = (saved.tenant.account(), saved.session);
        if let Some(&id) = self.ids.get(&name) {
            // SECURITY: the end users of one account may know each other's session ids.
            let record = self.records.peek(&id);
            let own = record.is_some_and(|record| record.tenant == saved.tenant);
            return own.then_some(id).ok_or(StoreError::Foreign);
        }
        while self.records.contains(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.ids.insert(name, id);
        self.records.put(id, SessionRecord::new(saved));
        self.bytes += cost::SESSION;
        Ok(id)
    }

    /// Whether the bare key has seen another answer than this one.
    fn is_ambiguous(&self, saved: &StateToSave) -> bool {
        self.find_pointer(&saved.tenant, &saved.keys.bare)
            .and_then(|place| {
                self.records
                    .peek(&place.record)?
                    .find_generation(place.generation_number())
            })
            .is_some_and(|seen| seen.ambiguous || seen.answer != saved.answer as u64)
    }

    /// Whether a place names a key of a generation that is there.
    #[cfg(test)]
    pub(super) fn is_current(&self, place: KeyPointer) -> bool {
        resolve_pointer(&self.records, place)
            .is_some_and(|(tenant, key)| self.find_pointer(tenant, key) == Some(place))
    }

    /// Where a key points.
    fn find_pointer(&self, tenant: &Tenant, key: &StateKey) -> Option<KeyPointer> {
        let holds =
            |place: &KeyPointer| resolve_pointer(&self.records, *place) == Some((tenant, key));
        self.keys.find(hash_key(tenant, key), holds).copied()
    }

    /// Points the key that stands at a place to it, wherever it pointed before.
    fn set_pointer(&mut self, place: KeyPointer) {
        let records = &self.records;
        let Some((tenant, key)) = resolve_pointer(records, place) else {
            return;
        };
        let entry = self.keys.entry(
            hash_key(tenant, key),
            |other| resolve_pointer(records, *other) == Some((tenant, key)),
            |other| {
                resolve_pointer(records, *other).map_or(0, |(tenant, key)| hash_key(tenant, key))
            },
        );
        match entry {
            Entry::Occupied(mut other) => *other.get_mut() = place,
            Entry::Vacant(free) => {
                free.insert(place);
            }
        }
    }

    /// Drops a generation and the keys that still point to it; those that went over to another
    /// stay.
    fn remove_generation(&mut self, id: u32, at: usize) {
        let Some(record) = self.records.peek_mut(&id) else {
            return;
        };
        let tenant = record.tenant;
        let old = record.generations.remove(at);
        for (kind, key) in old.keys.iter() {
            let place = KeyPointer::new(id, old.number, kind);
            let hash = hash_key(&tenant, key);
            if let Ok(entry) = self.keys.find_entry(hash, |other| *other == place) {
                entry.remove();
            }
        }
        self.bytes = self
            .bytes
            .saturating_sub(cost::generation_cost(old.state.len()));
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
        let freed = cost::SESSION + cost::commands_cost(record.commands.len());
        self.bytes = self.bytes.saturating_sub(freed);
    }
}

/// The key that a place stands for, and whose it is.
fn resolve_pointer(
    records: &LruCache<u32, SessionRecord>,
    place: KeyPointer,
) -> Option<(&Tenant, &StateKey)> {
    let record = records.peek(&place.record)?;
    let key = record
        .find_generation(place.generation_number())?
        .keys
        .get(place.key_kind())?;
    Some((&record.tenant, key))
}

/// Keys and tenants are digests already, and a tenant's is secret: their bits are as good as any
/// hash of them, and nobody can make many fall together.
fn hash_key(tenant: &Tenant, key: &StateKey) -> u64 {
    let half = |bytes: &[u8; 16]| u128::from_le_bytes(*bytes) as u64;
    half(tenant.id()) ^ half(key.as_bytes())
}
