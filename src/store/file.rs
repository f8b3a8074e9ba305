//! The store in one file of the data directory, without a server.
//!
//! The file is an SQLite database with a write-ahead log. An acknowledged save has reached the operating system: it
//! survives a killed process. A power failure may lose the last moments, but damages nothing. One thread writes all
//! waiting jobs in one transaction. A few connections read the states that are not cached. When the log is copied into
//! the file, saves wait for the last part of the copy only.
//!
//! Each generation has a checksum over all its data, so damaged data is never returned as a state. A damaged file is
//! renamed, and a new one begun. No other process may change, remove or replace the file while it is locked.

use std::{
    io,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::JoinHandle,
};

use parking_lot::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{
    Account, FoundState, LooseKeys, MAX_COMMANDS_BYTES, Page, SessionId, SessionRow, SharedValues,
    StateKey, StateToSave, Store, StoreError, Tenant, check_bytes, check_shared,
    limits::{StoreLimits, YOUNG_SHARE},
};
use crate::config::StoreConfig;

mod batch;
mod open;
mod read;
mod readers;
mod recent_states;
mod row;
mod save;
mod writer;

pub use open::is_in_use;

use batch::{Batch, WriteResult};
use read::SessionFilter;
use readers::Readers;
use writer::{Writer, WriterJob};

/// Most jobs in the writer's queue; the senders of more wait.
const MAX_QUEUED_JOBS: usize = 1_024;

pub struct FileStore {
    limits: StoreLimits,
    readers: Arc<Readers>,
    /// `None` once the store is closed.
    writer: Mutex<Option<(mpsc::Sender<WriterJob>, JoinHandle<()>)>>,
}

impl FileStore {
    /// Opens or creates `data_dir/sessions.db`.
    ///
    /// # Errors
    /// Another process has it, or a newer release wrote it. Any other error is logged, and opening is tried again.
    pub fn open(config: &StoreConfig, data_dir: &Path) -> io::Result<Self> {
        Self::with_limits(StoreLimits::new(config), data_dir)
    }

