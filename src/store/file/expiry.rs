//! Removes sessions over the limits of age, count and bytes, least recently used first.
//!
//! It runs in short steps between writes, so that no save waits for long. Bytes are those of the file without its
//! free pages, which SQLite reuses before the file grows. The write-ahead log comes on top.

use std::time::{Duration, Instant};

use rusqlite::{Connection, Result};

use super::{
    batch::Batch,
    open,
    row::Stamp,
    save,
    sql::{column_int, execute, query_first, read_pragma},
};
use crate::store::limits::StoreLimits;

/// Writes wait about so long for one step.
const STEP: Duration = Duration::from_millis(4);

/// Removes some sessions over the limits; returns whether there are more.
pub(super) fn remove_over_limits(batch: &mut Batch<'_>, limits: &StoreLimits) -> Result<bool> {
    let (now, horizon) = (limits.now_s(), Stamp::from_second(limits.expiry_horizon()));
    let begun = Instant::now();
    let mut backdated = 0;
    loop {
        if backdate_future_session(batch, now, backdated)? {
            backdated += 1;
        } else {
            let Some((number, used)) = find_oldest(batch)? else {
                batch.totals.sessions = 0;
                return Ok(false);
            };
            if used.0 >= horizon.0 && !is_over_limits(batch, limits)? {
                return Ok(false);
            }
            // Without this an index with an absent session would end no loop.
            if !save::remove_session(batch, number)? {
                return Err(open::inconsistency_error());
            }
        }
        if begun.elapsed() >= STEP {
            return Ok(true);
        }
    }
}

/// Sets the last use of a session from the future, left by a clock that went back, to just before now. Otherwise it
/// would outlive all new sessions, which would be removed as soon as they are saved.
fn backdate_future_session(file: &Connection, now: u64, nth: i64) -> Result<bool> {
    let later = Stamp::from_second(now.saturating_add(1)).0;
    let sql = "SELECT number FROM sessions WHERE used >= ?1 ORDER BY used LIMIT 1";
    let Some(number) = query_first(file, sql, [later], |row| column_int(row, 0))? else {
        return Ok(false);
    };
    let before = Stamp::from_second(now.saturating_sub(1)).with_offset(nth);
    let sql = "UPDATE sessions SET used = ?2 WHERE number = ?1 AND used >= ?3";
    // The index contradicts the table.
    if execute(file, sql, (number, before.0, later))? == 0 {
        return Err(open::inconsistency_error());
    }
    Ok(true)
}

fn is_over_limits(batch: &Batch<'_>, limits: &StoreLimits) -> Result<bool> {
    Ok(batch.totals.sessions > limits.sessions as u64 || used_bytes(batch)? > limits.bytes as u64)
}

/// Bytes of the file without its free pages.
pub(super) fn used_bytes(file: &Connection) -> Result<u64> {
    let pages = read_pragma(file, "page_count")? - read_pragma(file, "freelist_count")?;
    Ok(pages.unsigned_abs() * read_pragma(file, "page_size")?.unsigned_abs())
}

/// The least recently used session.
fn find_oldest(file: &Connection) -> Result<Option<(i64, Stamp)>> {
    let sql = "SELECT number, used FROM sessions ORDER BY used LIMIT 1";
    query_first(file, sql, [], |row| {
        (column_int(row, 0), Stamp(column_int(row, 1)))
    })
}
