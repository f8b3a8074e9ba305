//! What is written of sessions. All of it within a transaction of the writer's, and what is refused
//! is refused before anything was written for it.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, Result};

use super::{
    read::{self, Line},
    recent::{Change, Changes, Generation},
    row::{Head, Owner, Place, Stamp, blob, int, key_place},
    schema,
};
use crate::store::{
    Account, Saved, SessionId, StoreError,
    keep::{self, Kept},
};

/// What is counted as it changes, so that nothing has to be counted again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) sessions: u64,
    /// No session that is there, or was while this process ran, has this number or one above.
    next: i64,
}

impl Counts {
    /// Reads them from the file.
    pub(super) fn load(file: &Connection) -> Result<Self> {
        let sessions = match schema::read_meta(file, "sessions")? {
            Some(sessions) => sessions,
            None => Self::sessions(file)?,
        };
        let next = Self::next(file)?;
        Ok(Self { sessions, next })
    }

    /// Counts them again: somebody else changed the file.
    pub(super) fn anew(self, file: &Connection) -> Result<Self> {
        Ok(Self {
            sessions: Self::sessions(file)?,
            next: self.next.max(Self::next(file)?),
        })
    }

    fn sessions(file: &Connection) -> Result<u64> {
        file.query_row("SELECT count(*) FROM sessions", [], |row| {
            row.get::<_, i64>(0).map(i64::unsigned_abs)
        })
    }

    fn next(file: &Connection) -> Result<i64> {
        let newest = file.query_row("SELECT max(number) FROM sessions", [], |row| {
            row.get::<_, Option<i64>>(0)
        })?;
        Ok(newest.unwrap_or(0).saturating_add(1))
    }

    pub(super) fn store(self, file: &Connection) -> Result<()> {
        schema::write_meta(file, "sessions", self.sessions)
    }
}

/// Files a state under all its keys, and as its session's newest.
pub(super) fn save(
    file: &Connection,
    counts: &mut Counts,
    changes: &mut Changes,
    saved: &Saved,
    used: Stamp,
) -> Result<std::result::Result<(), StoreError>> {
    let owner = Owner::of(saved);
    let (number, orders) = match known(file, &owner)? {
        // SECURITY: the end users of one account may know each other's session ids.
        Some((_, None)) => return Ok(Err(StoreError::Foreign)),
        Some((number, Some((orders, before)))) => {
            if before.second() > used.second() {
                // The clock went back: all of the session is older now.
                changes.push(Change::Used(number, used.second()));
            }
            let mut used_now = file
                .prepare_cached("UPDATE sessions SET saved_s = ?2, used = ?3 WHERE number = ?1")?;
            used_now.execute((number, used.second() as i64, used.0))?;
            (number, orders)
        }
        None => (begin(file, counts, &owner, used)?, Bytes::new()),
    };
    let mut kept = Vec::new();
    for (line, head) in read::heads(file, number)? {
        match head {
            Some(head) => kept.push((line, head)),
            None => remove_unread(file, changes, line.place)?,
        }
    }
    let head = Head::of(saved, ambiguous(file, saved)?);
    let (first, last) = Place::of(number);
    let place = match kept.last() {
        None => first,
        Some((line, _)) if line.place == last => {
            // No more numbers: the session begins with this state again.
            for (line, head) in kept.drain(..) {
                remove(file, changes, line.place, head)?;
            }
            first
        }
        Some((line, _)) => Place(line.place.0 + 1),
    };
    let same = |(_, head): &(Line, Head)| head.keys.exact == saved.keys.exact;
    if let Some(at) = kept.iter().position(same) {
        let (line, head) = kept.remove(at);
        remove(file, changes, line.place, head)?;
    }
    let mut added =
        file.prepare_cached("INSERT INTO generations (place, head, state) VALUES (?1, ?2, ?3)")?;
    added.execute((place.0, head.sealed(&owner, &saved.state), &saved.state[..]))?;
    for (kind, key) in head.keys.iter() {
        let mut pointed =
            file.prepare_cached("REPLACE INTO keys (place, target) VALUES (?1, ?2)")?;
        pointed.execute((key_place(head.circle, key), place.target(kind)))?;
    }
    let generation = Generation {
        tenant: saved.tenant,
        head,
        state: saved.state.clone(),
        orders,
        used_s: used.second(),
    };
    changes.push(Change::Saved(place, Arc::new(generation)));
    let state = saved.state.len();
    kept.push((Line { place, state }, head));
    while let Some(at) = keep::superfluous(&kept, rules) {
        let (line, head) = kept.remove(at);
        remove(file, changes, line.place, head)?;
    }
    Ok(Ok(()))
}

