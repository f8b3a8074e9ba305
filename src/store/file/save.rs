//! Writes of sessions, within a transaction of the writer. A refused save writes nothing.

use bytes::Bytes;
use rusqlite::{Connection, Result};

use super::{
    batch::{Batch, WriteResult, WriteTime},
    read::{self, StateHit, StoredGeneration},
    row::{GenerationHead, GenerationOwner, GenerationRow, Stamp, hash_prefix_group, key_place},
    sql::{column_bytes, column_int, execute, query_first},
};
use crate::store::{
    Account, FoundState, SessionId, StateToSave, StoreError,
    retention::{self, RetainedGeneration},
};

/// Saves a state under all its keys, and as its session's newest.
pub(super) fn save_state(
    batch: &mut Batch<'_>,
    saved: &StateToSave,
    WriteTime { used, .. }: WriteTime,
) -> WriteResult {
    let owner = GenerationOwner::from_saved(saved);
    let (session, commands) = match find_owned_session(batch, &owner)? {
        // SECURITY: the end users of one account may know each other's session ids.
        Some((_, None)) => return Ok(Err(StoreError::Foreign)),
        Some((session, Some(commands))) => {
            let sql = "UPDATE sessions SET saved_s = ?2, used = ?3 WHERE number = ?1";
            execute(batch, sql, (session, used.second() as i64, used.0))?;
            (session, commands)
        }
        None => (insert_session(batch, &owner, used)?, Bytes::new()),
    };
    let head = GenerationHead::from_saved(saved, is_ambiguous(batch, saved)?);
    let mut kept = Vec::new();
    for stored in read::list_generations(batch, session)? {
        match stored {
            Ok(stored) if stored.head.keys.exact == saved.keys.exact => {
                remove_generation(batch, &stored)?
            }
            Ok(stored) => kept.push(stored),
            Err(unreadable) => delete_generation_row(batch, unreadable)?,
        }
    }
    let (low, high) = GenerationRow::session_range(session);
    let row = match kept.last() {
        None => low,
        Some(newest) if newest.row == high => {
            // The session has no more numbers, so it starts over with this state.
            for stored in kept.drain(..) {
                remove_generation(batch, &stored)?;
            }
            low
        }
        Some(newest) => GenerationRow(newest.row.0 + 1),
    };
    let sql = "INSERT INTO generations (place, head, state) VALUES (?1, ?2, ?3)";
    let encoded = head.encode_checked(&owner, &saved.state);
    execute(batch, sql, (row.0, encoded, &saved.state[..]))?;
    for (kind, key) in head.keys.iter() {
        let sql = "REPLACE INTO keys (place, target) VALUES (?1, ?2)";
        let place = key_place(head.prefix_group, key);
        execute(batch, sql, (place, row.to_target(kind)))?;
    }
    let found = FoundState {
        at: 0,
        state: saved.state.clone(),
        commands,
    };
    let hit = StateHit {
        found,
        session,
        used_s: used.second(),
    };
    batch.changes.add_saved(saved.tenant, &head, hit);
    kept.push(StoredGeneration {
        row,
        head,
        state_bytes: saved.state.len(),
    });
    while let Some(at) = retention::find_superfluous(&kept, to_retained) {
        remove_generation(batch, &kept.remove(at))?;
    }
    Ok(Ok(true))
}

/// Replaces the commands of a session, without a use of it.
pub(super) fn put_commands(
    batch: &mut Batch<'_>,
    account: Option<&Account>,
    id: SessionId,
    commands: &Bytes,
    WriteTime { horizon, .. }: WriteTime,
) -> WriteResult {
    let Some(session) = read::find_session(batch, account, id, horizon)? else {
        return Ok(Ok(false));
    };
    batch.changes.add_commands();
    let sql = "UPDATE sessions SET orders = ?2 WHERE number = ?1";
    let stored = session.owner.encode_commands(commands);
    Ok(Ok(execute(batch, sql, (session.number, stored))? > 0))
}

/// Updates the last use of a session. Cached states keep the time of their save. That can only be too early, and then
/// a find reads the file.
pub(super) fn touch_session(
    file: &Connection,
    session: i64,
    WriteTime { used, .. }: WriteTime,
) -> WriteResult {
    let sql = "UPDATE sessions SET used = ?2 WHERE number = ?1 AND used < ?2";
    Ok(Ok(execute(file, sql, (session, used.0))? > 0))
}

