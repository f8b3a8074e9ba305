//! What is written of sessions. All of it within a transaction of the writer's, and what is refused
//! is refused before anything was written for it.

use bytes::Bytes;
use rusqlite::{Connection, Result};

use super::{
    batch::{Batch, When, WriteResult},
    read::{self, Hit, StoredGeneration},
    row::{GenerationRow, Head, Owner, Stamp, circle, key_place},
    sql::{blob, execute, first, int},
};
use crate::store::{
    Account, Found, Saved, SessionId, StoreError,
    keep::{self, Kept},
};

/// Files a state under all its keys, and as its session's newest.
pub(super) fn save(batch: &mut Batch<'_>, saved: &Saved, When { used, .. }: When) -> WriteResult {
    let owner = Owner::of(saved);
    let (session, orders) = match known(batch, &owner)? {
        // SECURITY: the end users of one account may know each other's session ids.
        Some((_, None)) => return Ok(Err(StoreError::Foreign)),
        Some((session, Some(orders))) => {
            execute(
                batch,
                "UPDATE sessions SET saved_s = ?2, used = ?3 WHERE number = ?1",
                (session, used.second() as i64, used.0),
            )?;
            (session, orders)
        }
        None => (begin(batch, &owner, used)?, Bytes::new()),
    };
    let head = Head::of(saved, ambiguous(batch, saved)?);
    let mut kept = Vec::new();
    for stored in read::generations(batch, session)? {
        match stored {
            Ok(stored) if stored.head.keys.exact == saved.keys.exact => remove(batch, &stored)?,
            Ok(stored) => kept.push(stored),
            Err(unreadable) => remove_row(batch, unreadable)?,
        }
    }
    let (low, high) = GenerationRow::range(session);
    let row = match kept.last() {
        None => low,
        Some(newest) if newest.row == high => {
            // No more numbers: the session begins with this state again.
            for stored in kept.drain(..) {
                remove(batch, &stored)?;
            }
            low
        }
        Some(newest) => GenerationRow(newest.row.0 + 1),
    };
    execute(
        batch,
        "INSERT INTO generations (place, head, state) VALUES (?1, ?2, ?3)",
        (row.0, head.sealed(&owner, &saved.state), &saved.state[..]),
    )?;
    for (kind, key) in head.keys.iter() {
        execute(
            batch,
            "REPLACE INTO keys (place, target) VALUES (?1, ?2)",
            (key_place(head.circle, key), row.target(kind)),
        )?;
    }
    let found = Found {
        at: 0,
        state: saved.state.clone(),
        orders,
    };
    let hit = Hit {
        found,
        session,
        used_s: used.second(),
    };
    batch.changes.add_saved(saved, &head, hit);
    kept.push(StoredGeneration {
        row,
        head,
        state_bytes: saved.state.len(),
    });
    while let Some(at) = keep::superfluous(&kept, rules) {
        remove(batch, &kept.remove(at))?;
    }
    Ok(Ok(true))
}

/// Replaces the orders of a session, without using it. Returns whether it is there.
pub(super) fn order(
    batch: &mut Batch<'_>,
    account: Option<&Account>,
    id: SessionId,
    orders: &Bytes,
    When { horizon, .. }: When,
) -> WriteResult {
    let Some(named) = read::named(batch, account, id, horizon)? else {
        return Ok(Ok(false));
    };
    batch.changes.add_orders();
    let sql = "UPDATE sessions SET orders = ?2 WHERE number = ?1";
    let sealed = named.owner.sealed(orders);
    Ok(Ok(execute(batch, sql, (named.number, sealed))? > 0))
}

/// Makes a session young. States of it that are known without reading keep the time of their save: that is
/// too early at most, and then the file is asked.
pub(super) fn touch(file: &Connection, session: i64, When { used, .. }: When) -> WriteResult {
    let sql = "UPDATE sessions SET used = ?2 WHERE number = ?1 AND used < ?2";
    Ok(Ok(execute(file, sql, (session, used.0))? > 0))
}

