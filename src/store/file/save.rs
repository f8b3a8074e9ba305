//! Writes and removals of sessions and shared values, within a transaction of the writer. A refused save writes
//! nothing.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rusqlite::{Connection, Result};

use super::{
    batch::{Batch, WriteResult, used_bytes},
    open,
    read::{self, SessionFilter, StateHit, column_bytes, query_first},
    row::{
        GenerationHead, KeyPlace, LooseHead, NUMBER_BITS, StateOwner, generation_places,
        hash_prefix_group, key_place, seal, stamp, stamp_second,
    },
};
use crate::store::{
    Account, FoundState, LooseKeys, MAX_SHARED, SessionId, StateKey, StateToSave, StoreError,
    limits::StoreLimits,
    retention::{self, RetainedGeneration},
};

/// Writes wait about so long for one step of a removal.
const STEP: Duration = Duration::from_millis(4);

/// A session by its id. The plus prevents a use of the index of accounts: without client keys, all sessions have one
/// account.
const SESSION_BY_ID_SQL: &str =
    "SELECT number, tenant, commands, used FROM sessions WHERE session = ?1 AND +account = ?2";

/// Saves a state under all its keys, and as its session's newest.
pub(super) fn save_state(
    batch: &mut Batch<'_>,
    saved: &StateToSave,
    loose: Option<&LooseKeys>,
) -> WriteResult {
    let owner = StateOwner {
        tenant: saved.tenant,
        session: saved.session,
    };
    let (account, id) = (owner.tenant.account(), owner.session.as_bytes());
    let params = (id, account.as_bytes());
    let known = query_first(batch, SESSION_BY_ID_SQL, params, |row| {
        let commands = read::decode_commands(&owner, column_bytes(row, 2)?);
        Ok((
            row.get(0)?,
            row.get::<_, [u8; 16]>(1)?,
            commands,
            row.get(3)?,
        ))
    })?;
    let (session, commands, used) = match known {
        // SECURITY: the end users of one account may know each other's session ids.
        Some((_, tenant, ..)) if tenant != *owner.tenant.id() => {
            return Ok(Err(StoreError::Foreign));
        }
        Some((session, _, commands, written)) => {
            (session, commands, batch.note_use(session, written)?)
        }
        None => {
            let used = batch.next_use();
            let saved_s = stamp_second(used) as i64;
            let sql = "INSERT INTO sessions (account, session, tenant, saved_s, used, commands) \
                       VALUES (?1, ?2, ?3, ?4, ?5, x'')";
            let tenant = owner.tenant.id();
            batch.change_rows(sql, (account.as_bytes(), id, tenant, saved_s, used))?;
            batch.totals.sessions += 1;
            (batch.last_insert_rowid(), Bytes::new(), used)
        }
    };
    let mut head = GenerationHead::from_saved(saved, is_ambiguous(batch, saved)?);
    if let Some(keys) = loose {
        let is_ambiguous = |place, key: &StateKey| is_loosely_ambiguous(batch, place, key, session);
        head.loose = Some(LooseHead::new(&saved.tenant, *keys, is_ambiguous)?);
    }
    let mut kept = list_generations(batch, session)?;
    if let Some(at) = kept
        .iter()
        .position(|old| old.head.keys.exact == head.keys.exact)
    {
        remove_generation(batch, &kept.remove(at))?;
    }
    let (first, last) = generation_places(session);
    let place = kept
        .last()
        .map_or(first, |newest| last.min(newest.place + 1));
    let sql = "REPLACE INTO generations (place, head, state) VALUES (?1, ?2, ?3)";
    let encoded = head.encode(&owner, &saved.state);
    batch.change_rows(sql, (place, encoded, &saved.state[..]))?;
    let sql = "REPLACE INTO keys (place, generation) VALUES (?1, ?2)";
    for key in head.key_places() {
        batch.change_rows(sql, (key, place))?;
    }
    let hit = StateHit {
        found: FoundState {
            at: 0,
            state: saved.state.clone(),
            commands,
        },
        session,
        used_s: stamp_second(used),
    };
    batch.changes.add_saved(saved.tenant, &head, hit);
    kept.push(StoredGeneration {
        place,
        head,
        state_bytes: saved.state.len(),
    });
    let to_retained = |stored: &StoredGeneration| RetainedGeneration {
        opening: stored.head.prefix_group,
        bare: stored.head.keys.bare,
        bytes: retention::generation_size(stored.state_bytes)
            + stored.head.loose.map_or(0, |_| retention::LOOSE_BYTES),
    };
    while let Some(at) = retention::find_superfluous(&kept, to_retained) {
        remove_generation(batch, &kept.remove(at))?;
    }
    Ok(Ok(true))
}

