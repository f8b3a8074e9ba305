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
    Clock, Limits, expire, failed, keeper,
    open::{self, Fault, Inode, Place, Refusal},
    queue::{self, Asked, What},
    readers::Readers,
    recent::{Changes, Recent},
    row::Stamp,
    save::{self, Counts},
    schema,
    share::{self, Told},
    step::Step,
};
use crate::store::StoreError;

/// Jobs after which the log is carried over into the file.
const CARRY_AFTER: usize = 1_024;
/// Jobs after which it is seen whether the file holds too much, or what is too old; the keeper has that
/// seen every few seconds in any case.
const LOOK_AFTER: usize = 32;

/// How soon opening the file is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What the writer knows of the open file.
struct Open {
    file: Connection,
    known: Known,
    inode: Inode,
}

/// What of the file's content need not be asked each time.
#[derive(Clone, Copy)]
struct Known {
    counts: Counts,
    told: Told,
    /// Changes where another connection changed the file, and no other one of ours does.
    others: i64,
}

impl Known {
    fn load(file: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            // First: what changes after it is met.
            others: others(file)?,
            counts: Counts::load(file)?,
            told: Told::load(file)?,
        })
    }

    /// Where a tool from outside changed the file, all that is known of it is asked again: with every step,
    /// and one comes every few seconds.
    fn meet_others(&mut self, file: &Connection, recent: &Recent) -> rusqlite::Result<()> {
        let others = others(file)?;
        if others != self.others {
            recent.clear();
            *self = Self {
                counts: self.counts.anew(file)?,
                told: self.told.anew(file)?,
                others,
            };
        }
        Ok(())
    }
}

fn others(file: &Connection) -> rusqlite::Result<i64> {
    schema::pragma(file, "data_version")
}

pub(super) struct Writer {
    place: Place,
    readers: Arc<Readers>,
    /// `None` while it cannot be opened.
    open: Option<Open>,
    /// When opening was tried last, and failed.
    tried: Option<Instant>,
    /// It failed then, which was told in the log.
    failing: bool,
    limits: Limits,
    clock: Clock,
    stamp: Stamp,
    /// The version of what is shared, for all.
    version: Arc<AtomicU64>,
}

impl Writer {
    /// Takes the place, and opens the file in it.
    pub(super) fn open(
        directory: &Path,
        limits: Limits,
        clock: Clock,
        version: Arc<AtomicU64>,
    ) -> Result<(Self, Arc<Readers>), Refusal> {
        let place = Place::take(directory)?;
        let readers = Arc::new(Readers::new(place.path().to_owned()));
        let mut writer = Self {
            readers: Arc::clone(&readers),
            open: None,
            tried: None,
            failing: false,
            limits,
            clock,
            stamp: Stamp::default(),
            version,
            place,
        };
        if let Err(Fault::Newer(format)) = writer.reopen() {
            let path = writer.place.path().to_owned();
            return Err(Refusal::Newer { path, format });
        }
        Ok((writer, readers))
    }