/// Replaces the orders of a session, without using it. Returns whether it is there.
pub(super) fn order(
    file: &Connection,
    changes: &mut Changes,
    account: Option<&Account>,
    id: SessionId,
    orders: &Bytes,
    horizon: u64,
) -> Result<bool> {
    let Some(named) = read::named(file, account, id, horizon)? else {
        return Ok(false);
    };
    let mut ordered = file.prepare_cached("UPDATE sessions SET orders = ?2 WHERE number = ?1")?;
    changes.push(Change::Ordered(named.number, orders.clone()));
    Ok(ordered.execute((named.number, named.owner.sealed(orders)))? > 0)
}

/// Makes a session young.
pub(super) fn touch(
    file: &Connection,
    changes: &mut Changes,
    number: i64,
    used: Stamp,
) -> Result<()> {
    let mut touched =
        file.prepare_cached("UPDATE sessions SET used = ?2 WHERE number = ?1 AND used < ?2")?;
    if touched.execute((number, used.0))? > 0 {
        changes.push(Change::Used(number, used.second()));
    }
    Ok(())
}

/// Removes a session with all that belongs to it; returns whether it was there.
pub(super) fn remove_session(
    file: &Connection,
    counts: &mut Counts,
    changes: &mut Changes,
    number: i64,
) -> Result<bool> {
    for (line, head) in read::heads(file, number)? {
        match head {
            Some(head) => remove(file, changes, line.place, head)?,
            None => remove_unread(file, changes, line.place)?,
        }
    }
    let mut removed = file.prepare_cached("DELETE FROM sessions WHERE number = ?1")?;
    let there = removed.execute([number])? > 0;
    if there {
        counts.sessions = counts.sessions.saturating_sub(1);
    }
    Ok(there)
}

/// A session by its id. The plus keeps the index of accounts out of it: whoever has no keys has one account
/// for all sessions.
const KNOWN: &str =
    "SELECT number, tenant, orders, used FROM sessions WHERE session = ?1 AND +account = ?2";

/// The orders of a session, and when it was used.
type Before = (Bytes, Stamp);

/// The number of the session saved to, and what is there of it if it is the tenant's own.
fn known(file: &Connection, owner: &Owner) -> Result<Option<(i64, Option<Before>)>> {
    let mut asked = file.prepare_cached(KNOWN)?;
    let account = owner.tenant.account();
    let mut rows = asked.query((owner.session.bytes(), account.bytes()))?;
    let named = rows.next()?;
    Ok(named.map(|row| {
        let own = blob(row, 1) == owner.tenant.id();
        let orders = || Bytes::copy_from_slice(owner.opened(blob(row, 2)));
        let more = || (orders(), Stamp(int(row, 3)));
        (int(row, 0), own.then(more))
    }))
}

fn begin(file: &Connection, counts: &mut Counts, owner: &Owner, used: Stamp) -> Result<i64> {
    let number = counts.next;
    let mut begun = file.prepare_cached(
        "INSERT INTO sessions (number, account, session, tenant, saved_s, used, orders) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, x'')",
    )?;
    begun.execute((
        number,
        owner.tenant.account().bytes(),
        owner.session.bytes(),
        owner.tenant.id(),
        used.second() as i64,
        used.0,
    ))?;
    counts.next += 1;
    counts.sessions += 1;
    Ok(number)
}

/// Whether the bare key has seen another answer than this one.
fn ambiguous(file: &Connection, saved: &Saved) -> Result<bool> {
    let bare = &saved.keys.bare;
    let place = key_place(super::row::circle(&saved.tenant, saved.opening), bare);
    let target = read::target(file, &place)?;
    let Some((place, kind)) = target.and_then(Place::of_target) else {
        return Ok(false);
    };
    let mut asked = file.prepare_cached("SELECT head FROM generations WHERE place = ?1")?;
    let mut rows = asked.query([place.0])?;
    let head = rows.next()?.and_then(|row| Head::read(blob(row, 0)));
    let seen = head.filter(|head| head.keys.get(kind) == Some(bare));
    Ok(seen.is_some_and(|seen| seen.ambiguous || seen.answer != saved.answer as u64))
}

/// Removes a generation and the keys that still point to it; those that went over to another stay.
fn remove(file: &Connection, changes: &mut Changes, place: Place, head: Head) -> Result<()> {
    changes.push(Change::Gone(place, head));
    for (kind, key) in head.keys.iter() {
        let mut unpointed =
            file.prepare_cached("DELETE FROM keys WHERE place = ?1 AND target = ?2")?;
        unpointed.execute((key_place(head.circle, key), place.target(kind)))?;
    }
    remove_row(file, place)
}

/// Removes what cannot be read.
fn remove_unread(file: &Connection, changes: &mut Changes, place: Place) -> Result<()> {
    changes.push(Change::Unreadable);
    remove_row(file, place)
}

fn remove_row(file: &Connection, place: Place) -> Result<()> {
    let mut removed = file.prepare_cached("DELETE FROM generations WHERE place = ?1")?;
    removed.execute([place.0]).map(drop)
}

fn rules((line, head): &(Line, Head)) -> Kept {
    Kept {
        opening: head.circle,
        bare: head.keys.bare,
        bytes: keep::size(line.state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
