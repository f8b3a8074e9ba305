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
    super::{Account, Found, Key, Saved, SessionId, StoreError, Tenant, key::KeyKind},
    cost,
    record::Record,
};

/// Expired sessions removed by one write.
pub(super) const SWEEP: usize = 32;

pub(super) struct Held {
    /// Least recently used last; bounded here and not by itself, since bytes count as well.
    pub(super) records: LruCache<u32, Record>,
    ids: HashMap<(Account, SessionId), u32>,
    pub(super) keys: HashTable<Place>,
    next: u32,
    pub(super) bytes: usize,
}

/// The generation a key points to, and which of its keys it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    record: u32,
    /// The generation's number and two bits of kind.
    key: u32,
}

impl Place {
    /// Generations of one session that can be told apart.
    const NUMBERS: u32 = 1 << 30;

    const fn new(record: u32, number: u32, kind: KeyKind) -> Self {
        Self {
            record,
            key: number << 2 | kind as u32,
        }
    }

    const fn number(self) -> u32 {
        self.key >> 2
    }

    fn kind(self) -> KeyKind {
        KeyKind::ALL[(self.key & 3) as usize % KeyKind::ALL.len()]
    }
}

impl Default for Held {
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

impl Held {
    pub(super) fn find(
        &mut self,
        tenant: &Tenant,
        keys: &[Key],
        now: u64,
        horizon: u64,
    ) -> Option<Found> {
        let (id, found) = keys.iter().enumerate().find_map(|(at, key)| {
            let place = self.place(tenant, key)?;
            let record = self.records.peek(&place.record)?;
            let generation = record.generation(place.number())?;
            let good = place.kind() != KeyKind::Bare || !generation.ambiguous;
            (good && record.used_s >= horizon).then(|| {
                let state = Bytes::copy_from_slice(&generation.state);
                let orders = Bytes::copy_from_slice(&record.orders);
                (place.record, Found { at, state, orders })
            })
        })?;
        // A session in use stays, and does not age.
        if let Some(record) = self.records.get_mut(&id) {
            record.used_s = record.used_s.max(now);
        }
        Some(found)
    }

    /// The session of that account, or of any, unless it has expired.
    pub(super) fn named(
        &self,
        account: Option<&Account>,
        session: SessionId,
        horizon: u64,
    ) -> Option<(u32, &Record)> {
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
    pub(super) fn of_account(
        &self,
        account: Option<&Account>,
        horizon: u64,
    ) -> impl Iterator<Item = &Record> {
        let records = self.records.iter().map(|(_, record)| record);
        records.filter(move |record| {
            record.used_s >= horizon && account.is_none_or(|own| record.tenant.account() == *own)
        })
    }

    /// Replaces the orders of a session, without using it. Returns whether it is there.
    pub(super) fn order(
        &mut self,
        account: Option<&Account>,
        session: SessionId,
        orders: &[u8],
        horizon: u64,
    ) -> bool {
        let id = self.named(account, session, horizon).map(|(id, _)| id);
        let Some(record) = id.and_then(|id| self.records.peek_mut(&id)) else {
            return false;
        };
        let freed = cost::orders(record.orders.len());
        record.orders = orders.into();
        self.bytes = self.bytes.saturating_sub(freed) + cost::orders(orders.len());
        true
    }

    pub(super) fn save(&mut self, saved: &Saved, now: u64) -> Result<(), StoreError> {
        let id = self.record_of(saved)?;
        let ambiguous = self.ambiguous(saved);
        let same = self.records.peek(&id).and_then(|record| record.same(saved));
        if let Some(at) = same {
            self.remove_generation(id, at);
        }
        let Some(record) = self.records.get_mut(&id) else {
            return Ok(());
        };
        record.saved_s = now;
        record.used_s = now;
        let number = record.append(saved, ambiguous, Place::NUMBERS);
        self.bytes += cost::generation(saved.state.len());
        for (kind, _) in saved.keys.iter() {
            self.point(Place::new(id, number, kind));
        }
        while let Some(at) = self.records.peek(&id).and_then(Record::superfluous) {
            self.remove_generation(id, at);
        }
        Ok(())
    }

    /// Removes some of the expired, least recently used first.
    pub(super) fn sweep(&mut self, horizon: u64) {
        for _ in 0..SWEEP {
            match self.records.peek_lru() {
                Some((_, record)) if record.used_s < horizon => self.remove_oldest(),
                _ => return,
            }
        }
    }

    /// Removes the least recently used until the bounds hold.
    pub(super) fn shrink(&mut self, sessions: usize, bytes: usize) {
        while !self.records.is_empty() && (self.records.len() > sessions || self.bytes > bytes) {
            self.remove_oldest();
        }
    }

    /// The record of the session saved to, made where there is none.
    fn record_of(&mut self, saved: &Saved) -> Result<u32, StoreError> {
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
        self.records.put(id, Record::new(saved));
        self.bytes += cost::SESSION;
        Ok(id)
    }

    /// Whether the bare key has seen another answer than this one.
    fn ambiguous(&self, saved: &Saved) -> bool {
        self.place(&saved.tenant, &saved.keys.bare)
            .and_then(|place| self.records.peek(&place.record)?.generation(place.number()))
            .is_some_and(|seen| seen.ambiguous || seen.answer != saved.answer as u64)
    }

    /// Whether a place names a key of a generation that is there.
    #[cfg(test)]
    pub(super) fn stands(&self, place: Place) -> bool {
        named(&self.records, place)
            .is_some_and(|(tenant, key)| self.place(tenant, key) == Some(place))
    }

    /// Where a key points.
    fn place(&self, tenant: &Tenant, key: &Key) -> Option<Place> {
        let holds = |place: &Place| named(&self.records, *place) == Some((tenant, key));
        self.keys.find(hash(tenant, key), holds).copied()
    }

    /// Points the key that stands at a place to it, wherever it pointed before.
    fn point(&mut self, place: Place) {
        let records = &self.records;
        let Some((tenant, key)) = named(records, place) else {
            return;
        };
        let entry = self.keys.entry(
            hash(tenant, key),
            |other| named(records, *other) == Some((tenant, key)),
            |other| named(records, *other).map_or(0, |(tenant, key)| hash(tenant, key)),
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
            let place = Place::new(id, old.number, kind);
            let hash = hash(&tenant, key);
            if let Ok(entry) = self.keys.find_entry(hash, |other| *other == place) {
                entry.remove();
            }
        }
        self.bytes = self.bytes.saturating_sub(cost::generation(old.state.len()));
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
        let freed = cost::SESSION + cost::orders(record.orders.len());
        self.bytes = self.bytes.saturating_sub(freed);
    }
}

/// The key that a place stands for, and whose it is.
fn named(records: &LruCache<u32, Record>, place: Place) -> Option<(&Tenant, &Key)> {
    let record = records.peek(&place.record)?;
    let key = record.generation(place.number())?.keys.get(place.kind())?;
    Some((&record.tenant, key))
}

/// Keys and tenants are digests already, and a tenant's is secret: their bits are as good as any
/// hash of them, and nobody can make many fall together.
fn hash(tenant: &Tenant, key: &Key) -> u64 {
    let half = |bytes: &[u8; 16]| u128::from_le_bytes(*bytes) as u64;
    half(tenant.id()) ^ half(key.bytes())
}
