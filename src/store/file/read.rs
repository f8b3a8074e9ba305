//! Reads from the file, each in one snapshot of it.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Params, Result, Row};

use super::row::{
    GenerationHead, KeyPlace, NUMBER_BITS, StateOwner, key_place, stamp, stamp_second, unseal,
};
use crate::store::{Account, FoundState, Page, SessionId, SessionRow, StateKey, Tenant};

/// A found state with its session's number and last use.
#[derive(Clone, Debug)]
pub(super) struct StateHit {
    pub(super) found: FoundState,
    pub(super) session: i64,
    pub(super) used_s: u64,
}

/// The first of `keys` that is present. Keys that the file does not have are added to `absent`, unless the file has
/// no key of the prefix group.
pub(super) fn find_state(
    file: &Connection,
    tenant: &Tenant,
    prefix_group: u64,
    keys: &[StateKey],
    horizon: u64,
    absent: &mut Vec<KeyPlace>,
) -> Result<Option<StateHit>> {
    let snapshot = file.unchecked_transaction()?;
    let mut find = snapshot.prepare_cached(&format!(
        "SELECT s.account, s.tenant, s.session, s.number, s.used, s.commands, g.head, g.state \
         FROM keys k CROSS JOIN generations g ON g.place = k.generation \
         CROSS JOIN sessions s ON s.number = g.place >> {NUMBER_BITS} WHERE k.place = ?1"
    ))?;
    for (at, key) in keys.iter().enumerate() {
        let place = key_place(prefix_group, key);
        let found = find
            .query_row([place], |row| read_hit(row, tenant, at, key))
            .optional()?;
        match found {
            Some(Some(hit)) if hit.used_s >= horizon => return Ok(Some(hit)),
            Some(_) => {}
            // An unknown conversation has hundreds of keys, and its prefix group is nearly always absent.
            None if at == 0 && !has_prefix_group(&snapshot, prefix_group)? => return Ok(None),
            None => absent.push(place),
        }
    }
    Ok(None)
}

fn has_prefix_group(file: &Connection, prefix_group: u64) -> Result<bool> {
    let place = |byte| key_place(prefix_group, &StateKey::from_bytes([byte; 16]));
    let sql = "SELECT 1 FROM keys WHERE place BETWEEN ?1 AND ?2 LIMIT 1";
    Ok(query_first(file, sql, (place(0), place(0xff)), |_| Ok(()))?.is_some())
}

/// The state of a key, if it belongs to this tenant and its checksum fits.
fn read_hit(row: &Row<'_>, tenant: &Tenant, at: usize, key: &StateKey) -> Result<Option<StateHit>> {
    let owner = StateOwner::from_row(row)?;
    // SECURITY: the whole tenant and the whole key are compared, and the checksum covers them too.
    if owner.tenant != *tenant {
        return Ok(None);
    }
    let state = column_bytes(row, 7)?;
    let head = GenerationHead::decode(column_bytes(row, 6)?, &owner, state);
    if !head.is_some_and(|head| head.answers_key(key)) {
        return Ok(None);
    }
    Ok(Some(StateHit {
        found: FoundState {
            at,
            state: Bytes::copy_from_slice(state),
            commands: decode_commands(&owner, column_bytes(row, 5)?),
        },
        session: row.get(3)?,
        used_s: stamp_second(row.get(4)?),
    }))
}

pub(super) fn query_first<T>(
    file: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T>,
) -> Result<Option<T>> {
    file.prepare_cached(sql)?.query_row(params, read).optional()
}

pub(super) fn column_bytes<'r>(row: &'r Row<'_>, at: usize) -> Result<&'r [u8]> {
    Ok(row.get_ref(at)?.as_blob()?)
}

/// What distinguishes the checksum of commands.
pub(super) const COMMANDS: &[u8] = b"commands";

/// Commands whose checksum does not fit are dropped.
pub(super) fn decode_commands(owner: &StateOwner, stored: &[u8]) -> Bytes {
    Bytes::copy_from_slice(owner.unseal(stored, COMMANDS).unwrap_or_default())
}

