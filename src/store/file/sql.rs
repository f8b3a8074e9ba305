//! Short forms of what is asked of SQLite. All statements stay prepared.

use std::ops::Deref;

use rusqlite::{Connection, Params, Result, Row, Statement, types::ValueRef};

/// Executes a statement, and returns how many rows it changed.
pub(super) fn execute(file: &Connection, sql: &str, params: impl Params) -> Result<usize> {
    file.prepare_cached(sql)?.execute(params)
}

/// The first row of an answer, if there is one.
pub(super) fn query_first<T>(
    file: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> T,
) -> Result<Option<T>> {
    query_first_prepared(&mut *file.prepare_cached(sql)?, params, read)
}

/// The same of a statement that is asked several times.
pub(super) fn query_first_prepared<T>(
    asked: &mut Statement<'_>,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> T,
) -> Result<Option<T>> {
    let mut rows = asked.query(params)?;
    Ok(rows.next()?.map(read))
}

/// All rows of an answer.
pub(super) fn query_all<T>(
    file: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> T,
) -> Result<Vec<T>> {
    let mut asked = file.prepare_cached(sql)?;
    let rows = asked.query_map(params, |row| Ok(read(row)))?;
    rows.collect()
}

/// A number that SQLite knows of the file.
pub(super) fn read_pragma(file: &Connection, name: &str) -> Result<i64> {
    let asked = query_first(file, &format!("PRAGMA {name}"), [], |row| {
        column_int(row, 0)
    })?;
    Ok(asked.unwrap_or(0))
}

/// A column's bytes; none where it holds something else.
pub(super) fn column_bytes<'a>(row: &'a Row<'_>, at: usize) -> &'a [u8] {
    match row.get_ref(at) {
        Ok(ValueRef::Blob(bytes)) => bytes,
        _ => &[],
    }
}

/// A column's number; 0 where it holds something else.
pub(super) fn column_int(row: &Row<'_>, at: usize) -> i64 {
    match row.get_ref(at) {
        Ok(ValueRef::Integer(number)) => number,
        _ => 0,
    }
}

/// Several statements as one: a view of the file that stays as it is, or a change that lands whole or
/// not at all. Undone when dropped, unless it was committed.
pub(super) struct Transaction<'f>(&'f Connection);

impl<'f> Transaction<'f> {
    pub(super) fn begin(file: &'f Connection) -> Result<Self> {
        execute(file, "BEGIN", [])?;
        Ok(Self(file))
    }

    pub(super) fn commit(self) -> Result<()> {
        execute(self.0, "COMMIT", []).map(drop)
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit()
            && let Err(error) = execute(self.0, "ROLLBACK", [])
        {
            tracing::warn!(%error, "a transaction of the store was not rolled back");
        }
    }
}
