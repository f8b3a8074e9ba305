//! The one thread that writes.
//!
//! It takes all that waits, writes it in one transaction, and answers after that: so a save waits
//! for the one before, and a hundred at once for one. Where a transaction fails, each of its jobs is
//! tried alone, so that none fails for another. It outlives every fault: what it cannot do it says, and
//! what is damaged it begins anew.

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

/// Jobs after which the log is carried over into the file.
const CHECKPOINT_AFTER: usize = 1_024;
/// Jobs after which it is seen whether the file holds too much, or what is too old; the keeper has that
/// seen every few seconds in any case.
const LOOK_AFTER: usize = 32;

/// How soon opening the file is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What became of each job of a group.
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
    /// When opening was tried last, and failed, which was told in the log.
    failed_open_at: Option<Instant>,
    limits: StoreLimits,
    stamp: Stamp,
    /// The version of what is shared, for all.
    version: Arc<AtomicU64>,
}

impl Writer {
    /// Takes the place, and opens the file in it.
    pub(super) fn open_directory(
        directory: &Path,
        limits: StoreLimits,
        version: Arc<AtomicU64>,
    ) -> Result<(Self, Arc<Readers>), OpenFileError> {
        let place = LockedFile::lock_directory(directory)?;
        let readers = Arc::new(Readers::new(place.path().to_owned()));
        let mut writer = Self {
            readers: Arc::clone(&readers),
            open: None,
            failed_open_at: None,
            limits,
            stamp: Stamp::default(),
            version,
            locked_file: place,
        };
        match writer.open_file() {
            Err(newer @ OpenFileError::Newer { .. }) => Err(newer),
            // Any other fault is told in the log, and may pass.
            _ => Ok((writer, readers)),
        }
    }

