//! One transaction of the writer.

use std::{collections::HashMap, ops::Deref};

use rusqlite::{Connection, Params, Result, Transaction};

use super::{
    read::query_first,
    recent_states::{BatchChanges, RecentStates},
    row::{stamp, stamp_second},
};
use crate::store::{StoreError, limits::StoreLimits};

/// Totals of the file's content, updated with each change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) sessions: u64,
    /// The stamp of the last use of any session.
    used: i64,
    /// The version of the last shared value.
    pub(super) shared_version: u64,
}

impl Totals {
    pub(super) fn read(file: &Connection) -> Result<Self> {
        let number = |sql| file.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
        let number = |sql| Ok::<_, rusqlite::Error>(number(sql)?.unwrap_or(0));
        Ok(Self {
            sessions: number("SELECT count(*) FROM sessions")?.unsigned_abs(),
            used: number("SELECT max(used) FROM sessions")?,
            shared_version: number("SELECT max(version) FROM shared")?.unsigned_abs(),
        })
    }
}

/// Uses of sessions that the file does not have yet: their numbers, and the stamps of their last saves.
///
/// A save changes three trees of pages where it writes the use of its session. A use soon after a written one waits until
/// somebody looks at it, or the next one that does not wait. A killed process loses it, and no state.
pub(super) type UnwrittenUses = HashMap<i64, i64>;

/// From so many on, they are written; a group of jobs may add some.
pub(super) const MAX_UNWRITTEN: usize = 512;

/// The outer error fails the whole transaction, the inner one this write alone. `false` if there is no such session.
pub(super) type WriteResult = Result<std::result::Result<bool, StoreError>>;

/// The file, with what is known of its content.
pub(super) struct OpenFile {
    pub(super) connection: Connection,
    pub(super) totals: Totals,
    pub(super) uses: UnwrittenUses,
}

/// What a transaction has changed beside the file.
pub(super) struct CommittedBatch {
    totals: Totals,
    uses: UnwrittenUses,
    has_written_uses: bool,
}

impl OpenFile {
    pub(super) fn take_over(&mut self, committed: CommittedBatch) {
        self.totals = committed.totals;
        if committed.has_written_uses {
            self.uses.clear();
        }
        self.uses.extend(committed.uses);
    }
}

/// A transaction that changes the file; rolled back unless it is committed.
pub(super) struct Batch<'f> {
    file: Transaction<'f>,
    pub(super) totals: Totals,
    pub(super) changes: BatchChanges,
    /// Uses that wait: of earlier transactions.
    earlier_uses: &'f UnwrittenUses,
    /// The same of this one.
    uses: UnwrittenUses,
    has_written_uses: bool,
    /// Seconds after a written use in which others may wait.
    use_delay_s: u64,
    now_s: u64,
    /// Sessions last used before this second have expired.
    pub(super) horizon: u64,
}

impl<'f> Batch<'f> {
    pub(super) fn begin(
        open_file: &'f OpenFile,
        limits: &StoreLimits,
        recent: &RecentStates,
    ) -> Result<Self> {
        let totals = open_file.totals;
        let mut batch = Self {
            file: open_file.connection.unchecked_transaction()?,
            totals,
            changes: BatchChanges::default(),
            earlier_uses: &open_file.uses,
            uses: UnwrittenUses::new(),
            has_written_uses: false,
            use_delay_s: limits.use_delay_s(),
            now_s: limits.now_s(),
            horizon: limits.expiry_horizon(),
        };
        if stamp_second(totals.used) > batch.now_s {
            // The clock went back. Sessions from the future would outlive all new ones, which would be removed as soon
            // as they are saved.
            recent.clear();
            batch.write_uses()?;
            batch.totals.used = stamp(batch.now_s);
            let sql = "UPDATE sessions SET used = ?1, saved_s = min(saved_s, ?2) WHERE used > ?1";
            batch.change_rows(sql, (batch.totals.used, batch.now_s as i64))?;
        }
        Ok(batch)
    }

    /// Returns what it changes of the file's totals and unwritten uses.
    pub(super) fn commit(self, recent: &RecentStates) -> Result<CommittedBatch> {
        recent.commit_changes(self.changes, || self.file.commit())?;
        Ok(CommittedBatch {
            totals: self.totals,
            uses: self.uses,
            has_written_uses: self.has_written_uses,
        })
    }

    /// Notes the use of a session by a save, and returns its stamp. `written`: the use of it that the file has.
    pub(super) fn note_use(&mut self, session: i64, written: i64) -> Result<i64> {
        let used = self.next_use();
        let behind_s = stamp_second(used).saturating_sub(stamp_second(written));
        if behind_s < self.use_delay_s {
            self.uses.insert(session, used);
        } else {
            write_use(&self.file, session, used)?;
        }
        Ok(used)
    }

    /// Writes the uses that wait.
    pub(super) fn write_uses(&mut self) -> Result<()> {
        let earlier = (!self.has_written_uses).then_some(self.earlier_uses);
        for (session, used) in earlier.into_iter().flatten().chain(&self.uses) {
            write_use(&self.file, *session, *used)?;
        }
        self.uses.clear();
        self.has_written_uses = true;
        Ok(())
    }

    /// The stamp of a use now.
    pub(super) fn next_use(&mut self) -> i64 {
        self.totals.used = stamp(self.now_s).max(self.totals.used + 1);
        self.totals.used
    }

    /// Returns the number of changed rows.
    pub(super) fn change_rows(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.prepare_cached(sql)?.execute(params)
    }
}

/// The stamps only grow: a find may have used the session later, and an older use may wait behind a written one.
fn write_use(file: &Connection, session: i64, used: i64) -> Result<()> {
    let sql =
        "UPDATE sessions SET saved_s = max(saved_s, ?2), used = max(used, ?3) WHERE number = ?1";
    let saved_s = stamp_second(used) as i64;
    let mut update = file.prepare_cached(sql)?;
    update.execute((session, saved_s, used)).map(drop)
}

impl Deref for Batch<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.file
    }
}

/// Bytes of the file without its free pages, which SQLite reuses before the file grows. The write-ahead log comes on
/// top.
pub(super) fn used_bytes(file: &Connection) -> Result<u64> {
    let sql = "SELECT (page_count - freelist_count) * page_size \
               FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
    let bytes = query_first(file, sql, [], |row| row.get::<_, i64>(0))?;
    Ok(bytes.unwrap_or(0).unsigned_abs())
}