/// Replaces the commands of a session, without a use of it.
pub(super) fn put_commands(
    batch: &mut Batch<'_>,
    account: Option<Account>,
    id: SessionId,
    commands: &[u8],
) -> WriteResult {
    let filter = SessionFilter {
        account,
        id: Some(id),
        since_s: batch.horizon,
    };
    batch.write_uses()?;
    let Some((session, owner)) = read::find_session(batch, &filter)? else {
        return Ok(Ok(false));
    };
    batch.changes.add_commands();
    let sql = "UPDATE sessions SET commands = ?2 WHERE number = ?1";
    let stored = owner.seal(commands, read::COMMANDS);
    Ok(Ok(batch.change_rows(sql, (session, stored))? > 0))
}

/// Updates the last use of a session. Cached states keep the time of their save. That can only be too early, and then
/// a find reads the file.
pub(super) fn touch_session(batch: &mut Batch<'_>, session: i64) -> WriteResult {
    let used = batch.next_use();
    let sql = "UPDATE sessions SET used = ?2 WHERE number = ?1";
    Ok(Ok(batch.change_rows(sql, (session, used))? > 0))
}

/// Removes some sessions over the limits, least recently used first; returns whether there are more.
pub(super) fn remove_over_limits(batch: &mut Batch<'_>, limits: &StoreLimits) -> Result<bool> {
    let horizon = stamp(batch.horizon);
    let (begun, mut has_written_uses) = (Instant::now(), false);
    while begun.elapsed() < STEP {
        let sql = "SELECT number, used FROM sessions ORDER BY used LIMIT 1";
        let oldest = query_first(batch, sql, [], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?))
        })?;
        let Some((number, used)) = oldest else {
            return Ok(false);
        };
        let is_over = batch.totals.sessions > limits.sessions as u64;
        if used >= horizon && !is_over && used_bytes(batch)? <= limits.bytes as u64 {
            return Ok(false);
        }
        if !has_written_uses {
            // A use that waits may make another session the oldest.
            batch.write_uses()?;
            has_written_uses = true;
            continue;
        }
        // If an index names an absent session, nothing is removed, and this loop would not end.
        if !remove_session(batch, number)? {
            return Err(open::inconsistency_error());
        }
    }
    Ok(true)
}

/// Removes a session with its generations and keys; `false` if there is no such session.
fn remove_session(batch: &mut Batch<'_>, session: i64) -> Result<bool> {
    for stored in list_generations(batch, session)? {
        remove_generation(batch, &stored)?;
    }
    let removed = batch.change_rows("DELETE FROM sessions WHERE number = ?1", [session])?;
    batch.totals.sessions = batch.totals.sessions.saturating_sub(removed as u64);
    Ok(removed > 0)
}

