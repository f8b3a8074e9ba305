//! Reads from the file, each in one snapshot of it.

use bytes::Bytes;
use rusqlite::{Connection, Result};

use super::{
    row::{GenerationHead, GenerationOwner, GenerationRow, KeyPlace, Stamp, key_place},
    sql::{Transaction, column_bytes, column_int, query_all, query_first, query_first_prepared},
};
use crate::store::{
    Account, FoundState, Page, SessionId, SessionRow, StateKey, Tenant, key::KeyKind,
};

/// Sessions checked when the file is opened, of the newest and of the oldest.
const SAMPLE: usize = 8;

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
    let snapshot = Transaction::begin(file)?;
    let mut targets = snapshot.prepare_cached(TARGET_SQL)?;
    for (at, key) in keys.iter().enumerate() {
        let place = key_place(prefix_group, key);
        let Some(target) = query_first_prepared(&mut targets, [place], |row| column_int(row, 0))?
        else {
            // An unknown conversation has hundreds of keys, and its prefix group is nearly always absent.
            if at == 0 && !has_prefix_group(&snapshot, prefix_group)? {
                return Ok(None);
            }
            absent.push(place);
            continue;
        };
        let Some((generation, kind)) = GenerationRow::from_target(target) else {
            continue;
        };
        if let Some((head, mut hit)) = read_hit(&snapshot, tenant, generation)?
            && head.keys.get(kind) == Some(key)
            && !(kind == KeyKind::Bare && head.ambiguous)
            && hit.used_s >= horizon
        {
            hit.found.at = at;
            return Ok(Some(hit));
        }
    }
    Ok(None)
}

const TARGET_SQL: &str = "SELECT target FROM keys WHERE place = ?1";

pub(super) fn find_target(file: &Connection, place: &KeyPlace) -> Result<Option<i64>> {
    query_first(file, TARGET_SQL, [place], |row| column_int(row, 0))
}

fn has_prefix_group(file: &Connection, prefix_group: u64) -> Result<bool> {
    let place = |byte| key_place(prefix_group, &StateKey::from_bytes([byte; 16]));
    let (low, high) = (place(0), place(0xff));
    let sql = "SELECT 1 FROM keys WHERE place BETWEEN ?1 AND ?2 LIMIT 1";
    Ok(query_first(file, sql, (low, high), |_| ())?.is_some())
}

/// A generation, if it belongs to this tenant and its checksum fits.
fn read_hit(
    file: &Connection,
    tenant: &Tenant,
    generation: GenerationRow,
) -> Result<Option<(GenerationHead, StateHit)>> {
    let hit = query_first(
        file,
        "SELECT g.head, g.state, s.account, s.tenant, s.session, s.used, s.orders \
         FROM generations g, sessions s WHERE g.place = ?1 AND s.number = ?2",
        [generation.0, generation.session_number()],
        |row| {
            let owner = GenerationOwner::from_columns(row, 2);
            // SECURITY: the whole tenant is compared, and the checksum covers it too.
            let owner = owner.filter(|owner| owner.tenant == *tenant)?;
            let state = column_bytes(row, 1);
            let head = GenerationHead::parse_checked(column_bytes(row, 0), &owner, state)?;
            let found = FoundState {
                at: 0,
                state: Bytes::copy_from_slice(state),
                commands: Bytes::copy_from_slice(owner.decode_commands(column_bytes(row, 6))),
            };
            let hit = StateHit {
                found,
                session: generation.session_number(),
                used_s: Stamp(column_int(row, 5)).second(),
            };
            Some((head, hit))
        },
    )?;
    Ok(hit.flatten())
}

/// A session without its states.
pub(super) struct StoredSession {
    pub(super) number: i64,
    pub(super) owner: GenerationOwner,
    saved_s: u64,
    commands: Bytes,
}

const SESSION_COLUMNS: &str = "number, account, tenant, session, saved_s, orders";

impl StoredSession {
    fn from_row(row: &rusqlite::Row<'_>) -> Option<Self> {
        let owner = GenerationOwner::from_columns(row, 1)?;
        Some(Self {
            number: column_int(row, 0),
            saved_s: column_int(row, 4).unsigned_abs(),
            commands: Bytes::copy_from_slice(owner.decode_commands(column_bytes(row, 5))),
            owner,
        })
    }

    /// Adds the newest state; `None` if its checksum does not fit.
    fn into_row(self, file: &Connection) -> Result<Option<SessionRow>> {
        let (low, high) = GenerationRow::session_range(self.number);
        let state = query_first(
            file,
            "SELECT head, state FROM generations WHERE place BETWEEN ?1 AND ?2 \
             ORDER BY place DESC LIMIT 1",
            [low.0, high.0],
            |row| {
                let state = column_bytes(row, 1);
                GenerationHead::parse_checked(column_bytes(row, 0), &self.owner, state)?;
                Some(Bytes::copy_from_slice(state))
            },
        )?;
        Ok(state.flatten().map(|state| SessionRow {
            tenant: self.owner.tenant,
            session: self.owner.session,
            saved_s: self.saved_s,
            state,
            commands: self.commands,
        }))
    }
}