/// Which sessions are meant: those of an account or of all, the one with an id or each, used since a second.
pub(super) struct SessionFilter {
    pub(super) account: Option<Account>,
    pub(super) id: Option<SessionId>,
    pub(super) since_s: u64,
}

impl SessionFilter {
    /// The condition, over the parameters of [`Self::params`]. Each form has an index.
    const fn condition(&self) -> &'static str {
        match (self.account, self.id) {
            (_, Some(_)) => "(?1 IS NULL OR account = ?1) AND used >= ?2 AND session = ?3",
            (Some(_), None) => "account = ?1 AND used >= ?2 AND ?3 IS NULL",
            (None, None) => "?1 IS NULL AND used >= ?2 AND ?3 IS NULL",
        }
    }

    fn params(&self) -> (Option<&[u8; 16]>, i64, Option<&[u8; 16]>) {
        let account = self.account.as_ref().map(Account::as_bytes);
        let id = self.id.as_ref().map(SessionId::as_bytes);
        (account, stamp(self.since_s), id)
    }
}

/// The newest states of sessions, last used first. Those whose checksum does not fit are left out.
pub(super) fn list_sessions(
    file: &Connection,
    filter: &SessionFilter,
    page: Page,
) -> Result<Vec<SessionRow>> {
    let sql = format!(
        "SELECT s.account, s.tenant, s.session, s.saved_s, s.commands, g.head, g.state \
         FROM (SELECT * FROM sessions WHERE {} ORDER BY used DESC LIMIT ?4 OFFSET ?5) s \
         CROSS JOIN generations g ON g.place = (SELECT max(place) FROM generations \
         WHERE place BETWEEN s.number << {NUMBER_BITS} AND (s.number + 1 << {NUMBER_BITS}) - 1) \
         ORDER BY s.used DESC",
        filter.condition()
    );
    let (account, since, id) = filter.params();
    let take = page.take.min(Page::MAX_TAKE) as i64;
    let mut list = file.prepare_cached(&sql)?;
    let rows = list.query_map((account, since, id, take, page.skip as i64), |row| {
        let owner = StateOwner::from_row(row)?;
        let state = column_bytes(row, 6)?;
        if GenerationHead::decode(column_bytes(row, 5)?, &owner, state).is_none() {
            return Ok(None);
        }
        Ok(Some(SessionRow {
            tenant: owner.tenant,
            session: owner.session,
            saved_s: row.get::<_, i64>(3)?.unsigned_abs(),
            state: Bytes::copy_from_slice(state),
            commands: decode_commands(&owner, column_bytes(row, 4)?),
        }))
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// Counts sessions by an index alone.
pub(super) fn count_sessions(file: &Connection, filter: &SessionFilter) -> Result<u64> {
    let sql = format!("SELECT count(*) FROM sessions WHERE {}", filter.condition());
    let mut count = file.prepare_cached(&sql)?;
    count.query_row(filter.params(), |row| {
        Ok(row.get::<_, i64>(0)?.unsigned_abs())
    })
}

/// The number and the owner of the session used last.
pub(super) fn find_session(
    file: &Connection,
    filter: &SessionFilter,
) -> Result<Option<(i64, StateOwner)>> {
    let sql = format!(
        "SELECT account, tenant, session, number FROM sessions WHERE {} ORDER BY used DESC LIMIT 1",
        filter.condition()
    );
    let session = |row: &Row<'_>| Ok((row.get(3)?, StateOwner::from_row(row)?));
    query_first(file, &sql, filter.params(), session)
}

/// All names and values of shared values whose checksums fit.
pub(super) fn list_shared(file: &Connection) -> Result<Vec<(Bytes, Bytes)>> {
    let mut list = file.prepare_cached("SELECT name, value FROM shared")?;
    let rows = list.query_map([], |row| {
        let name = column_bytes(row, 0)?;
        let value = unseal(column_bytes(row, 1)?, &[name]);
        Ok(value.map(|value| (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value))))
    })?;
    rows.filter_map(Result::transpose).collect()
}