    /// Goes to work, until nobody can ask any more.
    pub(super) fn spawn_threads(
        self,
        queue: mpsc::Receiver<WriterJob>,
        jobs: mpsc::WeakSender<WriterJob>,
    ) -> io::Result<JoinHandle<()>> {
        let readers = Arc::clone(&self.readers);
        let (carry, due) = sync_channel(1);
        let keeper = thread::Builder::new()
            .name("store-keeper".to_owned())
            .spawn(move || checkpointer::run_checkpointer(&readers, &jobs, &due))?;
        thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || self.run_jobs(queue, carry, keeper))
    }

    fn run_jobs(
        mut self,
        mut queue: mpsc::Receiver<WriterJob>,
        carry: SyncSender<()>,
        keeper: JoinHandle<()>,
    ) {
        let (mut more, mut uncarried, mut unseen) = (false, 0, LOOK_AFTER);
        while let Some(group) = write_queue::take_group(&mut queue, more) {
            uncarried += group.len();
            unseen += group.len();
            // The keeper says one of them, every few seconds.
            let once_in_a_while =
                |asked: &WriterJob| matches!(asked.kind, JobKind::Tick | JobKind::Checkpoint);
            if group.iter().any(once_in_a_while) {
                unseen = LOOK_AFTER;
            }
            if uncarried >= CHECKPOINT_AFTER && carry.try_send(()).is_ok() {
                uncarried = 0;
            }
            // Whoever waits for a group that ends in a panic is told by the lost answer.
            let worked = catch_unwind(AssertUnwindSafe(|| {
                self.process_group(group);
                let look = more || unseen >= LOOK_AFTER || self.is_full();
                if look {
                    unseen = 0;
                }
                look && self.remove_expired()
            }));
            more = worked.unwrap_or_else(|_| {
                tracing::error!("the store's writer panicked, and goes on");
                self.close_file();
                false
            });
        }
        drop(queue);
        self.readers.disable_reads();
        // The keeper ends with its channel.
        drop(carry);
        let _ = keeper.join();
        if let Some(OpenFile { file, .. }) = self.open.take()
            && let Err(error) = schema::truncate_log(&file)
        {
            tracing::warn!(%error, "the store's log stays beside its file");
        }
    }

    /// Does what it is asked, and answers.
    fn process_group(&mut self, group: Vec<WriterJob>) {
        for asked in &group {
            match asked.kind {
                JobKind::Damaged { epoch } if epoch == self.readers.epoch() => {
                    self.replace_damaged_file(&open::inconsistency_error());
                }
                JobKind::Checkpoint => self.checkpoint_rest(),
                _ => {}
            }
        }
        let done = match self.write_group(&group) {
            Ok(done) => done,
            Err(error) if group.len() == 1 => vec![Err(error)],
            Err(_) => {
                let alone = group.iter().map(std::slice::from_ref);
                let alone = alone.map(|asked| self.write_group(asked)?.pop().unwrap_or(Ok(false)));
                alone.collect()
            }
        };
        for (asked, done) in group.into_iter().zip(done) {
            asked.send_answer(done);
        }
    }

    /// Writes a group in one transaction, begun again in a new file where this one turns out to be damaged.
    fn write_group(&mut self, group: &[WriterJob]) -> Result<Outcomes, StoreError> {
        match self.try_write_group(group)? {
            Err(error) if open::is_damage(&error) && self.replace_damaged_file(&error) => {
                self.try_write_group(group)?.map_err(to_store_error)
            }
            done => done.map_err(to_store_error),
        }
    }

    fn try_write_group(
        &mut self,
        group: &[WriterJob],
    ) -> Result<rusqlite::Result<Outcomes>, StoreError> {
        let second = self.limits.now_s();
        if second < self.stamp.second() {
            // The clock went back: what is known seems to have been used later than now.
            self.readers.recent().clear();
        }
        if self.open.is_none()
            && self
                .failed_open_at
                .is_none_or(|tried| tried.elapsed() >= RETRY)
        {
            // Told in the log.
            let _ = self.open_file();
        }
        let Some(open) = &mut self.open else {
            return Err(StoreError::Unreachable(io::ErrorKind::NotConnected.into()));
        };
        let done = Batch::begin(&open.file, open.totals).and_then(|mut batch| {
            let mut outcomes = Vec::with_capacity(group.len());
            for asked in group {
                let JobKind::Write(write) = &asked.kind else {
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
        Ok(done)
    }

    /// Whether there are more sessions than there may be.
    fn is_full(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.totals.sessions > self.limits.sessions as u64)
    }

    /// Removes some of what is over the limits; returns whether there is more.
    fn remove_expired(&mut self) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let done = Batch::begin(&open.file, open.totals).and_then(|mut batch| {
            let more = expiry::remove_over_limits(&mut batch, &self.limits)?;
            open.totals = batch.commit(self.readers.recent())?;
            Ok(more)
        });
        match done {
            Ok(more) => return more,
            Err(error) if open::is_damage(&error) => {
                self.replace_damaged_file(&error);
            }
            Err(error) => {
                tracing::warn!(%error, "the store could not let go of old sessions");
            }
        }
        false
    }

    /// Carries over the rest of a long log, which is what came in while most of it was.
    fn checkpoint_rest(&mut self) {
        if let Some(open) = &self.open
            && let Err(error) = schema::checkpoint_log(&open.file)
        {
            tracing::warn!(%error, "the store's log could not be carried over into its file");
        }
    }

    fn close_file(&mut self) {
        self.readers.disable_reads();
        self.open = None;
    }

    /// Sets the file aside and begins a new one; returns whether there is one.
    fn replace_damaged_file(&mut self, why: &rusqlite::Error) -> bool {
        self.close_file();
        if let Err(error) = self.locked_file.set_aside(why) {
            tracing::error!(%error, "the store's damaged file cannot be set aside");
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
            let what = "the file of sessions cannot be opened; requests go on without";
            match failed_before {
                false => tracing::error!(%file, %error, "{what}"),
                true => tracing::debug!(%file, %error, "{what}"),
            }
        })?;
        // What others have seen of it never goes back.
        let version = &mut open.totals.shared_version;
        *version = self.version.load(Relaxed).max(*version);
        self.version.store(*version, Relaxed);
        self.open = Some(open);
        self.failed_open_at = None;
        self.readers.enable_reads();
        Ok(())
    }
}