    /// Goes to work, until nobody can ask any more.
    pub(super) fn start(
        self,
        queue: mpsc::Receiver<Asked>,
        jobs: mpsc::WeakSender<Asked>,
    ) -> io::Result<JoinHandle<()>> {
        let readers = Arc::clone(&self.readers);
        let (carry, due) = sync_channel(1);
        let keeper = thread::Builder::new()
            .name("store-keeper".to_owned())
            .spawn(move || keeper::keep(&readers, &jobs, &due))?;
        thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || self.work(queue, carry, keeper))
    }

    fn work(
        mut self,
        mut queue: mpsc::Receiver<Asked>,
        carry: SyncSender<()>,
        keeper: JoinHandle<()>,
    ) {
        let (mut more, mut uncarried, mut unseen, mut closing) = (false, 0, LOOK_AFTER, false);
        while !closing {
            let Some(group) = queue::next(&mut queue, more) else {
                break;
            };
            closing = group.iter().any(|asked| matches!(asked.what, What::Close));
            uncarried += group.len();
            unseen += group.len();
            // The keeper says one of them, every few seconds.
            let once_in_a_while = |asked: &Asked| matches!(asked.what, What::Tick | What::Carry);
            if group.iter().any(once_in_a_while) {
                unseen = LOOK_AFTER;
            }
            if uncarried >= CARRY_AFTER && carry.try_send(()).is_ok() {
                uncarried = 0;
            }
            // Whoever waits for a group that ends in a panic is told by the lost answer.
            let worked = catch_unwind(AssertUnwindSafe(|| {
                self.group(group);
                let look = more || unseen >= LOOK_AFTER || self.is_full();
                if look {
                    unseen = 0;
                }
                look && self.expire()
            }));
            more = worked.unwrap_or_else(|_| {
                tracing::error!("the store's writer met a fault of its own, and goes on");
                self.drop_file();
                false
            });
        }
        drop(queue);
        let alone = self.readers.close();
        // The keeper ends with its channel.
        drop(carry);
        let _ = keeper.join();
        if let Some(open) = self.open.take()
            && let Err(error) = schema::settle(&open.file, alone)
        {
            tracing::warn!(%error, "the store's log stays beside its file");
        }
    }

    /// Does what it is asked, and answers.
    fn group(&mut self, mut group: Vec<Asked>) {
        for asked in &group {
            match asked.what {
                What::Damaged { epoch } if epoch == self.readers.epoch() => {
                    self.begin_anew(&open::inconsistent());
                }
                What::Carry => {
                    self.carry();
                    self.look();
                }
                What::Tick => self.look(),
                _ => {}
            }
        }
        match self.transact(&group) {
            Ok(done) => {
                for (asked, done) in group.into_iter().zip(done) {
                    asked.answer(done);
                }
            }
            Err(error) if group.len() == 1 => {
                if let Some(asked) = group.pop() {
                    asked.answer(Err(error));
                }
            }
            Err(_) => {
                for asked in group {
                    let done = self.transact(std::slice::from_ref(&asked));
                    let done = done.and_then(|mut done| done.pop().unwrap_or(Ok(false)));
                    asked.answer(done);
                }
            }
        }
    }

    /// One transaction, begun again in a new file where this one turns out to be damaged.
    fn transact(&mut self, group: &[Asked]) -> Result<Vec<Result<bool, StoreError>>, StoreError> {
        match self.attempt(group)? {
            Err(error) if open::is_damage(&error) && self.begin_anew(&error) => {
                self.attempt(group)?.map_err(failed)
            }
            done => done.map_err(failed),
        }
    }

    fn attempt(
        &mut self,
        group: &[Asked],
    ) -> Result<rusqlite::Result<Vec<Result<bool, StoreError>>>, StoreError> {
        let second = (self.clock)();
        let horizon = second.saturating_sub(self.limits.age_s);
        if self.open.is_none() && self.tried.is_none_or(|tried| tried.elapsed() >= RETRY) {
            // Told in the log.
            let _ = self.reopen();
        }
        let Some(open) = &mut self.open else {
            return Err(StoreError::Unreachable(io::ErrorKind::NotConnected.into()));
        };
        let known = open.known;
        let when = (second, horizon);
        let done = write(open, group, self.readers.recent(), &mut self.stamp, when);
        match &done {
            Ok(_) => self.version.store(open.known.told.version, Relaxed),
            Err(_) => open.known = known,
        }
        Ok(done)
    }

    /// Whether there are more sessions than there may be.
    fn is_full(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.known.counts.sessions > self.limits.sessions)
    }

    /// Removes some of what is over the limits; returns whether there is more.
    fn expire(&mut self) -> bool {
        let now = (self.clock)();
        let Some(open) = &mut self.open else {
            return false;
        };
        let counts = open.known.counts;
        let recent = self.readers.recent();
        match expire::step(&open.file, &mut open.known.counts, recent, self.limits, now) {
            Ok(more) => return more,
            Err(error) if open::is_damage(&error) => {
                self.begin_anew(&error);
            }
            Err(error) => {
                open.known.counts = counts;
                tracing::warn!(%error, "the store could not let go of old sessions");
            }
        }
        false
    }

    /// Carries over the rest of a long log, which is what came in while most of it was.
    fn carry(&mut self) {
        if let Some(open) = &self.open
            && let Err(error) = keeper::carry(&open.file)
        {
            tracing::warn!(%error, "the store's log could not be carried over into its file");
        }
    }

    /// Goes over to what stands in the file's place, where that is another file, or none: nobody
    /// would find again what goes on to be written to this one.
    fn look(&mut self) {
        let Some(open) = &self.open else { return };
        if self.place.holds(&open.inode) {
            return;
        }
        let file = self.place.path().display();
        tracing::error!(%file, "the file of sessions was removed or replaced: what stands in its place is used");
        let inode = open.inode;
        self.readers.close();
        // Where it is the same file after all, under another number, nothing is lost.
        let _ = schema::settle(&open.file, false);
        self.drop_file();
        if let Err(error) = self.place.clear_up(&inode) {
            tracing::error!(%error, "the log of the removed file cannot be removed");
            return;
        }
        // Told in the log.
        let _ = self.reopen();
    }

    fn drop_file(&mut self) {
        self.readers.close();
        self.open = None;
    }

    /// Sets the file aside and begins a new one; returns whether there is one.
    fn begin_anew(&mut self, why: &rusqlite::Error) -> bool {
        self.open = None;
        if !self.readers.close() {
            tracing::error!("the store's file is damaged, and is still being read");
            return false;
        }
        if let Err(error) = self.place.set_aside(why) {
            tracing::error!(%error, "the store's damaged file cannot be set aside");
            return false;
        }
        self.reopen().is_ok()
    }

    fn reopen(&mut self) -> Result<(), Fault> {
        self.tried = Some(Instant::now());
        self.readers.close();
        let opened = self.place.open(|file| {
            Ok(Open {
                known: Known::load(&file)?,
                inode: self.place.inode()?,
                file,
            })
        });
        let failed_before = std::mem::replace(&mut self.failing, opened.is_err());
        let mut open = opened.inspect_err(|error| {
            let file = self.place.path().display();
            let what = "the file of sessions cannot be opened; requests go on without";
            match failed_before {
                false => tracing::error!(%file, %error, "{what}"),
                true => tracing::debug!(%file, %error, "{what}"),
            }
        })?;
        // What others have seen of it never goes back.
        open.known.told.version = open.known.told.version.max(self.version.load(Relaxed));
        self.version.store(open.known.told.version, Relaxed);
        self.open = Some(open);
        self.tried = None;
        self.readers.open();
        Ok(())
    }
}

