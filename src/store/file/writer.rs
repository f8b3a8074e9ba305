//! The only thread that writes.
//!
//! It writes all waiting jobs in one transaction and answers them after the commit. So a save waits for the previous
//! transaction only, however many saves wait. If a transaction fails, each of its jobs is tried alone, so that no job
//! fails because of another. The thread survives every error: it logs the error and replaces a damaged file.
//!
//! A second thread copies the write-ahead log into the file, so that no save waits for that.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    slice,
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    batch::{Batch, MAX_UNWRITTEN, OpenFile, UnwrittenUses, WriteResult},
    file_closed,
    open::{self, LockedFile},
    readers::Readers,
    save, to_store_error,
};
use crate::store::{StoreError, limits::StoreLimits};

/// Most jobs of one transaction.
const MAX_GROUP: usize = 128;
/// Jobs between two checks of the limits.
pub(super) const CHECK_AFTER: usize = 32;
/// Jobs between two checkpoints of the log.
const CHECKPOINT_AFTER: usize = 1_024;
/// Pages of a log (64 MiB) whose last part the writer copies, since otherwise a busy log never starts over.
const LONG_LOG: i64 = 16_384;
/// The pause between two tries to open the file.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct WriterJob {
    /// Runs in a transaction, and once more alone if that fails.
    pub(super) write: Box<dyn Fn(&mut Batch<'_>) -> WriteResult + Send>,
    /// `None` if the sender does not wait.
    pub(super) answer: Option<oneshot::Sender<Result<bool, StoreError>>>,
}

pub(super) struct Writer {
    locked_file: LockedFile,
    readers: Arc<Readers>,
    /// The file; `None` while it cannot be opened.
    open: Option<OpenFile>,
    /// When the last try to open the file failed.
    failed_open_at: Option<Instant>,
    limits: StoreLimits,
    /// Jobs since the last check of the limits.
    unchecked: usize,
}

impl Writer {
    /// Locks a directory and opens the file in it.
    ///
    /// # Errors
    /// The directory cannot be used, another process has it, or a newer release wrote the file. Any other error is
    /// logged, and opening is tried again.
    pub(super) fn open_directory(
        directory: &Path,
        limits: StoreLimits,
    ) -> io::Result<(Self, Arc<Readers>)> {
        let locked_file = LockedFile::lock_directory(directory)?;
        let readers = Arc::new(Readers::new(locked_file.path.clone()));
        let mut writer = Self {
            locked_file,
            readers: Arc::clone(&readers),
            open: None,
            failed_open_at: None,
            limits,
            unchecked: CHECK_AFTER,
        };
        match writer.open_file() {
            Err(newer) if newer.kind() == io::ErrorKind::Unsupported => Err(newer),
            _ => Ok((writer, readers)),
        }
    }

    /// Starts both threads, which run until the queue is closed.
    pub(super) fn spawn_threads(
        mut self,
        mut queue: mpsc::Receiver<WriterJob>,
    ) -> io::Result<JoinHandle<()>> {
        let (checkpoint_due, due) = sync_channel(1);
        let readers = Arc::clone(&self.readers);
        let checkpointer = thread::Builder::new()
            .name("store-log".to_owned())
            .spawn(move || run_checkpointer(&readers, &due))?;
        let run = move || {
            // The first job copies what a killed process left in the log.
            let (mut more, mut since_checkpoint) = (false, CHECKPOINT_AFTER);
            while let Some(group) = take_group(&mut queue, more) {
                since_checkpoint += group.len();
                if since_checkpoint >= CHECKPOINT_AFTER && checkpoint_due.try_send(()).is_ok() {
                    since_checkpoint = 0;
                }
                // After a panic the senders of the group receive an error, since their answers are dropped.
                let result = catch_unwind(AssertUnwindSafe(|| self.process_group(group)));
                more = result.unwrap_or_else(|_| {
                    tracing::error!(
                        "the store's writer panicked; it reopens the file and continues"
                    );
                    self.close_file();
                    false
                });
            }
            drop(checkpoint_due);
            let _ = checkpointer.join();
            self.write_uses();
            self.close_file();
        };
        thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(run)
    }

    /// Does the jobs and answers them; returns whether there are more sessions to remove.
    fn process_group(&mut self, group: Vec<WriterJob>) -> bool {
        if self.readers.damaged.load(Relaxed) {
            self.replace_damaged_file(&open::inconsistency_error());
        }
        self.unchecked += group.len();
        let outcomes = match self.write_group(&group) {
            Ok(outcomes) => outcomes,
            Err(error) if group.len() == 1 => vec![Err(error)],
            Err(_) => {
                let single = group.iter().map(slice::from_ref);
                single
                    .map(|job| self.write_group(job)?.pop().unwrap_or(Ok(false)))
                    .collect()
            }
        };
        for (job, outcome) in group.into_iter().zip(outcomes) {
            if let Some(answer) = job.answer {
                // An error means that the sender has gone.
                let _ = answer.send(outcome);
            }
        }
        let Some(file) = &self.open else {
            return false;
        };
        if self.readers.long_log.swap(false, Relaxed) {
            log_failed_checkpoint(open::checkpoint(&file.connection).map_err(to_store_error));
        }
        let is_full = file.totals.sessions > self.limits.sessions as u64;
        if file.uses.len() >= MAX_UNWRITTEN {
            self.write_uses();
        }
        if !is_full && self.unchecked < CHECK_AFTER {
            return false;
        }
        let limits = self.limits.clone();
        let removed = self.run_batch(|batch| save::remove_over_limits(batch, &limits));
        let more = removed.unwrap_or_else(|error| {
            tracing::warn!(%error, "the store cannot remove expired sessions");
            false
        });
        self.unchecked = if more { CHECK_AFTER } else { 0 };
        more
    }

