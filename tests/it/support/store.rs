//! A store in memory that can fail, and that keeps copies of what is written to it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use plimsoll::{
    config::StoreConfig,
    session::{Account, SessionId, Tenant},
    store::{
        FoundState, LooseKeys, Page, SessionRow, SharedValues, StateKey, StateToSave, Store,
        StoreError, memory::MemoryStore,
    },
};

pub(crate) struct TestStore {
    pub(crate) inner: Arc<dyn Store>,
    /// Every operation fails.
    pub(crate) down: bool,
    /// Listing fails, so that nothing can be found by listing.
    pub(crate) fails_to_list: bool,
    /// Every state and command that was written.
    pub(crate) written: Mutex<Vec<Bytes>>,
    /// How many sessions there were when it was closed; `None` before.
    pub(crate) sessions_at_close: Mutex<Option<usize>>,
}

pub(crate) fn memory_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(&StoreConfig::default()))
}

impl Default for TestStore {
    fn default() -> Self {
        Self {
            inner: memory_store(),
            down: false,
            fails_to_list: false,
            written: Mutex::default(),
            sessions_at_close: Mutex::default(),
        }
    }
}

impl TestStore {
    fn inner(&self) -> Result<&dyn Store, StoreError> {
        if self.down {
            Err(StoreError::Down)
        } else {
            Ok(&*self.inner)
        }
    }

    fn copy(&self, bytes: &Bytes) {
        self.written.lock().unwrap().push(bytes.clone());
    }
}

#[async_trait]
impl Store for TestStore {
    async fn find_state(
        &self,
        tenant: &Tenant,
        opening: u64,
        keys: &[StateKey],
    ) -> Result<Option<FoundState>, StoreError> {
        self.inner()?.find_state(tenant, opening, keys).await
    }

    async fn save_state(&self, saved: StateToSave) -> Result<(), StoreError> {
        self.copy(&saved.state);
        self.inner()?.save_state(saved).await
    }

    async fn save_with_loose_keys(
        &self,
        saved: StateToSave,
        loose: LooseKeys,
    ) -> Result<(), StoreError> {
        self.copy(&saved.state);
        self.inner()?.save_with_loose_keys(saved, loose).await
    }

    async fn load_session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        self.inner()?.load_session(account, id).await
    }

    async fn put_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        commands: Bytes,
    ) -> Result<bool, StoreError> {
        self.copy(&commands);
        self.inner()?.put_commands(account, id, commands).await
    }

    async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<SessionRow>, StoreError> {
        if self.fails_to_list {
            Err(StoreError::Down)
        } else {
            self.inner()?.list_sessions(account, page).await
        }
    }

    async fn count_sessions(&self, account: Option<&Account>) -> Result<u64, StoreError> {
        if self.fails_to_list {
            Err(StoreError::Down)
        } else {
            self.inner()?.count_sessions(account).await
        }
    }

    async fn publish_shared(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.inner()?.publish_shared(name, value).await
    }

    async fn read_shared(&self) -> Result<SharedValues, StoreError> {
        self.inner()?.read_shared().await
    }

    fn shared_version(&self) -> u64 {
        self.inner.shared_version()
    }

    async fn close(&self) {
        let all = Page { skip: 0, take: 10 };
        let sessions = self.inner.list_sessions(None, all).await;
        *self.sessions_at_close.lock().unwrap() = Some(sessions.map_or(0, |all| all.len()));
    }
}
