//! One transaction of the writer, and what is counted as it changes.

use std::ops::Deref;

use rusqlite::{Connection, Result};

use super::{
    recent_states::{BatchChanges, RecentStates},
    row::Stamp,
    sql::{Transaction, column_int, execute, query_first},
};
use crate::store::StoreError;

/// What of the file's content is counted as it changes, so that it need not be counted again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) sessions: u64,
    /// No session that is there, or was while this process ran, has this number or one above.
    pub(super) next_session: i64,
    /// The version of what was shared last.
    pub(super) shared_version: u64,
}

impl Totals {
    /// Counts what is in the file.
    pub(super) fn count_file(file: &Connection) -> Result<Self> {
        let number = |sql| {
            Ok::<_, rusqlite::Error>(
                query_first(file, sql, [], |row| column_int(row, 0))?.unwrap_or(0),
            )
        };
        // Releases before this one kept their count there, and would believe an old one. Where nothing can
        // be written now, sessions are still found.
        let _ = execute(file, "DELETE FROM meta WHERE name = 'sessions'", []);
        Ok(Self {
            sessions: number("SELECT count(*) FROM sessions")?.unsigned_abs(),
            next_session: number("SELECT max(number) FROM sessions")?.saturating_add(1),
            shared_version: number("SELECT max(version) FROM shared")?.unsigned_abs(),
        })
    }
}

/// When something is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteTime {
    pub(super) used: Stamp,
    /// What was last used before this second has expired.
    pub(super) horizon: u64,
}

/// The error of the file fails the whole transaction; what the store refuses fails nobody else. `false` where
/// there is no such session.
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

    /// Returns what is counted now.
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