/// The session of one account, or of any, unless it has expired.
pub(super) fn find_session(
    file: &Connection,
    account: Option<&Account>,
    id: SessionId,
    horizon: u64,
) -> Result<Option<StoredSession>> {
    let sql = format!(
        "SELECT {SESSION_COLUMNS} FROM sessions WHERE session = ?1 AND used >= ?2 \
         AND (?3 IS NULL OR account = ?3) ORDER BY used DESC LIMIT 1"
    );
    let (account, since) = (
        account.map(Account::as_bytes),
        Stamp::from_second(horizon).0,
    );
    let params = (id.as_bytes(), since, account);
    let session = query_first(file, &sql, params, StoredSession::from_row)?.flatten();
    Ok(session.filter(|session| session.owner.session == id))
}

pub(super) fn load_session(
    file: &Connection,
    account: Option<&Account>,
    id: SessionId,
    horizon: u64,
) -> Result<Option<SessionRow>> {
    let snapshot = Transaction::begin(file)?;
    let session = find_session(&snapshot, account, id, horizon)?;
    session.map_or(Ok(None), |session| session.into_row(&snapshot))
}

pub(super) fn list_sessions(
    file: &Connection,
    account: Option<&Account>,
    page: Page,
    horizon: u64,
) -> Result<Vec<SessionRow>> {
    let snapshot = Transaction::begin(file)?;
    let condition = used_since(account);
    let sql = format!(
        "SELECT {SESSION_COLUMNS} FROM sessions WHERE {condition} \
         ORDER BY used DESC LIMIT ?3 OFFSET ?4"
    );
    let (account, since) = (
        account.map(Account::as_bytes),
        Stamp::from_second(horizon).0,
    );
    let params = (
        account,
        since,
        page.take.min(Page::MAX_TAKE) as i64,
        page.skip as i64,
    );
    let sessions = query_all(&snapshot, &sql, params, StoredSession::from_row)?;
    let sessions = sessions.into_iter().flatten();
    let rows = sessions.map(|session| session.into_row(&snapshot));
    rows.filter_map(Result::transpose).collect()
}

/// Counts sessions that have not expired, by an index alone.
pub(super) fn count_sessions(
    file: &Connection,
    account: Option<&Account>,
    horizon: u64,
) -> Result<u64> {
    let sql = format!(
        "SELECT count(*) FROM sessions WHERE {}",
        used_since(account)
    );
    let params = (
        account.map(Account::as_bytes),
        Stamp::from_second(horizon).0,
    );
    let count = query_first(file, &sql, params, |row| column_int(row, 0).unsigned_abs())?;
    Ok(count.unwrap_or(0))
}

/// The condition for sessions of the account `?1`, or of all, used since `?2`. Each form has an index.
const fn used_since(account: Option<&Account>) -> &'static str {
    match account {
        Some(_) => "account = ?1 AND used >= ?2",
        None => "?1 IS NULL AND used >= ?2",
    }
}

/// Reads a few sessions to find damage.
pub(super) fn check_sample(file: &Connection) -> Result<()> {
    for order in ["DESC", "ASC"] {
        let sql = format!("SELECT number FROM sessions ORDER BY used {order} LIMIT {SAMPLE}");
        for number in query_all(file, &sql, [], |row| column_int(row, 0))? {
            for StoredGeneration { head, .. } in list_generations(file, number)?.iter().flatten() {
                for (_, key) in head.keys.iter() {
                    find_target(file, &key_place(head.prefix_group, key))?;
                }
            }
        }
    }
    Ok(())
}

/// A generation without its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredGeneration {
    pub(super) row: GenerationRow,
    pub(super) head: GenerationHead,
    pub(super) state_bytes: usize,
}

/// The generations of a session, oldest first; for an unreadable one its row alone.
pub(super) fn list_generations(
    file: &Connection,
    session: i64,
) -> Result<Vec<std::result::Result<StoredGeneration, GenerationRow>>> {
    let (low, high) = GenerationRow::session_range(session);
    query_all(
        file,
        "SELECT place, head, length(state) FROM generations WHERE place BETWEEN ?1 AND ?2 \
         ORDER BY place LIMIT 1024",
        [low.0, high.0],
        |row| {
            let generation = GenerationRow(column_int(row, 0));
            Ok(StoredGeneration {
                row: generation,
                head: GenerationHead::parse_unchecked(column_bytes(row, 1)).ok_or(generation)?,
                state_bytes: column_int(row, 2).unsigned_abs() as usize,
            })
        },
    )
}
