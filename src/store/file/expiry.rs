//! What goes: sessions that are too old, too many, or take too much, least recently used first.
//!
//! In small steps between the writes, so that no save waits for long. Bytes are those of the file
//! but its free pages, which are used again before it grows; so it stays about as large as it may be,
//! and the log beside it comes on top.

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

/// How long the writes may wait for one step.
const STEP: Duration = Duration::from_millis(4);

/// Removes some of what is over the limits; returns whether there is more.
pub(super) fn remove_over_limits(batch: &mut Batch<'_>, limits: &StoreLimits) -> Result<bool> {
    let (now, horizon) = (limits.now_s(), Stamp::from_second(limits.expiry_horizon()));
    let begun = Instant::now();
    let mut recalled = 0;
    loop {
        if backdate_future_session(batch, now, recalled)? {
            recalled += 1;
        } else {
            let Some((number, used)) = find_oldest(batch)? else {
                batch.totals.sessions = 0;
                return Ok(false);
            };
            if used.0 >= horizon.0 && !is_over_limits(batch, limits)? {
                return Ok(false);
            }
            // An index that names what is not there would name it for ever.
            if !save::remove_session(batch, number)? {
                return Err(open::inconsistency_error());
            }
        }
        if begun.elapsed() >= STEP {
            return Ok(true);
        }
    }
}

/// Where the clock went back, a session from then counts as used just before now: else it would
/// outlast all that are begun from now on, and these would go as soon as they were saved.
fn backdate_future_session(file: &Connection, now: u64, nth: i64) -> Result<bool> {
    let later = Stamp::from_second(now.saturating_add(1)).0;
    let sql = "SELECT number FROM sessions WHERE used >= ?1 ORDER BY used LIMIT 1";
    let Some(number) = query_first(file, sql, [later], |row| column_int(row, 0))? else {
        return Ok(false);
    };
    let before = Stamp::from_second(now.saturating_sub(1)).with_offset(nth);
    let sql = "UPDATE sessions SET used = ?2 WHERE number = ?1 AND used >= ?3";
    // As with what is not there.
    if execute(file, sql, (number, before.0, later))? == 0 {
        return Err(open::inconsistency_error());
    }
    Ok(true)
}

fn is_over_limits(batch: &Batch<'_>, limits: &StoreLimits) -> Result<bool> {
    Ok(batch.totals.sessions > limits.sessions as u64 || used_bytes(batch)? > limits.bytes as u64)
}

/// What the file holds.
pub(super) fn used_bytes(file: &Connection) -> Result<u64> {
    let pages = read_pragma(file, "page_count")? - read_pragma(file, "freelist_count")?;
    Ok(pages.unsigned_abs() * read_pragma(file, "page_size")?.unsigned_abs())
}

/// The session that was not used for longest.
fn find_oldest(file: &Connection) -> Result<Option<(i64, Stamp)>> {
    let sql = "SELECT number, used FROM sessions ORDER BY used LIMIT 1";
    query_first(file, sql, [], |row| {
        (column_int(row, 0), Stamp(column_int(row, 1)))
    })
}
