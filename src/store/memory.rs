//! The store in this process's memory, bounded by sessions, bytes and age.
//!
//! The least recently used session is evicted first. Every operation holds one lock for a bounded number of map
//! look-ups, and never waits within it.

use std::num::NonZeroUsize;

use parking_lot::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use lru::LruCache;

use super::{
    Account, FoundState, LooseKeys, MAX_COMMANDS_BYTES, MAX_SHARED, Page, SessionId, SessionRow,
    SharedValues, StateKey, StateToSave, Store, StoreError, Tenant, check_bytes, check_shared,
    limits::StoreLimits,
};
use crate::config::StoreConfig;

mod record;
mod session_table;

use record::SessionRecord;
use session_table::SessionTable;

pub struct MemoryStore {
    limits: StoreLimits,
    sessions: Mutex<SessionTable>,
    shared: Mutex<SharedTable>,
}

struct SharedTable {
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
            sessions: Mutex::new(SessionTable::default()),
            shared: Mutex::new(SharedTable {
                version: 0,
                all: LruCache::new(const { NonZeroUsize::new(MAX_SHARED).expect("not zero") }),
            }),
        }
    }

    fn save_under_keys(
        &self,
        saved: &StateToSave,
        loose: Option<&LooseKeys>,
    ) -> Result<(), StoreError> {
        let (now, horizon) = (self.limits.now_s(), self.limits.expiry_horizon());
        let mut sessions = self.sessions.lock();
        sessions.remove_expired(horizon);
        sessions.save_state(saved, loose, now)?;
        sessions.enforce_limits(&self.limits);
        Ok(())
    }

    /// Bytes in use, counted with every map at its emptiest.
    pub fn held_bytes(&self) -> usize {
        self.sessions.lock().bytes
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn find_state(
        &self,
        tenant: &Tenant,
        _opening: u64,
        keys: &[StateKey],
    ) -> Result<Option<FoundState>, StoreError> {
        let (now, horizon) = (self.limits.now_s(), self.limits.expiry_horizon());
        Ok(self.sessions.lock().find_state(tenant, keys, now, horizon))
    }

    async fn save_state(&self, saved: StateToSave) -> Result<(), StoreError> {
        self.save_under_keys(&saved, None)
    }

    async fn save_with_loose_keys(
        &self,
        saved: StateToSave,
        loose: LooseKeys,
    ) -> Result<(), StoreError> {
        self.save_under_keys(&saved, Some(&loose))
    }

    async fn load_session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        let sessions = self.sessions.lock();
        let record = sessions.find_record(account, id, self.limits.expiry_horizon());
        Ok(record.and_then(|(_, record)| record.to_row()))
    }

    async fn put_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        commands: Bytes,
    ) -> Result<bool, StoreError> {
        check_bytes(commands.len(), MAX_COMMANDS_BYTES)?;
        let mut sessions = self.sessions.lock();
        let found = sessions.put_commands(account, id, &commands, self.limits.expiry_horizon());
        sessions.enforce_limits(&self.limits);
        Ok(found)
    }

    async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let sessions = self.sessions.lock();
        let records = sessions.iter_account(account, self.limits.expiry_horizon());
        let rows = records.filter_map(SessionRecord::to_row).skip(page.skip);
        Ok(rows.take(page.take.min(Page::MAX_TAKE)).collect())
    }

    async fn count_sessions(&self, account: Option<&Account>) -> Result<u64, StoreError> {
        let horizon = self.limits.expiry_horizon();
        Ok(self.sessions.lock().iter_account(account, horizon).count() as u64)
    }

    async fn publish_shared(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        check_shared(name, &value)?;
        let mut shared = self.shared.lock();
        shared.version += 1;
        shared.all.put(Bytes::copy_from_slice(name), value);
        Ok(())
    }

    async fn read_shared(&self) -> Result<SharedValues, StoreError> {
        let shared = self.shared.lock();
        let named = |(name, value): (&Bytes, &Bytes)| (name.clone(), value.clone());
        Ok(SharedValues {
            version: shared.version,
            all: shared.all.iter().map(named).collect(),
        })
    }

    fn shared_version(&self) -> u64 {
        self.shared.lock().version
    }
}

#[cfg(test)]
mod tests;
