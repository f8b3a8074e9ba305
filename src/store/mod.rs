//! Stores of session states: one trait, with the same guarantees from every store.
//!
//! A store knows keys and bytes, nothing of conversations. Only the tenant that saved a state finds it. A save is
//! atomic. The content is bounded by count, bytes and age. A store may lose a state (expired or evicted), but never
//! returns a wrong one.

use std::{io, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use crate::config::{StoreConfig, StorePlace};

pub mod file;
mod key;
mod limits;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
mod retention;

pub use key::{Account, LOOSE_OPENING, LooseKeys, SessionId, StateKey, StateKeys, Tenant};

/// The state after one generation.
#[derive(Clone, Debug)]
pub struct StateToSave {
    pub tenant: Tenant,
    pub session: SessionId,
    /// Distinguishes the conversations that a hint groups in one session. Each keeps its own ancestors.
    pub opening: u64,
    pub keys: StateKeys,
    /// The digest of the answer. The bare key is valid while it has seen a single answer.
    pub answer: u128,
    pub state: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundState {
    /// The index of its key among the requested ones.
    pub at: usize,
    pub state: Bytes,
    /// The session's last commands; empty without any.
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
    /// The last commands; empty without any.
    pub commands: Bytes,
}

/// Most bytes of one session's commands.
pub const MAX_COMMANDS_BYTES: usize = 64 << 10;

/// A part of a list, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub skip: usize,
    /// At most [`Page::MAX_TAKE`].
    pub take: usize,
}

impl Page {
    pub const MAX_TAKE: usize = 200;
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be reached")]
    Unreachable(#[source] io::Error),
    #[error("the store did not answer within {0:?}")]
    TooSlow(Duration),
    #[error("the store is damaged: it holds data that the proxy did not write")]
    Damaged,
    #[error("{0} bytes are over the limit")]
    Overlong(usize),
    /// It does not answer or refuses calls. The store logs this once, so requests do not.
    #[error("the store is down")]
    Down,
    /// The save would let one tenant write into another's session.
    #[error("the session belongs to another tenant")]
    Foreign,
}

#[async_trait]
pub trait Store: Send + Sync {
    /// Finds the state of the first of `keys` that is present, with its session's commands, in one batched read. An
    /// ambiguous bare key counts as absent.
    ///
    /// All keys belong to conversations with this `opening`, as in their saves. A store may use it to keep keys that
    /// are searched together side by side. Loose keys are searched with [`LOOSE_OPENING`]; one that is ambiguous counts
    /// as absent.
    async fn find_state(
        &self,
        tenant: &Tenant,
        opening: u64,
        keys: &[StateKey],
    ) -> Result<Option<FoundState>, StoreError>;

    /// Saves a state under all its keys, and as its session's newest, atomically.
    ///
    /// A present key moves to the new state. A bare key that has seen another answer becomes ambiguous, and stays so
    /// for as long as the store remembers it.
    async fn save_state(&self, saved: StateToSave) -> Result<(), StoreError>;

    /// Saves a state, and under loose keys too. A loose key under which two sessions have saved is ambiguous, and stays
    /// so for as long as the store remembers it.
    async fn save_with_loose_keys(
        &self,
        saved: StateToSave,
        _loose: LooseKeys,
    ) -> Result<(), StoreError> {
        self.save_state(saved).await
    }

    /// The newest state of one session of an account, or of any (for the administrator).
    async fn load_session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<SessionRow>, StoreError>;

    /// Replaces the commands of one session of an account, or of any (for the administrator): at most
    /// [`MAX_COMMANDS_BYTES`]. They survive later saves, and do not count as a use of the session. `false` if there
    /// is no such session.
    async fn put_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        commands: Bytes,
    ) -> Result<bool, StoreError>;

    /// The sessions of one account, or of all (for the administrator), newest first.
    async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<SessionRow>, StoreError>;

    /// The number of sessions of one account, or of all.
    async fn count_sessions(&self, account: Option<&Account>) -> Result<u64, StoreError>;

    /// Publishes a value of no session, such as a learnt window, to all replicas. It replaces the last value of that
    /// name. At most [`MAX_SHARED_NAME_BYTES`] and [`MAX_SHARED_BYTES`]; the last [`MAX_SHARED`] names are kept.
    async fn publish_shared(&self, name: &[u8], value: Bytes) -> Result<(), StoreError>;

    /// All shared values, of this replica and of others.
    async fn read_shared(&self) -> Result<SharedValues, StoreError>;

    /// The version of the shared values that the store last saw with any other call; this makes no round trip. If it
    /// differs from the version read last, [`Store::read_shared`] has new values. 0 until one is seen.
    fn shared_version(&self) -> u64;

    /// Finishes acknowledged writes, and closes file and connections. The store must not be used afterwards.
    async fn close(&self) {}
}

/// Values that belong to no session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedValues {
    /// Grows with each published value.
    pub version: u64,
    /// Names and values, in any order.
    pub all: Vec<(Bytes, Bytes)>,
}

pub const MAX_SHARED_NAME_BYTES: usize = 2_304;

/// Most bytes of a shared value.
pub const MAX_SHARED_BYTES: usize = 256;

/// Most names of shared values; the name published longest ago goes first.
pub const MAX_SHARED: usize = 4_096;

/// Opens the configured store, from within a Tokio runtime.
///
/// # Errors
/// The file belongs to another process, a newer release wrote to the file or the server, or an address is invalid. A
/// server that does not answer within two seconds is no error: requests go on without it.
pub async fn open_store(
    config: &StoreConfig,
    data_dir: Option<&Path>,
) -> io::Result<Arc<dyn Store>> {
    match &config.place {
        StorePlace::Memory => Ok(Arc::new(memory::MemoryStore::new(config))),
        StorePlace::File => Ok(match data_dir {
            Some(folder) => Arc::new(file::FileStore::open(config, folder)?),
            None => Arc::new(memory::MemoryStore::new(&config.limited_to_memory())),
        }),
        #[cfg(feature = "redis")]
        StorePlace::Redis(server) => {
            let store = redis::RedisStore::open(config, server)?;
            Ok(Arc::new(store.refuse_newer().await?))
        }
        #[cfg(not(feature = "redis"))]
        StorePlace::Redis(_) => Err(io::Error::other(
            "store.url names a server, but this build supports no server: build it with the feature `redis`",
        )),
    }
}

/// Connects to the server of the settings once: why it cannot be used. `None`: it can, or the settings name none.
pub async fn find_server_fault(config: &StoreConfig) -> Option<String> {
    match &config.place {
        #[cfg(feature = "redis")]
        StorePlace::Redis(server) => redis::RedisStore::find_fault(config, server).await,
        _ => None,
    }
}

const fn check_bytes(bytes: usize, most: usize) -> Result<(), StoreError> {
    if bytes <= most {
        Ok(())
    } else {
        Err(StoreError::Overlong(bytes))
    }
}

fn check_shared(name: &[u8], value: &[u8]) -> Result<(), StoreError> {
    check_bytes(name.len(), MAX_SHARED_NAME_BYTES)?;
    check_bytes(value.len(), MAX_SHARED_BYTES)
}

#[cfg(test)]
mod tests;
