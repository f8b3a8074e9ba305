//! Where session states are kept: one trait, the same promises of every store.
//!
//! A store knows keys and bytes, nothing of conversations. It promises that what one tenant
//! saved is found by that tenant alone, that a save lands whole or not at all, and that what it
//! holds is bounded by count, bytes and age. Losing a state is allowed (it expired, it was pushed
//! out); giving a wrong one never is.

use std::{io, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::config::{StoreConfig, StorePlace};

pub mod file;
mod key;
mod limits;
pub mod memory;
pub mod redis;
mod retention;

pub use key::{Account, SessionId, StateKey, StateKeys, Tenant};

/// One generation's state, on its way into a store.
#[derive(Clone, Debug)]
pub struct StateToSave {
    pub tenant: Tenant,
    pub session: SessionId,
    /// Tells the conversations apart that a hint grouped in one session; ancestors are kept for
    /// each.
    pub opening: u64,
    pub keys: StateKeys,
    /// The digest of the answer: the bare key is good while it saw a single one.
    pub answer: u128,
    pub state: Bytes,
}

/// A state that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundState {
    /// The place of its key among those asked for.
    pub at: usize,
    pub state: Bytes,
    /// Those of its session, as they were last given; empty where none were.
    pub commands: Bytes,
}

/// The newest state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    pub tenant: Tenant,
    pub session: SessionId,
    /// Seconds since 1970.
    pub saved_s: u64,
    pub state: Bytes,
    /// As they were last given; empty where none were.
    pub commands: Bytes,
}

/// What the orders of one session may take.
pub const MAX_COMMANDS_BYTES: usize = 64 << 10;

/// A part of a list, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub skip: usize,
    /// At most [`Page::MAX_TAKE`] are given.
    pub take: usize,
}

impl Page {
    pub const MAX_TAKE: usize = 200;
}

/// Why a store did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be reached")]
    Unreachable(#[source] io::Error),
    #[error("the store did not answer within {0:?}")]
    TooSlow(Duration),
    #[error("the store holds what we did not write")]
    Damaged,
    #[error("{0} bytes are over the limit")]
    Overlong(usize),
    /// It does not answer, or takes nothing, and has said so in the log: no request need repeat it.
    #[error("the store is down")]
    Down,
    /// Would let one tenant write into another's session.
    #[error("the session belongs to another tenant")]
    Foreign,
}

/// What memory, file and server stores have in common.
#[async_trait]
pub trait Store: Send + Sync {
    /// The first of `keys` that is there, with its session's orders: one batched read. An
    /// ambiguous bare key is not there.
    ///
    /// All keys are of conversations that begin with this `opening`, as they were when saved: a
    /// store may use it to keep together what is looked for together.
    async fn find_state(
        &self,
        tenant: &Tenant,
        opening: u64,
        keys: &[StateKey],
    ) -> Result<Option<FoundState>, StoreError>;

    /// Files a state under all its keys, and as its session's newest, at once.
    ///
    /// A key that was there goes over to the new state; but a bare key that saw another answer
    /// becomes ambiguous, and stays so for as long as a store remembers it.
    async fn save_state(&self, saved: StateToSave) -> Result<(), StoreError>;

    /// The newest state of one session of an account, or of any (for the administrator).
    async fn load_session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<SessionRow>, StoreError>;

    /// Gives orders to one session of an account, or of any (for the administrator), in the place
    /// of those before: at most [`MAX_ORDERS_BYTES`]. They stay with the session over later saves,
    /// and do not make it younger. `false` where there is no such session.
    async fn put_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        orders: Bytes,
    ) -> Result<bool, StoreError>;

    /// The sessions of one account, or of all (for the administrator), newest first.
    async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<SessionRow>, StoreError>;

    /// How many sessions one account has, or all accounts together. Counted page by page, unless a
    /// store knows it sooner.
    async fn count_sessions(&self, account: Option<&Account>) -> Result<u64, StoreError> {
        let (mut skip, take) = (0, Page::MAX_TAKE);
        loop {
            let found = self
                .list_sessions(account, Page { skip, take })
                .await?
                .len();
            skip += found;
            if found < take {
                return Ok(skip as u64);
            }
        }
    }

    /// Tells all replicas something that no session owns, such as a window that was learnt: the
    /// value takes the place of the one of that name before. At most [`MAX_SHARED_NAME_BYTES`] and
    /// [`MAX_SHARED_BYTES`]; of names without number, those given last are kept.
    async fn publish_shared(&self, name: &[u8], value: Bytes) -> Result<(), StoreError>;

    /// All that was shared, by this replica and by others.
    async fn read_shared(&self) -> Result<SharedValues, StoreError>;

    /// The version of what is shared as the store last saw it in passing, with any other call: no
    /// trip of its own. Where it is not that of what was read last, [`Store::shared`] has news. 0 as
    /// long as nothing was seen.
    fn shared_version(&self) -> u64;

    /// Brings to rest what was acknowledged, and lets go of file and connections. Nothing is asked of
    /// the store afterwards.
    async fn close(&self) {}
}

/// What no session owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedValues {
    /// Grows with whatever is shared.
    pub version: u64,
    /// Names and values, in any order.
    pub all: Vec<(Bytes, Bytes)>,
}

/// The longest name of something that is shared.
pub const MAX_SHARED_NAME_BYTES: usize = 2_304;

/// The largest value that is shared.
pub const MAX_SHARED_BYTES: usize = 256;

/// Names of which something is shared; beyond, those not given for longest go.
pub const MAX_SHARED: usize = 4_096;

/// The store that the settings name. Called from within a runtime, since a store may have work of
/// its own to do.
///
/// # Errors
/// Where there is no use in starting: the file is another process's or a newer release's, or an
/// address makes no sense. A server that does not answer is no error; requests go on without it.
pub fn open_store(config: &StoreConfig, data_dir: &Path) -> io::Result<Arc<dyn Store>> {
    match &config.place {
        StorePlace::Memory => Ok(Arc::new(memory::MemoryStore::new(config))),
        StorePlace::File => Ok(Arc::new(file::FileStore::open(config, data_dir)?)),
        StorePlace::Redis(server) => Ok(Arc::new(redis::RedisStore::open(config, server)?)),
    }
}

/// Refuses what is too long.
const fn check_bytes(bytes: usize, most: usize) -> Result<(), StoreError> {
    match bytes <= most {
        true => Ok(()),
        false => Err(StoreError::Overlong(bytes)),
    }
}

/// Refuses to share what is too long.
fn check_shared(name: &[u8], value: &[u8]) -> Result<(), StoreError> {
    check_bytes(name.len(), MAX_SHARED_NAME_BYTES)?;
    check_bytes(value.len(), MAX_SHARED_BYTES)
}

#[cfg(test)]
mod tests;
