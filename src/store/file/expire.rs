//! What goes: sessions that are too old, too many, or take too much, least recently used first.
//!
//! In small steps between the writes, so that no save waits for long. Bytes are those of the file
//! but its free pages, which are used again before it grows; so it stays about as large as it may be,
//! and the log beside it comes on top.

use std::time::{Duration, Instant};

use rusqlite::{Connection, Result};

use super::{
    Limits, open,
    recent::{Change, Changes, Recent},
    row::{Stamp, int},
    save::{self, Counts},
    schema::pragma,
    step::Step,
};

/// How long the writes may wait for one step.
const STEP: Duration = Duration::from_millis(4);

/// Removes some of what is over the limits, in one transaction; returns whether there is more.
pub(super) fn step(
    file: &Connection,
    counts: &mut Counts,
    recent: &Recent,
    limits: Limits,
    now: u64,
) -> Result<bool> {
    let mut changes = Changes::new();
    let horizon = Stamp::of_second(now.saturating_sub(limits.age_s));
    let begun = Instant::now();
    let step = Step::begin(file)?;
    let before = *counts;
    let mut recalled = 0;
    let more = loop {
        if recall(&step, &mut changes, now, recalled)? {
            recalled += 1;
            match begun.elapsed() >= STEP {
                true => break true,
                false => continue,
            }
        }
        let Some((number, used)) = oldest(&step)? else {
            counts.sessions = 0;
            break false;
        };
        if used.0 >= horizon.0 && !over(&step, counts, limits)? {
            break false;
        }
        if begun.elapsed() >= STEP {
            break true;
        }
        // An index that names what is not there would name it for ever.
        if !save::remove_session(&step, counts, &mut changes, number)? {
            return Err(open::inconsistent());
        }
    };
    if *counts != before {
        counts.store(&step)?;
    }
    if *counts != before || !changes.is_empty() {
        recent.commit(changes, || step.commit())?;
    }
    Ok(more)
}

/// Where the clock went back, a session from then counts as used just before now: else it would
/// outlast all that are begun from now on, and these would go as soon as they were saved.
fn recall(file: &Connection, changes: &mut Changes, now: u64, nth: i64) -> Result<bool> {
    let later = Stamp::of_second(now.saturating_add(1)).0;
    let mut asked =
        file.prepare_cached("SELECT number FROM sessions WHERE used >= ?1 ORDER BY used LIMIT 1")?;
    let mut rows = asked.query([later])?;
    let Some(number) = rows.next()?.map(|row| int(row, 0)) else {
        return Ok(false);
    };
    drop(rows);
    let before = Stamp::of_second(now.saturating_sub(1)).nth(nth);
    let mut recalled =
        file.prepare_cached("UPDATE sessions SET used = ?2 WHERE number = ?1 AND used >= ?3")?;
    // As with what is not there.
    if recalled.execute((number, before.0, later))? == 0 {
        return Err(open::inconsistent());
    }
    changes.push(Change::Used(number, before.second()));
    Ok(true)
}

fn over(file: &Connection, counts: &Counts, limits: Limits) -> Result<bool> {
    Ok(counts.sessions > limits.sessions || bytes(file)? > limits.bytes)
}

/// What the file holds.
pub(super) fn bytes(file: &Connection) -> Result<u64> {
    let pages = pragma(file, "page_count")? - pragma(file, "freelist_count")?;
    Ok(pages.unsigned_abs() * pragma(file, "page_size")?.unsigned_abs())
}

/// The session that was not used for longest.
fn oldest(file: &Connection) -> Result<Option<(i64, Stamp)>> {
    let mut asked =
        file.prepare_cached("SELECT number, used FROM sessions ORDER BY used LIMIT 1")?;
    let mut rows = asked.query([])?;
    Ok(rows.next()?.map(|row| (int(row, 0), Stamp(int(row, 1)))))
}