    /// Writes the uses of sessions that wait.
    fn write_uses(&mut self) {
        if self.open.as_ref().is_none_or(|file| file.uses.is_empty()) {
            return;
        }
        if let Err(error) = self.run_batch(|batch| batch.write_uses()) {
            tracing::warn!(%error, "the store cannot write the times at which sessions were last used");
        }
    }

    /// Writes a group in one transaction.
    fn write_group(
        &mut self,
        group: &[WriterJob],
    ) -> Result<Vec<Result<bool, StoreError>>, StoreError> {
        self.run_batch(|batch| group.iter().map(|job| (job.write)(batch)).collect())
    }

    /// Runs a transaction. If the file is damaged, it is repeated in a new file.
    fn run_batch<T>(
        &mut self,
        run: impl Fn(&mut Batch<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        match self.try_batch(&run)? {
            Err(error) if open::is_damage(&error) && self.replace_damaged_file(&error) => {
                self.try_batch(&run)?.map_err(to_store_error)
            }
            result => result.map_err(to_store_error),
        }
    }

    fn try_batch<T>(
        &mut self,
        run: impl Fn(&mut Batch<'_>) -> rusqlite::Result<T>,
    ) -> Result<rusqlite::Result<T>, StoreError> {
        let may_retry = |failed: Instant| failed.elapsed() >= RETRY;
        if self.open.is_none() && self.failed_open_at.is_none_or(may_retry) {
            // An error is logged.
            let _ = self.open_file();
        }
        let file = self.open.as_mut().ok_or_else(file_closed)?;
        let recent = &self.readers.recent;
        let result = Batch::begin(file, &self.limits, recent).and_then(|mut batch| {
            let value = run(&mut batch)?;
            Ok((value, batch.commit(recent)?))
        });
        let result = result.map(|(value, committed)| {
            file.take_over(committed);
            value
        });
        self.readers.uses_wait.store(!file.uses.is_empty(), Relaxed);
        self.readers
            .version
            .store(file.totals.shared_version, Relaxed);
        Ok(result)
    }

    fn close_file(&mut self) {
        self.readers.disable_reads();
        self.open = None;
    }

    /// Sets the file aside and begins a new one; returns whether that succeeded.
    fn replace_damaged_file(&mut self, why: &rusqlite::Error) -> bool {
        self.close_file();
        if let Err(error) = self.locked_file.set_aside(why) {
            tracing::error!(%error, "cannot rename the store's damaged file; move it away by hand");
            return false;
        }
        self.open_file().is_ok()
    }

    fn open_file(&mut self) -> io::Result<()> {
        let failed_before = self.failed_open_at.replace(Instant::now()).is_some();
        let opened = self.locked_file.open_or_replace().inspect_err(|error| {
            let file = self.locked_file.path.display();
            let message = "cannot open the session file; requests go on without stored sessions";
            if failed_before {
                tracing::debug!(%file, %error, "{message}")
            } else {
                tracing::error!(%file, %error, "{message}")
            }
        });
        let (connection, mut totals) = opened?;
        // The published version never goes back.
        totals.shared_version = self
            .readers
            .version
            .load(Relaxed)
            .max(totals.shared_version);
        self.readers.version.store(totals.shared_version, Relaxed);
        self.open = Some(OpenFile {
            connection,
            totals,
            uses: UnwrittenUses::new(),
        });
        self.failed_open_at = None;
        self.readers.enable_reads();
        Ok(())
    }
}

/// Copies the log whenever a copy is due. A long log is copied twice, since little is added during the second copy.
fn run_checkpointer(readers: &Readers, due: &Receiver<()>) {
    while due.recv().is_ok() {
        let copy = || log_failed_checkpoint(readers.read_here(open::checkpoint)) > LONG_LOG;
        if copy() && copy() {
            readers.long_log.store(true, Relaxed);
        }
    }
}

/// Returns the pages of the log.
fn log_failed_checkpoint(pages: Result<i64, StoreError>) -> i64 {
    pages.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot copy the store's write-ahead log into its file");
        0
    })
}

/// The next group. It waits for a first job, unless the writer has `more` to do: then the group may be empty. `None`
/// once the queue is closed.
fn take_group(jobs: &mut mpsc::Receiver<WriterJob>, more: bool) -> Option<Vec<WriterJob>> {
    let mut group = Vec::new();
    if !more {
        group.push(jobs.blocking_recv()?);
        // Where the core is busy, others bring their jobs first, and all are written together.
        thread::yield_now();
    }
    while group.len() < MAX_GROUP
        && let Ok(job) = jobs.try_recv()
    {
        group.push(job);
    }
    Some(group)
}