/// Removes a session with its generations and keys; `false` if there is no such session.
pub(super) fn remove_session(batch: &mut Batch<'_>, session: i64) -> Result<bool> {
    for stored in read::list_generations(batch, session)? {
        match stored {
            Ok(stored) => remove_generation(batch, &stored)?,
            Err(unreadable) => delete_generation_row(batch, unreadable)?,
        }
    }
    let removed = execute(batch, "DELETE FROM sessions WHERE number = ?1", [session])? > 0;
    let sessions = &mut batch.totals.sessions;
    *sessions = sessions.saturating_sub(u64::from(removed));
    Ok(removed)
}

/// A session by its id. The plus prevents a use of the index of accounts: without client keys, all sessions have one
/// account.
const SESSION_BY_ID_SQL: &str =
    "SELECT number, tenant, orders FROM sessions WHERE session = ?1 AND +account = ?2";

/// The number of the owner's session, and its commands if it belongs to the same tenant.
fn find_owned_session(
    file: &Connection,
    owner: &GenerationOwner,
) -> Result<Option<(i64, Option<Bytes>)>> {
    let account = owner.tenant.account();
    let params = (owner.session.as_bytes(), account.as_bytes());
    query_first(file, SESSION_BY_ID_SQL, params, |row| {
        let is_same = column_bytes(row, 1) == owner.tenant.id();
        let commands = || Bytes::copy_from_slice(owner.decode_commands(column_bytes(row, 2)));
        (column_int(row, 0), is_same.then(commands))
    })
}

fn insert_session(batch: &mut Batch<'_>, owner: &GenerationOwner, used: Stamp) -> Result<i64> {
    let number = batch.totals.next_session;
    execute(
        batch,
        "INSERT INTO sessions (number, account, session, tenant, saved_s, used, orders) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, x'')",
        (
            number,
            owner.tenant.account().as_bytes(),
            owner.session.as_bytes(),
            owner.tenant.id(),
            used.second() as i64,
            used.0,
        ),
    )?;
    batch.totals.next_session += 1;
    batch.totals.sessions += 1;
    Ok(number)
}

/// Whether the bare key has seen another answer.
fn is_ambiguous(file: &Connection, saved: &StateToSave) -> Result<bool> {
    let bare = &saved.keys.bare;
    let place = key_place(hash_prefix_group(&saved.tenant, saved.opening), bare);
    let target = read::find_target(file, &place)?;
    let Some((row, kind)) = target.and_then(GenerationRow::from_target) else {
        return Ok(false);
    };
    let sql = "SELECT head FROM generations WHERE place = ?1";
    let head = query_first(file, sql, [row.0], |row| {
        GenerationHead::parse_unchecked(column_bytes(row, 0))
    })?;
    let seen = head.flatten();
    let seen = seen.filter(|head| head.keys.get(kind) == Some(bare));
    Ok(seen.is_some_and(|seen| seen.ambiguous || seen.answer != saved.answer as u64))
}

/// Removes a generation and the keys that still point to it; keys that moved to another generation stay.
fn remove_generation(batch: &mut Batch<'_>, stored: &StoredGeneration) -> Result<()> {
    let StoredGeneration { row, head, .. } = stored;
    batch.changes.add_keys(head);
    for (kind, key) in head.keys.iter() {
        let sql = "DELETE FROM keys WHERE place = ?1 AND target = ?2";
        let place = key_place(head.prefix_group, key);
        execute(batch, sql, (place, row.to_target(kind)))?;
    }
    delete_generation_row(batch, *row)
}

fn delete_generation_row(file: &Connection, row: GenerationRow) -> Result<()> {
    execute(file, "DELETE FROM generations WHERE place = ?1", [row.0]).map(drop)
}

fn to_retained(stored: &StoredGeneration) -> RetainedGeneration {
    RetainedGeneration {
        opening: stored.head.prefix_group,
        bare: stored.head.keys.bare,
        bytes: retention::generation_size(stored.state_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::schema;

    #[test]
    fn a_session_is_found_by_the_index_of_ids() {
        let file = Connection::open_in_memory().unwrap();
        for table in schema::TABLES {
            file.execute_batch(table).unwrap();
        }
        let sql = format!("EXPLAIN QUERY PLAN {SESSION_BY_ID_SQL}");
        let mut statement = file.prepare(&sql).unwrap();
        let mut rows = statement.query(([0u8; 16], [0u8; 16])).unwrap();
        let plan: String = rows.next().unwrap().unwrap().get("detail").unwrap();
        assert!(plan.contains("USING INDEX sessions_by_id"), "{plan}");
    }
}
