//! Short forms of SQLite calls. All statements stay prepared.

use std::ops::Deref;

use rusqlite::{Connection, Params, Result, Row, Statement, types::ValueRef};

/// Returns the number of changed rows.
pub(super) fn execute(file: &Connection, sql: &str, params: impl Params) -> Result<usize> {
    file.prepare_cached(sql)?.execute(params)
}

pub(super) fn query_first<T>(
    file: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> T,
) -> Result<Option<T>> {
    query_first_prepared(&mut *file.prepare_cached(sql)?, params, read)
}

/// As [`query_first`], for a statement that is used several times.
pub(super) fn query_first_prepared<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> T,
) -> Result<Option<T>> {
    let mut rows = statement.query(params)?;
    Ok(rows.next()?.map(read))
}

pub(super) fn query_all<T>(
    file: &Connection,
    sql: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> T,
) -> Result<Vec<T>> {
    let mut statement = file.prepare_cached(sql)?;
    let rows = statement.query_map(params, |row| Ok(read(row)))?;
    rows.collect()
}

pub(super) fn read_pragma(file: &Connection, name: &str) -> Result<i64> {
    let value = query_first(file, &format!("PRAGMA {name}"), [], |row| {
        column_int(row, 0)
    })?;
    Ok(value.unwrap_or(0))
}

/// A column's bytes; empty for another type.
pub(super) fn column_bytes<'a>(row: &'a Row<'_>, at: usize) -> &'a [u8] {
    match row.get_ref(at) {
        Ok(ValueRef::Blob(bytes)) => bytes,
        _ => &[],
    }
}

/// A column's number; 0 for another type.
pub(super) fn column_int(row: &Row<'_>, at: usize) -> i64 {
    match row.get_ref(at) {
        Ok(ValueRef::Integer(number)) => number,
        _ => 0,
    }
}

/// A snapshot for reads, or an atomic change. Rolled back when dropped, unless it is committed.
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
            tracing::warn!(%error, "cannot roll back a transaction of the store");
        }
    }
}
