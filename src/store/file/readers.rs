//! The reading connections: a few, opened on demand, used on threads that may block. [`Readers`] also holds what reads
//! share with the writer.
//!
//! All connections can be closed at once, so that the file can be renamed.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, RwLock};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{file_closed, open, recent_states::RecentStates, to_store_error};
use crate::store::StoreError;

/// Most reads at one time; more wait.
const READERS: usize = 4;
/// Page cache of each connection.
const CACHE_KIB: u32 = 2_048;

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    pub(super) permits: Arc<Semaphore>,
    /// Idle connections; `None` while there is no file to read. Each read holds a read lock, so a write lock waits for
    /// all of them.
    idle: RwLock<Option<Mutex<Vec<Connection>>>>,
    /// A read met damage, and the file was not yet replaced.
    pub(super) damaged: AtomicBool,
    /// The checkpointer has copied a long log, except for what was added meanwhile. The writer copies that part.
    pub(super) long_log: AtomicBool,
    pub(super) recent: RecentStates,
    /// The writer knows uses of sessions that the file does not have.
    pub(super) uses_wait: AtomicBool,
    /// The version of the shared values.
    pub(super) version: AtomicU64,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            permits: Arc::new(Semaphore::new(READERS)),
            idle: RwLock::default(),
            damaged: AtomicBool::new(false),
            long_log: AtomicBool::new(false),
            recent: RecentStates::default(),
            uses_wait: AtomicBool::new(false),
            version: AtomicU64::new(0),
        }
    }

    /// Reads on this thread, which may block.
    pub(super) fn read_here<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.read();
        let idle = idle.as_ref().ok_or_else(file_closed)?;
        let reused = idle.lock().pop();
        let opened = reused.map_or_else(|| open::connect(&self.path, CACHE_KIB), Ok);
        let result = opened.and_then(|file| {
            let value = read(&file)?;
            // A connection that met an error is not used again.
            idle.lock().push(file);
            Ok(value)
        });
        result.map_err(|error| {
            if open::is_damage(&error) {
                self.damaged.store(true, Relaxed);
            }
            to_store_error(error)
        })
    }

    /// Allows reads of a new file.
    pub(super) fn enable_reads(&self) {
        *self.idle.write() = Some(Mutex::default());
    }

    /// Waits for all reads, and closes all connections.
    pub(super) fn disable_reads(&self) {
        *self.idle.write() = None;
        self.damaged.store(false, Relaxed);
        self.recent.clear();
    }
}
