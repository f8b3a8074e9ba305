//! One transaction of the writer.

use std::ops::Deref;

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

/// The outer error fails the whole transaction, the inner one this write alone. `false` if there is no such session.
pub(super) type WriteResult = Result<std::result::Result<bool, StoreError>>;

/// A transaction that changes the file; rolled back unless it is committed.
pub(super) struct Batch<'f> {
    file: Transaction<'f>,
    pub(super) totals: Totals,
    pub(super) changes: BatchChanges,
    now_s: u64,
    /// Sessions last used before this second have expired.
    pub(super) horizon: u64,
}

impl<'f> Batch<'f> {
    pub(super) fn begin(
        file: &'f Connection,
        totals: Totals,
        limits: &StoreLimits,
        recent: &RecentStates,
    ) -> Result<Self> {
        let mut batch = Self {
            file: file.unchecked_transaction()?,
            totals,
            changes: BatchChanges::default(),
            now_s: limits.now_s(),
            horizon: limits.expiry_horizon(),
        };
        if stamp_second(totals.used) > batch.now_s {
            // The clock went back. Sessions from the future would outlive all new ones, which would be removed as soon
            // as they are saved.
            recent.clear();
            batch.totals.used = stamp(batch.now_s);
            let sql = "UPDATE sessions SET used = ?1 WHERE used > ?1";
            batch.change_rows(sql, [batch.totals.used])?;
        }
        Ok(batch)
    }

    /// Returns the new totals.
    pub(super) fn commit(self, recent: &RecentStates) -> Result<Totals> {
        recent.commit_changes(self.changes, || self.file.commit())?;
        Ok(self.totals)
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