/// Writes a group in one transaction, and says what became of each.
fn write(
    open: &mut Open,
    group: &[Asked],
    recent: &Recent,
    stamp: &mut Stamp,
    (second, horizon): (u64, u64),
) -> rusqlite::Result<Vec<Result<bool, StoreError>>> {
    let mut changes = Changes::new();
    let step = Step::begin(&open.file)?;
    let before = open.known.counts.sessions;
    open.known.meet_others(&step, recent)?;
    let mut all = Vec::with_capacity(group.len());
    for asked in group {
        all.push(match &asked.what {
            What::Save(saved) => {
                *stamp = stamp.next(second);
                save::save(&step, &mut open.known.counts, &mut changes, saved, *stamp)?
                    .map(|()| true)
            }
            What::Order(account, id, orders) => {
                let account = account.as_ref();
                Ok(save::order(
                    &step,
                    &mut changes,
                    account,
                    *id,
                    orders,
                    horizon,
                )?)
            }
            What::Share(name, value) => {
                share::put(&step, &mut open.known.told, name, value)?;
                Ok(true)
            }
            What::Touch(number) => {
                *stamp = stamp.next(second);
                save::touch(&step, &mut changes, *number, *stamp)?;
                Ok(true)
            }
            What::Tick | What::Carry | What::Damaged { .. } | What::Close => Ok(true),
            #[cfg(test)]
            What::Run(run) => {
                run(&step);
                Ok(true)
            }
        });
    }
    if open.known.counts.sessions != before {
        open.known.counts.store(&step)?;
    }
    recent.commit(changes, || step.commit())?;
    Ok(all)
}