    fn with_limits(limits: StoreLimits, data_dir: &Path) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel(MAX_QUEUED_JOBS);
        let (writer, readers) = Writer::open_directory(data_dir, limits.clone())?;
        let thread = writer.spawn_threads(queue)?;
        Ok(Self {
            limits,
            readers,
            writer: Mutex::new(Some((jobs, thread))),
        })
    }

    fn job_sender(&self) -> Option<mpsc::Sender<WriterJob>> {
        let writer = self.writer.lock();
        writer.as_ref().map(|(jobs, _)| jobs.clone())
    }

    /// Waits until the write is committed.
    async fn run_write(
        &self,
        write: impl Fn(&mut Batch<'_>) -> WriteResult + Send + 'static,
    ) -> Result<bool, StoreError> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.job_sender().ok_or_else(file_closed)?;
        let job = WriterJob {
            write: Box::new(write),
            answer: Some(answer),
        };
        jobs.send(job).await.map_err(|_| file_closed())?;
        drop(jobs);
        answered.await.map_err(|_| file_closed())?
    }

    /// Queues a write without waiting for it; drops it if the queue is full.
    fn queue_write(&self, write: impl Fn(&mut Batch<'_>) -> WriteResult + Send + 'static) {
        if let Some(jobs) = self.job_sender() {
            let _ = jobs.try_send(WriterJob {
                write: Box::new(write),
                answer: None,
            });
        }
    }

    /// Closes the queue: the writer ends after the waiting jobs.
    fn take_writer(&self) -> Option<JoinHandle<()>> {
        let mut writer = self.writer.lock();
        writer.take().map(|(_jobs, thread)| thread)
    }

    /// Reads on a thread that may block.
    ///
    /// CANCEL: a read that has begun goes on, and its result is dropped.
    async fn run_read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = Arc::clone(&self.readers);
        let permit = Arc::clone(&readers.permits).acquire_owned().await;
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.read_here(read)
        });
        let result = reading.await.map_err(|_| file_closed())?;
        if matches!(result, Err(StoreError::Damaged)) {
            // The writer replaces the file before its next write.
            self.queue_write(|_| Ok(Ok(true)));
        }
        result
    }

    /// Reads what depends on the last use of sessions.
    async fn read_uses<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.readers.uses_wait.load(Relaxed) {
            let write = |batch: &mut Batch<'_>| batch.write_uses().map(|()| Ok(true));
            // If that fails, the times are up to a minute old.
            let _ = self.run_write(write).await;
        }
        self.run_read(read).await
    }

    /// The sessions of an account, or of all, that have not expired.
    fn filter_sessions(&self, account: Option<&Account>, id: Option<SessionId>) -> SessionFilter {
        SessionFilter {
            account: account.copied(),
            id,
            since_s: self.limits.expiry_horizon(),
        }
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

#[async_trait]
impl Store for FileStore {
    async fn find_state(
        &self,
        tenant: &Tenant,
        opening: u64,
        keys: &[StateKey],
    ) -> Result<Option<FoundState>, StoreError> {
        if keys.is_empty() {
            return Ok(None);
        }
        let prefix_group = row::hash_prefix_group(tenant, opening);
        let (now, horizon) = (self.limits.now_s(), self.limits.expiry_horizon());
        let recent = &self.readers.recent;
        let hit = match recent.find_state(tenant, prefix_group, keys, horizon) {
            Ok(hit) => hit,
            Err(since) => {
                let (tenant, keys) = (*tenant, keys.to_vec());
                let readers = Arc::clone(&self.readers);
                let find = move |file: &Connection| {
                    let mut absent = Vec::new();
                    let hit =
                        read::find_state(file, &tenant, prefix_group, &keys, horizon, &mut absent)?;
                    readers.recent.learn_absent(since, absent);
                    Ok(hit)
                };
                self.run_read(find).await?
            }
        };
        Ok(hit.map(|hit| {
            if now.saturating_sub(hit.used_s) > self.limits.age_s / YOUNG_SHARE {
                self.queue_write(move |batch| save::touch_session(batch, hit.session));
            }
            hit.found
        }))
    }

    async fn save_state(&self, saved: StateToSave) -> Result<(), StoreError> {
        let write = move |batch: &mut Batch<'_>| save::save_state(batch, &saved, None);
        self.run_write(write).await.map(drop)
    }

    async fn save_with_loose_keys(
        &self,
        saved: StateToSave,
        loose: LooseKeys,
    ) -> Result<(), StoreError> {
        let write = move |batch: &mut Batch<'_>| save::save_state(batch, &saved, Some(&loose));
        self.run_write(write).await.map(drop)
    }

    async fn load_session(
        &self,
        account: Option<&Account>,
        id: SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        let filter = self.filter_sessions(account, Some(id));
        let page = Page { skip: 0, take: 1 };
        let read = move |file: &Connection| read::list_sessions(file, &filter, page);
        Ok(self.read_uses(read).await?.pop())
    }

    async fn put_commands(
        &self,
        account: Option<&Account>,
        id: SessionId,
        commands: Bytes,
    ) -> Result<bool, StoreError> {
        check_bytes(commands.len(), MAX_COMMANDS_BYTES)?;
        let account = account.copied();
        self.run_write(move |batch| save::put_commands(batch, account, id, &commands))
            .await
    }

    async fn list_sessions(
        &self,
        account: Option<&Account>,
        page: Page,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let filter = self.filter_sessions(account, None);
        self.read_uses(move |file| read::list_sessions(file, &filter, page))
            .await
    }

    async fn count_sessions(&self, account: Option<&Account>) -> Result<u64, StoreError> {
        let filter = self.filter_sessions(account, None);
        self.read_uses(move |file| read::count_sessions(file, &filter))
            .await
    }

    async fn publish_shared(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        check_shared(name, &value)?;
        let name = Bytes::copy_from_slice(name);
        let write = move |batch: &mut Batch<'_>| save::put_shared(batch, &name, &value);
        self.run_write(write).await.map(drop)
    }

    async fn read_shared(&self) -> Result<SharedValues, StoreError> {
        // Loaded before reading, so that a value published meanwhile counts as new.
        let version = self.shared_version();
        let all = self.run_read(read::list_shared).await?;
        Ok(SharedValues { version, all })
    }

    fn shared_version(&self) -> u64 {
        self.readers.version.load(Relaxed)
    }

    async fn close(&self) {
        if let Some(thread) = self.take_writer() {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// The file cannot be opened, or the store is closed.
fn file_closed() -> StoreError {
    StoreError::Unreachable(io::ErrorKind::NotConnected.into())
}

fn to_store_error(error: rusqlite::Error) -> StoreError {
    if open::is_damage(&error) {
        StoreError::Damaged
    } else {
        StoreError::Unreachable(io::Error::other(error))
    }
}

#[cfg(test)]
mod tests;
