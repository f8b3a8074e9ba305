//! The reading connections: a few, opened on demand, used on threads that may block.
//!
//! All of them can be closed at once, so that the file can be renamed.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use parking_lot::{Mutex, RwLock};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{recent_states::RecentStates, schema, writer_gone};
use crate::store::StoreError;

/// Most reads at one time; more wait.
const READERS: usize = 4;
/// Page cache of each connection.
const CACHE_KIB: u32 = 2_048;

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    permits: Arc<Semaphore>,
    /// Idle connections; `None` while there is no file to read. Each read holds a read lock, so a write lock waits for
    /// all of them.
    idle: RwLock<Option<Mutex<Vec<Connection>>>>,
    /// Grows with each new file.
    epoch: AtomicU64,
    recent: RecentStates,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            permits: Arc::new(Semaphore::new(READERS)),
            idle: RwLock::default(),
            epoch: AtomicU64::new(0),
            recent: RecentStates::default(),
        }
    }

    /// Reads on a thread that may block. The number is the epoch of the file.
    ///
    /// CANCEL: a read that has begun goes on, and its result is dropped.
    pub(super) async fn read_blocking<T: Send + 'static>(
        readers: &Arc<Self>,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<(rusqlite::Result<T>, u64), StoreError> {
        let permit = Arc::clone(&readers.permits).acquire_owned().await;
        let readers = Arc::clone(readers);
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.read_here(read)
        });
        reading.await.map_err(|_| writer_gone())?
    }

    /// As [`Self::read_blocking`], on this thread.
    pub(super) fn read_here<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<(rusqlite::Result<T>, u64), StoreError> {
        let idle = self.idle.read();
        let Some(idle) = &*idle else {
            return Err(StoreError::Unreachable(io::ErrorKind::NotConnected.into()));
        };
        let lock = || idle.lock();
        let reused = lock().pop();
        let opened = reused.map_or_else(|| self.open_connection(), Ok);
        let result = opened.and_then(|file| {
            let value = read(&file)?;
            // A connection that met an error is not used again.
            lock().push(file);
            Ok(value)
        });
        Ok((result, self.epoch()))
    }

    /// Allows reads of a new file.
    pub(super) fn enable_reads(&self) {
        self.epoch.fetch_add(1, SeqCst);
        *self.idle.write() = Some(Mutex::default());
    }

    /// Waits for all reads, and closes all connections.
    pub(super) fn disable_reads(&self) {
        *self.idle.write() = None;
        self.recent.clear();
    }

    pub(super) const fn recent(&self) -> &RecentStates {
        &self.recent
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    fn open_connection(&self) -> rusqlite::Result<Connection> {
        let file = schema::open_connection(&self.path)?;
        schema::configure_connection(&file, CACHE_KIB)?;
        Ok(file)
    }
}
