//! What is read of the file, each in one view of it.

use bytes::Bytes;
use rusqlite::{Connection, Result};

use super::{
    row::{GenerationRow, Head, KeyPlace, Owner, Stamp, key_place},
    sql::{Transaction, all, blob, first, first_of, int},
};
use crate::store::{Account, Found, Key, Page, Row, SessionId, Tenant, key::KeyKind};

/// Sessions that are looked at when the file is opened, of the newest and of the oldest.
const SAMPLE: usize = 8;

/// A state that was found, and its session's number and last use.
#[derive(Clone, Debug)]
pub(super) struct Hit {
    pub(super) found: Found,
    pub(super) session: i64,
    pub(super) used_s: u64,
}

/// The first of `keys` that is there. Those that the file does not have are added to `absent`, unless it has
/// none of the circle.
pub(super) fn find(
    file: &Connection,
    tenant: &Tenant,
    circle: u64,
    keys: &[Key],
    horizon: u64,
    absent: &mut Vec<KeyPlace>,
) -> Result<Option<Hit>> {
    let view = Transaction::begin(file)?;
    let mut targets = view.prepare_cached(TARGET)?;
    for (at, key) in keys.iter().enumerate() {
        let place = key_place(circle, key);
        let Some(target) = first_of(&mut targets, [place], |row| int(row, 0))? else {
            // A conversation that the file does not know has hundreds of keys, and nearly always a circle
            // of its own.
            if at == 0 && !has_keys(&view, circle)? {
                return Ok(None);
            }
            absent.push(place);
            continue;
        };
        let Some((generation, kind)) = GenerationRow::of_target(target) else {
            continue;
        };
        if let Some((head, mut hit)) = hit(&view, tenant, generation)?
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

const TARGET: &str = "SELECT target FROM keys WHERE place = ?1";

/// What a key's row points to.
pub(super) fn target(file: &Connection, place: &KeyPlace) -> Result<Option<i64>> {
    first(file, TARGET, [place], |row| int(row, 0))
}

/// Whether the file has any key of a circle: they lie side by side.
fn has_keys(file: &Connection, circle: u64) -> Result<bool> {
    let [low, high] = [0, 0xff].map(|byte| key_place(circle, &Key::from_bytes([byte; 16])));
    let sql = "SELECT 1 FROM keys WHERE place BETWEEN ?1 AND ?2 LIMIT 1";
    Ok(first(file, sql, (low, high), |_| ())?.is_some())
}

/// A generation, if it is this tenant's and sound.
fn hit(
    file: &Connection,
    tenant: &Tenant,
    generation: GenerationRow,
) -> Result<Option<(Head, Hit)>> {
    let hit = first(
        file,
        "SELECT g.head, g.state, s.account, s.tenant, s.session, s.used, s.orders \
         FROM generations g, sessions s WHERE g.place = ?1 AND s.number = ?2",
        [generation.0, generation.session()],
        |row| {
            let owner = Owner::read(blob(row, 2), blob(row, 3), blob(row, 4));
            // SECURITY: the whole tenant is compared, and the checksum holds it as well.
            let owner = owner.filter(|owner| owner.tenant == *tenant)?;
            let state = blob(row, 1);
            let head = Head::opened(blob(row, 0), &owner, state)?;
            let found = Found {
                at: 0,
                state: Bytes::copy_from_slice(state),
                orders: Bytes::copy_from_slice(owner.opened(blob(row, 6))),
            };
            let hit = Hit {
                found,
                session: generation.session(),
                used_s: Stamp(int(row, 5)).second(),
            };
            Some((head, hit))
        },
    )?;
    Ok(hit.flatten())
}

/// A session without its states.
pub(super) struct Named {
    pub(super) number: i64,
    pub(super) owner: Owner,
    saved_s: u64,
    orders: Bytes,
}

const SESSION: &str = "number, account, tenant, session, saved_s, orders";

impl Named {
    fn read(row: &rusqlite::Row<'_>) -> Option<Self> {
        let owner = Owner::read(blob(row, 1), blob(row, 2), blob(row, 3))?;
        Some(Self {
            number: int(row, 0),
            saved_s: int(row, 4).unsigned_abs(),
            orders: Bytes::copy_from_slice(owner.opened(blob(row, 5))),
            owner,
        })
    }

    /// With its newest state; `None` where that cannot be read.
    fn row(self, file: &Connection) -> Result<Option<Row>> {
        let (low, high) = GenerationRow::range(self.number);
        let state = first(
            file,
            "SELECT head, state FROM generations WHERE place BETWEEN ?1 AND ?2 \
             ORDER BY place DESC LIMIT 1",
            [low.0, high.0],
            |row| {
                let state = blob(row, 1);
                Head::opened(blob(row, 0), &self.owner, state)?;
                Some(Bytes::copy_from_slice(state))
            },
        )?;
        Ok(state.flatten().map(|state| Row {
            tenant: self.owner.tenant,
            session: self.owner.session,
            saved_s: self.saved_s,
            state,
            orders: self.orders,
        }))
    }
}

/// The session of that account, or of any, unless it has expired.
pub(super) fn named(
    file: &Connection,
    account: Option<&Account>,
    id: SessionId,
    horizon: u64,
) -> Result<Option<Named>> {
    let named = first(
        file,
        &format!(
            "SELECT {SESSION} FROM sessions WHERE session = ?1 AND used >= ?2 \
             AND (?3 IS NULL OR account = ?3) ORDER BY used DESC LIMIT 1"
        ),
        (
            id.bytes(),
            Stamp::of_second(horizon).0,
            account.map(Account::bytes),
        ),
        Named::read,
    )?;
    Ok(named.flatten().filter(|named| named.owner.session == id))
}

pub(super) fn session(
    file: &Connection,
    account: Option<&Account>,
    id: SessionId,
    horizon: u64,
) -> Result<Option<Row>> {
    let view = Transaction::begin(file)?;
    let named = named(&view, account, id, horizon)?;
    named.map_or(Ok(None), |named| named.row(&view))
}

pub(super) fn sessions(
    file: &Connection,
    account: Option<&Account>,
    page: Page,
    horizon: u64,
) -> Result<Vec<Row>> {
    let view = Transaction::begin(file)?;
    let named = all(
        &view,
        &format!(
            "SELECT {SESSION} FROM sessions WHERE {} ORDER BY used DESC LIMIT ?3 OFFSET ?4",
            used_since(account)
        ),
        (
            account.map(Account::bytes),
            Stamp::of_second(horizon).0,
            page.take.min(Page::MAX_TAKE) as i64,
            page.skip as i64,
        ),
        Named::read,
    )?;
    let rows = named.into_iter().flatten().map(|named| named.row(&view));
    rows.filter_map(Result::transpose).collect()
}

/// Sessions that have not expired; an index holds all that is read for it.
pub(super) fn count(file: &Connection, account: Option<&Account>, horizon: u64) -> Result<u64> {
    let counted = first(
        file,
        &format!(
            "SELECT count(*) FROM sessions WHERE {}",
            used_since(account)
        ),
        (account.map(Account::bytes), Stamp::of_second(horizon).0),
        |row| int(row, 0).unsigned_abs(),
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
pub(super) fn sample(file: &Connection) -> Result<()> {
    for order in ["DESC", "ASC"] {
        let sql = format!("SELECT number FROM sessions ORDER BY used {order} LIMIT {SAMPLE}");
        for number in all(file, &sql, [], |row| int(row, 0))? {
            for StoredGeneration { head, .. } in generations(file, number)?.iter().flatten() {
                for (_, key) in head.keys.iter() {
                    target(file, &key_place(head.circle, key))?;
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
    pub(super) head: Head,
    pub(super) state_bytes: usize,
}

/// The generations of a session, oldest first; of one that cannot be read, its row alone.
pub(super) fn generations(
    file: &Connection,
    session: i64,
) -> Result<Vec<std::result::Result<StoredGeneration, GenerationRow>>> {
    let (low, high) = GenerationRow::range(session);
    all(
        file,
        "SELECT place, head, length(state) FROM generations WHERE place BETWEEN ?1 AND ?2 \
         ORDER BY place LIMIT 1024",
        [low.0, high.0],
        |row| {
            let generation = GenerationRow(int(row, 0));
            Ok(StoredGeneration {
                row: generation,
                head: Head::read(blob(row, 1)).ok_or(generation)?,
                state_bytes: int(row, 2).unsigned_abs() as usize,
            })
        },
    )
}
