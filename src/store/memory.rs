//! The store within this process: bounded by sessions, bytes and age, gone when it ends.
//!
//! The least recently used session goes first. Of each conversation a few newest ancestors are
//! kept. Every operation holds one lock for a bounded number of map look-ups; nothing waits in it.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use lru::LruCache;

use super::{
    Account, Found, Key, MAX_ORDERS_BYTES, MAX_SHARED, Page, Row, Saved, SessionId, Shared, Store,
    StoreError, Tenant, check_bytes, check_shared, limits::StoreLimits,
};
use crate::config::StoreConfig;

mod cost;
mod held;
mod record;

use held::Held;
use record::Record;

/// Sessions in memory.
pub struct MemoryStore {
    limits: StoreLimits,
    held: Mutex<Held>,
    shared: Mutex<Told>,
}

/// What is shared, though there is nobody here to share it with but who asks later.
struct Told {
    version: u64,
    all: LruCache<Bytes, Bytes>,
}

impl MemoryStore {
    pub fn new(config: &StoreConfig) -> Self {
        Self::with_limits(StoreLimits::new(config))
    }

    pub(super) fn with_limits(limits: StoreLimits) -> Self {
        Self {
            limits,
            held: Mutex::new(Held::default()),
            shared: Mutex::new(Told {
                version: 0,
                all: LruCache::new(const { NonZeroUsize::new(MAX_SHARED).expect("not zero") }),
            }),
        }
    }

    /// Sessions held now, expired ones that no write has removed yet included.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().records.len()
    }

    /// Bytes held now, counted with every map at its emptiest.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// A panic while the lock was held leaves at worst a key without a state, which is a miss.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_shared(&self) -> MutexGuard<'_, Told> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn find(
        &self,
        tenant: &Tenant,
        _opening: u64,
        keys: &[Key],
    ) -> Result<Option<Found>, StoreError> {
        let (now, horizon) = (self.limits.now(), self.limits.horizon());
        Ok(self.lock().find(tenant, keys, now, horizon))
    }

    async fn save(&self, saved: Saved) -> Result<(), StoreError> {
        let (now, horizon) = (self.limits.now(), self.limits.horizon());
        let mut held = self.lock();
        held.sweep(horizon);
        held.save(&saved, now)?;
        held.shrink(self.limits.sessions, self.limits.bytes);
        Ok(())
    }

    async fn session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Row>, StoreError> {
        let horizon = self.limits.horizon();
        let held = self.lock();
        let record = held.named(account, id, horizon);
        Ok(record.and_then(|(_, record)| record.row()))
    }

    async fn order(
        &self,
        account: Option<&Account>,
        id: SessionId,
        orders: Bytes,
    ) -> Result<bool, StoreError> {
        check_bytes(orders.len(), MAX_ORDERS_BYTES)?;
        let horizon = self.limits.horizon();
        let mut held = self.lock();
        let ordered = held.order(account, id, &orders, horizon);
        held.shrink(self.limits.sessions, self.limits.bytes);
        Ok(ordered)
    }

    async fn sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<Row>, StoreError> {
        let horizon = self.limits.horizon();
        let held = self.lock();
        let rows = held.of_account(account, horizon).filter_map(Record::row);
        Ok(rows
            .skip(page.skip)
            .take(page.take.min(Page::MAX_TAKE))
            .collect())
    }

    async fn count(&self, account: Option<&Account>) -> Result<u64, StoreError> {
        let horizon = self.limits.horizon();
        Ok(self.lock().of_account(account, horizon).count() as u64)
    }

    async fn share(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        check_shared(name, &value)?;
        let mut shared = self.lock_shared();
        shared.version += 1;
        shared.all.put(Bytes::copy_from_slice(name), value);
        Ok(())
    }

    async fn shared(&self) -> Result<Shared, StoreError> {
        let shared = self.lock_shared();
        let named = |(name, value): (&Bytes, &Bytes)| (name.clone(), value.clone());
        Ok(Shared {
            version: shared.version,
            all: shared.all.iter().map(named).collect(),
        })
    }

    fn shared_version(&self) -> u64 {
        self.lock_shared().version
    }
}

#[cfg(test)]
mod tests;
