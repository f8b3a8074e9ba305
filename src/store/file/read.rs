//! What is read of the file, each in one view of it.

use bytes::Bytes;
use rusqlite::{Connection, Result};

use super::{
    row::{GenerationHead, GenerationOwner, GenerationRow, KeyPlace, Stamp, key_place},
    sql::{Transaction, column_bytes, column_int, query_all, query_first, query_first_prepared},
};
use crate::store::{
    Account, FoundState, Page, SessionId, SessionRow, StateKey, Tenant, key::KeyKind,
};

/// Sessions that are looked at when the file is opened, of the newest and of the oldest.
const SAMPLE: usize = 8;

/// A state that was found, and its session's number and last use.
#[derive(Clone, Debug)]
pub(super) struct StateHit {
    pub(super) found: FoundState,
    pub(super) session: i64,
    pub(super) used_s: u64,
}

/// The first of `keys` that is there. Those that the file does not have are added to `absent`, unless it has
/// none of the circle.
pub(super) fn find_state(
    file: &Connection,
    tenant: &Tenant,
    circle: u64,
    keys: &[StateKey],
    horizon: u64,
    absent: &mut Vec<KeyPlace>,
) -> Result<Option<StateHit>> {
    let view = Transaction::begin(file)?;
    let mut targets = view.prepare_cached(TARGET_SQL)?;
    for (at, key) in keys.iter().enumerate() {
        let place = key_place(circle, key);
        let Some(target) = query_first_prepared(&mut targets, [place], |row| column_int(row, 0))?
        else {
            // A conversation that the file does not know has hundreds of keys, and nearly always a circle
            // of its own.
            if at == 0 && !has_prefix_group(&view, circle)? {
                return Ok(None);
            }
            absent.push(place);
            continue;
        };
        let Some((generation, kind)) = GenerationRow::from_target(target) else {
            continue;
        };
        if let Some((head, mut hit)) = read_hit(&view, tenant, generation)?
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

/// What a key's row points to.
pub(super) fn find_target(file: &Connection, place: &KeyPlace) -> Result<Option<i64>> {
    query_first(file, TARGET_SQL, [place], |row| column_int(row, 0))
}

/// Whether the file has any key of a circle: they lie side by side.
fn has_prefix_group(file: &Connection, circle: u64) -> Result<bool> {
    let [low, high] = [0, 0xff].map(|byte| key_place(circle, &StateKey::from_bytes([byte; 16])));
    let sql = "SELECT 1 FROM keys WHERE place BETWEEN ?1 AND ?2 LIMIT 1";
    Ok(query_first(file, sql, (low, high), |_| ())?.is_some())
}

/// A generation, if it is this tenant's and sound.
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
            let owner = GenerationOwner::from_columns(
                column_bytes(row, 2),
                column_bytes(row, 3),
                column_bytes(row, 4),
            );
            // SECURITY: the whole tenant is compared, and the checksum holds it as well.
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
    orders: Bytes,
}

const SESSION_COLUMNS: &str = "number, account, tenant, session, saved_s, orders";

impl StoredSession {
    fn from_row(row: &rusqlite::Row<'_>) -> Option<Self> {
        let owner = GenerationOwner::from_columns(
            column_bytes(row, 1),
            column_bytes(row, 2),
            column_bytes(row, 3),
        )?;
        Some(Self {
            number: column_int(row, 0),
            saved_s: column_int(row, 4).unsigned_abs(),
            orders: Bytes::copy_from_slice(owner.decode_commands(column_bytes(row, 5))),
            owner,
        })
    }

    /// With its newest state; `None` where that cannot be read.
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
            commands: self.orders,
        }))
    }
}

/// The session of that account, or of any, unless it has expired.
pub(super) fn find_session(
    file: &Connection,
    account: Option<&Account>,
    id: SessionId,
    horizon: u64,
) -> Result<Option<StoredSession>> {
    let named = query_first(
        file,
        &format!(
            "SELECT {SESSION_COLUMNS} FROM sessions WHERE session = ?1 AND used >= ?2 \
             AND (?3 IS NULL OR account = ?3) ORDER BY used DESC LIMIT 1"
        ),
        (
            id.as_bytes(),
            Stamp::from_second(horizon).0,
            account.map(Account::as_bytes),
        ),
        StoredSession::from_row,
    )?;
    Ok(named.flatten().filter(|named| named.owner.session == id))
}

pub(super) fn load_session(
    file: &Connection,
    account: Option<&Account>,
    id: SessionId,
    horizon: u64,
) -> Result<Option<SessionRow>> {
    let view = Transaction::begin(file)?;
    let named = find_session(&view, account, id, horizon)?;
    named.map_or(Ok(None), |named| named.into_row(&view))
}

pub(super) fn list_sessions(
    file: &Connection,
    account: Option<&Account>,
    page: Page,
    horizon: u64,
) -> Result<Vec<SessionRow>> {
    let view = Transaction::begin(file)?;
    let named = query_all(
        &view,
        &format!(
            "SELECT {SESSION_COLUMNS} FROM sessions WHERE {} ORDER BY used DESC LIMIT ?3 OFFSET ?4",
            used_since(account)
        ),
        (
            account.map(Account::as_bytes),
            Stamp::from_second(horizon).0,
            page.take.min(Page::MAX_TAKE) as i64,
            page.skip as i64,
        ),
        StoredSession::from_row,
    )?;
    let rows = named
        .into_iter()
        .flatten()
        .map(|named| named.into_row(&view));
    rows.filter_map(Result::transpose).collect()
}

/// Sessions that have not expired; an index holds all that is read for it.
pub(super) fn count_sessions(
    file: &Connection,
    account: Option<&Account>,
    horizon: u64,
) -> Result<u64> {
    let counted = query_first(
        file,
        &format!(
            "SELECT count(*) FROM sessions WHERE {}",
            used_since(account)
        ),
        (
            account.map(Account::as_bytes),
            Stamp::from_second(horizon).0,
        ),
        |row| column_int(row, 0).unsigned_abs(),
    )?;
    Ok(counted.unwrap_or(0))
}

/// Sessions of the account `?1`, or of all, which were used since `?2`: for each an index is used.
const fn used_since(account: Option<&Account>) -> &'static str {
    match account {
        Some(_) => "account = ?1 AND used >= ?2",
        None => "?1 IS NULL AND used >= ?2",
    }
}

/// Reads a few sessions, only to see whether they can be read.
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

/// The generations of a session, oldest first; of one that cannot be read, its row alone.
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