/// Removes a session with all that belongs to it; returns whether it was there.
pub(super) fn remove_session(batch: &mut Batch<'_>, session: i64) -> Result<bool> {
    for stored in read::generations(batch, session)? {
        match stored {
            Ok(stored) => remove(batch, &stored)?,
            Err(unreadable) => remove_row(batch, unreadable)?,
        }
    }
    let there = execute(batch, "DELETE FROM sessions WHERE number = ?1", [session])? > 0;
    if there {
        batch.totals.sessions = batch.totals.sessions.saturating_sub(1);
    }
    Ok(there)
}

/// A session by its id. The plus keeps the index of accounts out of it: whoever has no keys has one account
/// for all sessions.
const KNOWN: &str =
    "SELECT number, tenant, orders FROM sessions WHERE session = ?1 AND +account = ?2";

/// The number of the session saved to, and its orders if it is the tenant's own.
fn known(file: &Connection, owner: &Owner) -> Result<Option<(i64, Option<Bytes>)>> {
    let account = owner.tenant.account();
    let params = (owner.session.bytes(), account.bytes());
    first(file, KNOWN, params, |row| {
        let own = blob(row, 1) == owner.tenant.id();
        let orders = || Bytes::copy_from_slice(owner.opened(blob(row, 2)));
        (int(row, 0), own.then(orders))
    })
}

fn begin(batch: &mut Batch<'_>, owner: &Owner, used: Stamp) -> Result<i64> {
    let number = batch.totals.next_session;
    execute(
        batch,
        "INSERT INTO sessions (number, account, session, tenant, saved_s, used, orders) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, x'')",
        (
            number,
            owner.tenant.account().bytes(),
            owner.session.bytes(),
            owner.tenant.id(),
            used.second() as i64,
            used.0,
        ),
    )?;
    batch.totals.next_session += 1;
    batch.totals.sessions += 1;
    Ok(number)
}

/// Whether the bare key has seen another answer than this one.
fn ambiguous(file: &Connection, saved: &Saved) -> Result<bool> {
    let bare = &saved.keys.bare;
    let place = key_place(circle(&saved.tenant, saved.opening), bare);
    let target = read::target(file, &place)?;
    let Some((row, kind)) = target.and_then(GenerationRow::of_target) else {
        return Ok(false);
    };
    let sql = "SELECT head FROM generations WHERE place = ?1";
    let head = first(file, sql, [row.0], |row| Head::read(blob(row, 0)))?;
    let seen = head
        .flatten()
        .filter(|head| head.keys.get(kind) == Some(bare));
    Ok(seen.is_some_and(|seen| seen.ambiguous || seen.answer != saved.answer as u64))
}

/// Removes a generation and the keys that still point to it; those that went over to another stay.
fn remove(batch: &mut Batch<'_>, stored: &StoredGeneration) -> Result<()> {
    let StoredGeneration { row, head, .. } = stored;
    batch.changes.add_keys(head);
    for (kind, key) in head.keys.iter() {
        execute(
            batch,
            "DELETE FROM keys WHERE place = ?1 AND target = ?2",
            (key_place(head.circle, key), row.target(kind)),
        )?;
    }
    remove_row(batch, *row)
}

fn remove_row(file: &Connection, row: GenerationRow) -> Result<()> {
    execute(file, "DELETE FROM generations WHERE place = ?1", [row.0]).map(drop)
}

fn rules(stored: &StoredGeneration) -> Kept {
    Kept {
        opening: stored.head.circle,
        bare: stored.head.keys.bare,
        bytes: keep::size(stored.state_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::schema;

    #[test]
    fn a_session_is_found_by_its_id_however_many_an_account_has() {
        let file = Connection::open_in_memory().unwrap();
        for table in schema::TABLES {
            file.execute_batch(table).unwrap();
        }
        let mut asked = file
            .prepare(&format!("EXPLAIN QUERY PLAN {KNOWN}"))
            .unwrap();
        let mut rows = asked.query(([0u8; 16], [0u8; 16])).unwrap();
        let plan: String = rows.next().unwrap().unwrap().get("detail").unwrap();
        assert!(plan.contains("USING INDEX sessions_by_id"), "{plan}");
    }
}
