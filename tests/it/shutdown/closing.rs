//! A store that outlives its proxy, and notes what it held when it was closed.

use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use plimsoll::{
    config::StoreConfig,
    session::{Account, SessionId, Tenant},
    store::{
        FoundState, Page, SessionRow, SharedValues, StateKey, StateToSave, Store, StoreError,
        memory::MemoryStore,
    },
};

pub(super) struct Closing {
    inner: MemoryStore,
    /// Sessions there were when it was closed.
    pub(super) closed: Mutex<Option<usize>>,
}

impl Default for Closing {
    fn default() -> Self {
        Self {
            inner: MemoryStore::new(&StoreConfig::default()),
            closed: Mutex::default(),
        }
    }
}

#[async_trait]
impl Store for Closing {
    async fn find_state(
        &self,
        tenant: &Tenant,
        opening: u64,
        keys: &[StateKey],
    ) -> Result<Option<FoundState>, StoreError> {
        self.inner.find_state(tenant, opening, keys).await
    }

    async fn save_state(&self, saved: StateToSave) -> Result<(), StoreError> {
        self.inner.save_state(saved).await
    }

    async fn load_session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        self.inner.load_session(account, id).await
    }

    async fn put_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        orders: Bytes,
    ) -> Result<bool, StoreError> {
        self.inner.put_commands(account, id, orders).await
    }

    async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.inner.list_sessions(account, page).await
    }

    async fn publish_shared(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.inner.publish_shared(name, value).await
    }

    async fn read_shared(&self) -> Result<SharedValues, StoreError> {
        self.inner.read_shared().await
    }

    fn shared_version(&self) -> u64 {
        self.inner.shared_version()
    }

    async fn close(&self) {
        let all = Page { skip: 0, take: 10 };
        let held = self
            .inner
            .list_sessions(None, all)
            .await
            .map_or(0, |all| all.len());
        *self.closed.lock().unwrap() = Some(held);
    }
}
