//! One transaction of the writer, with the totals that it updates.

use std::ops::Deref;

use rusqlite::{Connection, Result};

use super::{
    recent_states::{BatchChanges, RecentStates},
    row::Stamp,
    sql::{Transaction, column_int, execute, query_first},
};
use crate::store::StoreError;

/// Totals of the file's content, updated with each change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) sessions: u64,
    /// Larger than the number of every session that was in the file while this process ran.
    pub(super) next_session: i64,
    /// The version of the last shared value.
    pub(super) shared_version: u64,
}

impl Totals {
    pub(super) fn count_file(file: &Connection) -> Result<Self> {
        let number = |sql| -> Result<i64> {
            let number = query_first(file, sql, [], |row| column_int(row, 0))?;
            Ok(number.unwrap_or(0))
        };
        // Earlier releases keep their count there, and would trust an old one. An error is ignored, since sessions are
        // found in a read-only file too.
        let _ = execute(file, "DELETE FROM meta WHERE name = 'sessions'", []);
        Ok(Self {
            sessions: number("SELECT count(*) FROM sessions")?.unsigned_abs(),
            next_session: number("SELECT max(number) FROM sessions")?.saturating_add(1),
            shared_version: number("SELECT max(version) FROM shared")?.unsigned_abs(),
        })
    }
}

/// The time of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteTime {
    pub(super) used: Stamp,
    /// Sessions last used before this second have expired.
    pub(super) horizon: u64,
}

/// The outer error fails the whole transaction, the inner one this write alone. `false` if there is no such session.
pub(super) type WriteResult = Result<std::result::Result<bool, StoreError>>;

/// A transaction that changes the file; rolled back unless it is committed.
pub(super) struct Batch<'f> {
    file: Transaction<'f>,
    pub(super) totals: Totals,
    pub(super) changes: BatchChanges,
}

impl<'f> Batch<'f> {
    pub(super) fn begin(file: &'f Connection, totals: Totals) -> Result<Self> {
        Ok(Self {
            file: Transaction::begin(file)?,
            totals,
            changes: BatchChanges::default(),
        })
    }

    /// Returns the new totals.
    pub(super) fn commit(self, recent: &RecentStates) -> Result<Totals> {
        recent.commit_changes(self.changes, || self.file.commit())?;
        Ok(self.totals)
    }
}

impl Deref for Batch<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.file
    }
}
