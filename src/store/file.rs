//! The store in one file of the data directory: no server, and what was acknowledged outlives the
//! process, however it ends.
//!
//! The file is SQLite's, with a write-ahead log beside it. An acknowledged save has reached the
//! operating system, so a killed process loses nothing; a power failure may lose the last moments,
//! and damages nothing. One thread writes, and puts all that waits for it into one transaction; a
//! few connections read what is not among the newest, which are known without them. No save waits for
//! the log to be carried over into the file, but for what came in meanwhile.
//!
//! What cannot be read is never taken for a state: each generation has a checksum over all that
//! belongs to it. A damaged file is set aside under another name, and a new one begun. Nobody else may
//! change, remove or replace the file while it is locked.

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::{
    Account, Found, Key, MAX_ORDERS_BYTES, Page, Row, Saved, SessionId, Shared, Store, StoreError,
    Tenant, check_bytes, check_shared, limits::StoreLimits,
};
use crate::config::StoreConfig;

mod batch;
mod expire;
mod keeper;
mod open;
mod queue;
mod read;
mod readers;
mod recent;
mod row;
mod save;
mod schema;
mod share;
mod sql;
mod writer;

use batch::{Batch, When, WriteResult};
use queue::{Asked, What};
use readers::Readers;
use writer::Writer;

/// Jobs that may wait for the writer; more wait with whoever sends them.
const QUEUE: usize = 1_024;

/// A session that is found is made young once it is older than this share of its age: so that
/// finding seldom writes.
const YOUNG_SHARE: u64 = 64;

/// Sessions in a file.
pub struct FileStore {
    limits: StoreLimits,
    readers: Arc<Readers>,
    version: Arc<AtomicU64>,
    /// Gone once the store is closed.
    writer: Mutex<Option<(mpsc::Sender<Asked>, JoinHandle<()>)>>,
}

impl FileStore {
    /// Opens `data_dir/sessions.db`, or makes it.
    ///
    /// # Errors
    /// Another process has it, or a newer release wrote it; both say what to do. Any other fault
    /// is told in the log, and mended as soon as it can be.
    pub fn open(config: &StoreConfig, data_dir: &Path) -> io::Result<Self> {
        Self::with_limits(StoreLimits::new(config), data_dir)
    }

    fn with_limits(limits: StoreLimits, data_dir: &Path) -> io::Result<Self> {
        let version = Arc::new(AtomicU64::new(0));
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (writer, readers) = Writer::open(data_dir, limits.clone(), Arc::clone(&version))?;
        let thread = writer.start(queue, jobs.downgrade())?;
        Ok(Self {
            limits,
            readers,
            version,
            writer: Mutex::new(Some((jobs, thread))),
        })
    }

    fn jobs(&self) -> Option<mpsc::Sender<Asked>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.as_ref().map(|(jobs, _)| jobs.clone())
    }

    /// Writes something, and waits until it is at rest.
    async fn write(
        &self,
        write: impl Fn(&mut Batch<'_>, When) -> WriteResult + Send + 'static,
    ) -> Result<bool, StoreError> {
        self.ask(What::Write(Box::new(write))).await
    }

    /// Has the writer do something, and waits until it is done.
    async fn ask(&self, what: What) -> Result<bool, StoreError> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs().ok_or_else(gone)?;
        let asked = Asked {
            what,
            answer: Some(answer),
        };
        jobs.send(asked).await.map_err(|_| gone())?;
        drop(jobs);
        answered.await.map_err(|_| gone())?
    }

    /// Has the writer do something some time, unless it has too much to do.
    fn mention(&self, what: What) {
        if let Some(jobs) = self.jobs() {
            let _ = jobs.try_send(Asked { what, answer: None });
        }
    }

    /// Lets the writer end once it has done all that waits.
    fn take_writer(&self) -> Option<JoinHandle<()>> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.take().map(|(_jobs, thread)| thread)
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (read, epoch) = Readers::read(&self.readers, read).await?;
        read.map_err(|error| {
            if open::is_damage(&error) {
                self.mention(What::Damaged { epoch });
            }
            failed(error)
        })
    }
}

impl Drop for FileStore {
    /// Waits for the writer, so that the file can be opened again at once.
    fn drop(&mut self) {
        if let Some(thread) = self.take_writer() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for FileStore {
    async fn find(
        &self,
        tenant: &Tenant,
        opening: u64,
        keys: &[Key],
    ) -> Result<Option<Found>, StoreError> {
        if keys.is_empty() {
            return Ok(None);
        }
        let circle = row::circle(tenant, opening);
        let (now, horizon) = (self.limits.now(), self.limits.horizon());
        let hit = match self.readers.recent().find(tenant, circle, keys, horizon) {
            Ok(hit) => hit,
            Err(since) => {
                let (tenant, keys) = (*tenant, keys.to_vec());
                let readers = Arc::clone(&self.readers);
                let find = move |file: &rusqlite::Connection| {
                    let mut absent = Vec::new();
                    let hit = read::find(file, &tenant, circle, &keys, horizon, &mut absent)?;
                    readers.recent().learn_absent(since, absent);
                    Ok(hit)
                };
                self.read(find).await?
            }
        };
        Ok(hit.map(|hit| {
            if now.saturating_sub(hit.used_s) > self.limits.age_s / YOUNG_SHARE {
                let touch =
                    move |batch: &mut Batch<'_>, when| save::touch(batch, hit.session, when);
                self.mention(What::Write(Box::new(touch)));
            }
            hit.found
        }))
    }

    async fn save(&self, saved: Saved) -> Result<(), StoreError> {
        let save = move |batch: &mut Batch<'_>, when| save::save(batch, &saved, when);
        self.write(save).await.map(drop)
    }

    async fn session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<Row>, StoreError> {
        let (account, horizon) = (account.copied(), self.limits.horizon());
        self.read(move |file| read::session(file, account.as_ref(), id, horizon))
            .await
    }

    async fn order(
        &self,
        account: Option<&Account>,
        id: SessionId,
        orders: Bytes,
    ) -> Result<bool, StoreError> {
        check_bytes(orders.len(), MAX_ORDERS_BYTES)?;
        let account = account.copied();
        self.write(move |batch, when| save::order(batch, account.as_ref(), id, &orders, when))
            .await
    }

    async fn sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<Row>, StoreError> {
        let (account, horizon) = (account.copied(), self.limits.horizon());
        self.read(move |file| read::sessions(file, account.as_ref(), page, horizon))
            .await
    }

    async fn count(&self, account: Option<&Account>) -> Result<u64, StoreError> {
        let (account, horizon) = (account.copied(), self.limits.horizon());
        self.read(move |file| read::count(file, account.as_ref(), horizon))
            .await
    }

    async fn share(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        check_shared(name, &value)?;
        let name = Bytes::copy_from_slice(name);
        let put = move |batch: &mut Batch<'_>, _| share::put(batch, &name, &value);
        self.write(put).await.map(drop)
    }

    async fn shared(&self) -> Result<Shared, StoreError> {
        // Seen before reading: what is shared meanwhile is news again.
        let version = self.version.load(Relaxed);
        let all = self.read(share::read_all).await?;
        Ok(Shared { version, all })
    }

    fn shared_version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    async fn close(&self) {
        if let Some(thread) = self.take_writer() {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// The writer has ended, or gave up on what it was asked.
fn gone() -> StoreError {
    StoreError::Unreachable(io::ErrorKind::BrokenPipe.into())
}

fn failed(error: rusqlite::Error) -> StoreError {
    match open::is_damage(&error) {
        true => StoreError::Damaged,
        false => StoreError::Unreachable(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests;
