//! The only thread that writes.
//!
//! It writes all waiting jobs in one transaction and answers them after the commit. So a save waits for the previous
//! transaction only, however many saves wait. If a transaction fails, each of its jobs is tried alone, so that no job
//! fails because of another. The thread survives every error: it logs the error and replaces a damaged file.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::{
    batch::{Batch, Totals, WriteTime},
    checkpointer, expiry,
    open::{self, LockedFile, OpenFileError},
    readers::Readers,
    row::Stamp,
    schema, to_store_error,
    write_queue::{self, JobKind, WriterJob},
};
use crate::store::{StoreError, limits::StoreLimits};

/// Jobs between two checkpoints of the log.
const CHECKPOINT_AFTER: usize = 1_024;
/// Jobs between two checks of the limits. The checkpointer's ticks cause checks too.
const EXPIRE_AFTER: usize = 32;

/// The pause between two tries to open the file.
const RETRY: Duration = Duration::from_secs(1);

/// The results of a group's jobs.
type Outcomes = Vec<Result<bool, StoreError>>;

struct OpenFile {
    file: Connection,
    totals: Totals,
}

pub(super) struct Writer {
    locked_file: LockedFile,
    readers: Arc<Readers>,
    /// `None` while it cannot be opened.
    open: Option<OpenFile>,
    /// The last failed try to open the file, which is logged.
    failed_open_at: Option<Instant>,
    limits: StoreLimits,
    stamp: Stamp,
    /// The version of the shared values.
    version: Arc<AtomicU64>,
}

impl Writer {
    /// Locks a directory and opens the file in it.
    pub(super) fn open_directory(
        directory: &Path,
        limits: StoreLimits,
        version: Arc<AtomicU64>,
    ) -> Result<(Self, Arc<Readers>), OpenFileError> {
        let locked_file = LockedFile::lock_directory(directory)?;
        let readers = Arc::new(Readers::new(locked_file.path().to_owned()));
        let mut writer = Self {
            locked_file,
            readers: Arc::clone(&readers),
            open: None,
            failed_open_at: None,
            limits,
            stamp: Stamp::default(),
            version,
        };
        match writer.open_file() {
            Err(newer @ OpenFileError::Newer { .. }) => Err(newer),
            // Any other error is logged, and opening is tried again.
            _ => Ok((writer, readers)),
        }
    }

