//! The connections that read: a few, made when first wanted, used on threads that may block.
//!
//! All of them can be closed at once, so that the file can be given another name while nobody has it.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{gone, recent::Recent, schema};
use crate::store::StoreError;

/// Reads at one time; more wait.
const READERS: usize = 4;
/// Memory for pages of each.
const CACHE_KIB: u32 = 2_048;
/// How long running reads are waited for before the file changes its name.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    permits: Arc<Semaphore>,
    pool: Mutex<Pool>,
    recent: Recent,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Pool {
    /// Grows whenever another file takes the name.
    epoch: u64,
    /// There is a file to read.
    open: bool,
    idle: VecDeque<Connection>,
    out: usize,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            permits: Arc::new(Semaphore::new(READERS)),
            pool: Mutex::default(),
            recent: Recent::default(),
            returned: Condvar::new(),
        }
    }

    /// Reads on a thread that may block; gives back as well which file it was.
    ///
    /// CANCEL: a read that has begun goes on, and its outcome is dropped.
    pub(super) async fn read<T: Send + 'static>(
        readers: &Arc<Self>,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<(rusqlite::Result<T>, u64), StoreError> {
        let permit = Arc::clone(&readers.permits).acquire_owned().await;
        let readers = Arc::clone(readers);
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.with(read)
        });
        reading.await.map_err(|_| gone())?
    }

    /// The same on this thread.
    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<(rusqlite::Result<T>, u64), StoreError> {
        let (idle, out) = {
            let mut pool = self.lock();
            if !pool.open {
                return Err(StoreError::Unreachable(io::ErrorKind::NotConnected.into()));
            }
            pool.out += 1;
            let out = Out {
                readers: self,
                epoch: pool.epoch,
            };
            (pool.idle.pop_back(), out)
        };
        let connected = idle.map_or_else(|| self.connect(), Ok);
        let read = connected.and_then(|file| {
            let done = read(&file)?;
            out.give_back(file);
            Ok(done)
        });
        Ok((read, out.epoch))
    }

    /// From now on there is a file.
    pub(super) fn open(&self) {
        let mut pool = self.lock();
        self.recent.clear();
        pool.open = true;
        pool.epoch += 1;
    }

    /// Closes all connections, and waits for those that are in use. Whether all are closed.
    pub(super) fn close(&self) -> bool {
        let mut pool = self.lock();
        pool.open = false;
        pool.epoch += 1;
        self.recent.clear();
        pool.idle.clear();
        let busy = |pool: &mut Pool| pool.out > 0;
        let waited = self.returned.wait_timeout_while(pool, CLOSE_WITHIN, busy);
        let (pool, _) = waited.unwrap_or_else(PoisonError::into_inner);
        pool.out == 0
    }

    /// What is known without reading.
    pub(super) const fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(super) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let file = schema::connect(&self.path)?;
        schema::set(&file, CACHE_KIB)?;
        Ok(file)
    }

    /// Nothing panics while this is held.
    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is in use, until this is dropped.
struct Out<'a> {
    readers: &'a Readers,
    epoch: u64,
}

impl Out<'_> {
    /// Only where nothing failed: a connection that met an error is not used again.
    fn give_back(&self, file: Connection) {
        let mut pool = self.readers.lock();
        if pool.epoch == self.epoch {
            pool.idle.push_back(file);
        }
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        self.readers.lock().out -= 1;
        self.readers.returned.notify_all();
    }
}