/// Replaces the value of a name; beyond [`MAX_SHARED`] names, the name published longest ago goes.
pub(super) fn put_shared(batch: &mut Batch<'_>, name: &[u8], value: &[u8]) -> WriteResult {
    batch.totals.shared_version += 1;
    let version = batch.totals.shared_version as i64;
    let sql = "REPLACE INTO shared (version, name, value) VALUES (?1, ?2, ?3)";
    batch.change_rows(sql, (version, name, seal(value, &[name])))?;
    let sql = "DELETE FROM shared WHERE version <= \
               (SELECT version FROM shared ORDER BY version DESC LIMIT 1 OFFSET ?1)";
    batch.change_rows(sql, [MAX_SHARED as i64])?;
    Ok(Ok(true))
}

/// A generation without its state.
#[derive(Clone, Copy, Debug)]
struct StoredGeneration {
    place: i64,
    head: GenerationHead,
    state_bytes: usize,
}

/// The generations of a session, oldest first.
fn list_generations(file: &Connection, session: i64) -> Result<Vec<StoredGeneration>> {
    let mut list = file.prepare_cached(
        "SELECT place, head, length(state) FROM generations WHERE place BETWEEN ?1 AND ?2 \
         ORDER BY place LIMIT 1024",
    )?;
    let rows = list.query_map(generation_places(session), |row| {
        Ok(StoredGeneration {
            place: row.get(0)?,
            head: GenerationHead::decode_unchecked(column_bytes(row, 1)?),
            state_bytes: row.get::<_, u32>(2)? as usize,
        })
    })?;
    rows.collect()
}

/// Whether the bare key has seen another answer.
fn is_ambiguous(file: &Connection, saved: &StateToSave) -> Result<bool> {
    let bare = &saved.keys.bare;
    let place = key_place(hash_prefix_group(&saved.tenant, saved.opening), bare);
    let sql = "SELECT g.head FROM keys k CROSS JOIN generations g ON g.place = k.generation \
               WHERE k.place = ?1";
    let seen = query_first(file, sql, [place], |row| {
        let seen = GenerationHead::decode_unchecked(column_bytes(row, 0)?);
        let is_other = seen.ambiguous || seen.answer != saved.answer as u64;
        Ok(seen.has_key(bare) && is_other)
    });
    Ok(seen?.unwrap_or(false))
}

/// Whether another session than this one has saved under a loose key.
fn is_loosely_ambiguous(
    file: &Connection,
    place: KeyPlace,
    key: &StateKey,
    session: i64,
) -> Result<bool> {
    let sql = "SELECT g.head, g.place FROM keys k CROSS JOIN generations g \
               ON g.place = k.generation WHERE k.place = ?1";
    let seen = query_first(file, sql, [place], |row| {
        let seen = GenerationHead::decode_unchecked(column_bytes(row, 0)?);
        let of_other = row.get::<_, i64>(1)? >> NUMBER_BITS != session;
        let known = seen.loose.and_then(|loose| loose.find_key(key));
        Ok(known.is_some_and(|ambiguous| ambiguous || of_other))
    });
    Ok(seen?.unwrap_or(false))
}

/// Removes a generation and the keys that still point to it; keys that moved to another generation stay.
fn remove_generation(batch: &mut Batch<'_>, stored: &StoredGeneration) -> Result<()> {
    let StoredGeneration { place, head, .. } = stored;
    batch.changes.add_keys(head);
    for key in head.key_places() {
        let sql = "DELETE FROM keys WHERE place = ?1 AND generation = ?2";
        batch.change_rows(sql, (key, place))?;
    }
    let sql = "DELETE FROM generations WHERE place = ?1";
    batch.change_rows(sql, [place]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::open;

    #[test]
    fn a_session_is_found_by_the_index_of_ids() {
        let file = Connection::open_in_memory().unwrap();
        file.execute_batch(open::TABLES).unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {SESSION_BY_ID_SQL}");
        let mut statement = file.prepare(&sql).unwrap();
        let mut rows = statement.query(([0u8; 16], [0u8; 16])).unwrap();
        let plan: String = rows.next().unwrap().unwrap().get("detail").unwrap();
        assert!(plan.contains("USING INDEX sessions_by_id"), "{plan}");
    }
}
