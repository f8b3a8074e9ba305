//! A store that outlives its proxy, and notes what it held when it was closed.

use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use plimsoll::{
    config::StoreConfig,
    session::{Account, SessionId, Tenant},
    store::{Found, Key, Page, Row, Saved, Shared, Store, StoreError, memory::MemoryStore},
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
    async fn find(
        &self,
        tenant: &Tenant,
        opening: u64,
        keys: &[Key],
    ) -> Result<Option<Found>, StoreError> {
        self.inner.find(tenant, opening, keys).await
    }

    async fn save(&self, saved: Saved) -> Result<(), StoreError> {
        self.inner.save(saved).await
    }

    async fn session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Row>, StoreError> {
        self.inner.session(account, id).await
    }

    async fn order(
        &self,
        account: Option<&Account>,
        id: SessionId,
        orders: Bytes,
    ) -> Result<bool, StoreError> {
        self.inner.order(account, id, orders).await
    }

    async fn sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<Row>, StoreError> {
        self.inner.sessions(account, page).await
    }

    async fn share(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.inner.share(name, value).await
    }

    async fn shared(&self) -> Result<Shared, StoreError> {
        self.inner.shared().await
    }

    fn shared_version(&self) -> u64 {
        self.inner.shared_version()
    }

    async fn close(&self) {
        let all = Page { skip: 0, take: 10 };
        let held = self
            .inner
            .sessions(None, all)
            .await
            .map_or(0, |all| all.len());
        *self.closed.lock().unwrap() = Some(held);
    }
}