    /// Starts the writer and the checkpointer, which run until the queue is closed.
    pub(super) fn spawn_threads(
        self,
        queue: mpsc::Receiver<WriterJob>,
        jobs: mpsc::WeakSender<WriterJob>,
    ) -> io::Result<JoinHandle<()>> {
        let readers = Arc::clone(&self.readers);
        let (checkpoint_due, due) = sync_channel(1);
        let checkpointer = thread::Builder::new()
            .name("store-log".to_owned())
            .spawn(move || checkpointer::run_checkpointer(&readers, &jobs, &due))?;
        thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || self.run_jobs(queue, checkpoint_due, checkpointer))
    }

    fn run_jobs(
        mut self,
        mut queue: mpsc::Receiver<WriterJob>,
        checkpoint_due: SyncSender<()>,
        checkpointer: JoinHandle<()>,
    ) {
        let (mut more, mut since_checkpoint, mut since_expiry) = (false, 0, EXPIRE_AFTER);
        while let Some(group) = write_queue::take_group(&mut queue, more) {
            since_checkpoint += group.len();
            since_expiry += group.len();
            let is_tick = |job: &WriterJob| matches!(job.kind, JobKind::Tick | JobKind::Checkpoint);
            if group.iter().any(is_tick) {
                since_expiry = EXPIRE_AFTER;
            }
            if since_checkpoint >= CHECKPOINT_AFTER && checkpoint_due.try_send(()).is_ok() {
                since_checkpoint = 0;
            }
            // After a panic the senders of the group receive an error, since their answers are dropped.
            let result = catch_unwind(AssertUnwindSafe(|| {
                self.process_group(group);
                let expire = more || since_expiry >= EXPIRE_AFTER || self.is_full();
                if expire {
                    since_expiry = 0;
                }
                expire && self.remove_expired()
            }));
            more = result.unwrap_or_else(|_| {
                tracing::error!("the store's writer panicked; it reopens the file and continues");
                self.close_file();
                false
            });
        }
        drop(queue);
        self.readers.disable_reads();
        // The checkpointer ends once its channel is closed.
        drop(checkpoint_due);
        let _ = checkpointer.join();
        if let Some(OpenFile { file, .. }) = self.open.take()
            && let Err(error) = schema::truncate_log(&file)
        {
            tracing::warn!(%error, "cannot copy the store's whole write-ahead log into its file; it stays beside it");
        }
    }

    /// Does the jobs and answers them.
    fn process_group(&mut self, group: Vec<WriterJob>) {
        for job in &group {
            match job.kind {
                JobKind::Damaged { epoch } if epoch == self.readers.epoch() => {
                    self.replace_damaged_file(&open::inconsistency_error());
                }
                JobKind::Checkpoint => self.checkpoint_rest(),
                _ => {}
            }
        }
        let outcomes = match self.write_group(&group) {
            Ok(outcomes) => outcomes,
            Err(error) if group.len() == 1 => vec![Err(error)],
            Err(_) => {
                let single = group.iter().map(std::slice::from_ref);
                let outcomes = single.map(|job| self.write_group(job)?.pop().unwrap_or(Ok(false)));
                outcomes.collect()
            }
        };
        for (job, outcome) in group.into_iter().zip(outcomes) {
            job.send_answer(outcome);
        }
    }

    /// Writes a group in one transaction. If the file is damaged, the write is repeated in a new file.
    fn write_group(&mut self, group: &[WriterJob]) -> Result<Outcomes, StoreError> {
        match self.try_write_group(group)? {
            Err(error) if open::is_damage(&error) && self.replace_damaged_file(&error) => {
                self.try_write_group(group)?.map_err(to_store_error)
            }
            outcomes => outcomes.map_err(to_store_error),
        }
    }

    fn try_write_group(
        &mut self,
        group: &[WriterJob],
    ) -> Result<rusqlite::Result<Outcomes>, StoreError> {
        let second = self.limits.now_s();
        if second < self.stamp.second() {
            // The clock went back, so cached states have a last use in the future.
            self.readers.recent().clear();
        }
        let may_retry = |failed: Instant| failed.elapsed() >= RETRY;
        if self.open.is_none() && self.failed_open_at.is_none_or(may_retry) {
            // An error is logged.
            let _ = self.open_file();
        }
        let Some(open) = &mut self.open else {
            return Err(StoreError::Unreachable(io::ErrorKind::NotConnected.into()));
        };
        let result = Batch::begin(&open.file, open.totals).and_then(|mut batch| {
            let mut outcomes = Vec::with_capacity(group.len());
            for job in group {
                let JobKind::Write(write) = &job.kind else {
                    outcomes.push(Ok(true));
                    continue;
                };
                self.stamp = self.stamp.next_stamp(second);
                let when = WriteTime {
                    used: self.stamp,
                    horizon: self.limits.expiry_horizon(),
                };
                outcomes.push(write(&mut batch, when)?);
            }
            open.totals = batch.commit(self.readers.recent())?;
            Ok(outcomes)
        });
        self.version.store(open.totals.shared_version, Relaxed);
        Ok(result)
    }

    fn is_full(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.totals.sessions > self.limits.sessions as u64)
    }

    /// Removes some sessions over the limits; returns whether there are more.
    fn remove_expired(&mut self) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let result = Batch::begin(&open.file, open.totals).and_then(|mut batch| {
            let more = expiry::remove_over_limits(&mut batch, &self.limits)?;
            open.totals = batch.commit(self.readers.recent())?;
            Ok(more)
        });
        match result {
            Ok(more) => return more,
            Err(error) if open::is_damage(&error) => _ = self.replace_damaged_file(&error),
            Err(error) => tracing::warn!(%error, "the store cannot remove expired sessions"),
        }
        false
    }

    /// Copies the rest of a long log, which was added during the checkpointer's checkpoints.
    fn checkpoint_rest(&mut self) {
        if let Some(open) = &self.open
            && let Err(error) = schema::checkpoint_log(&open.file)
        {
            tracing::warn!(%error, "cannot copy the store's write-ahead log into its file");
        }
    }

    fn close_file(&mut self) {
        self.readers.disable_reads();
        self.open = None;
    }

    /// Sets the file aside and begins a new one; returns whether that succeeded.
    fn replace_damaged_file(&mut self, why: &rusqlite::Error) -> bool {
        self.close_file();
        if let Err(error) = self.locked_file.set_aside(why) {
            tracing::error!(%error, "cannot set the store's damaged file aside");
            return false;
        }
        self.open_file().is_ok()
    }

    fn open_file(&mut self) -> Result<(), OpenFileError> {
        let failed_before = self.failed_open_at.replace(Instant::now()).is_some();
        let opened = self.locked_file.open_or_replace(|file| {
            Ok(OpenFile {
                totals: Totals::count_file(&file)?,
                file,
            })
        });
        let mut open = opened.inspect_err(|error| {
            let file = self.locked_file.path().display();
            let message = "cannot open the session file; requests go on without stored sessions";
            match failed_before {
                false => tracing::error!(%file, %error, "{message}"),
                true => tracing::debug!(%file, %error, "{message}"),
            }
        })?;
        // The published version never goes back.
        let version = &mut open.totals.shared_version;
        *version = self.version.load(Relaxed).max(*version);
        self.version.store(*version, Relaxed);
        self.open = Some(open);
        self.failed_open_at = None;
        self.readers.enable_reads();
        Ok(())
    }
}
