//! What is read of the file, each in one view of it.

use bytes::Bytes;
use rusqlite::{Connection, Result};

use super::{
    row::{Head, Owner, Place, Stamp, blob, int, key_place},
    step::Step,
};
use crate::store::{Account, Found, Key, Page, Row, SessionId, Tenant, key::KeyKind};

/// Keys of one circle that are read at once; where there are more, each is asked for. Conversations
/// that begin alike share a circle, and there may be a million of them.
/// Tests reach it with few.
pub(super) const AT_ONCE: usize = if cfg!(test) { 16 } else { 192 };

/// Sessions that are looked at when the file is opened, of the newest and of the oldest.
const SAMPLE: usize = 8;

/// A state that was found, and what else is known of its generation and session.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) found: Found,
    pub(super) place: Place,
    pub(super) kind: KeyKind,
    pub(super) head: Head,
    pub(super) used_s: u64,
}

/// What was read to find one.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) hit: Option<Hit>,
    /// All keys of the circle in their order; `None` where there are many.
    pub(super) near: Option<Vec<Pointer>>,
    /// Where there are many: the places of keys that were looked for in vain.
    pub(super) absent: Vec<[u8; 16]>,
}

/// The first of `keys` that is there.
pub(super) fn find(
    file: &Connection,
    tenant: &Tenant,
    circle: u64,
    keys: &[Key],
    horizon: u64,
) -> Result<Read> {
    let view = Step::begin(file)?;
    let near = near(&view, circle)?;
    let mut absent = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        let place = key_place(circle, key);
        let target = match &near {
            Some(near) => {
                let found = near.binary_search_by_key(&place, |(place, _)| *place);
                found.ok().map(|at| near[at].1)
            }
            None => {
                let target = target(&view, &place)?;
                absent.extend(target.is_none().then_some(place));
                target
            }
        };
        let Some((place, kind)) = target.and_then(Place::of_target) else {
            continue;
        };
        if let Some((found, head, used_s)) = hit(&view, tenant, place, at)?
            && head.keys.get(kind) == Some(key)
            && !(kind == KeyKind::Bare && head.ambiguous)
            && used_s >= horizon
        {
            let hit = Some(Hit {
                found,
                place,
                kind,
                head,
                used_s,
            });
            return Ok(Read { hit, near, absent });
        }
    }
    let hit = None;
    Ok(Read { hit, near, absent })
}

/// A key's place, and what it points to.
pub(super) type Pointer = ([u8; 16], i64);

/// All keys of a circle in their order, or `None` where there are many.
fn near(file: &Connection, circle: u64) -> Result<Option<Vec<Pointer>>> {
    let mut asked = file.prepare_cached(
        "SELECT place, target FROM keys WHERE place BETWEEN ?1 AND ?2 ORDER BY place LIMIT ?3",
    )?;
    let (mut first, mut last) = ([0; 16], [0xff; 16]);
    first[..8].copy_from_slice(&circle.to_be_bytes());
    last[..8].copy_from_slice(&circle.to_be_bytes());
    let mut rows = asked.query((first, last, AT_ONCE as i64 + 1))?;
    let mut near = Vec::new();
    while let Some(row) = rows.next()? {
        if let Ok(place) = blob(row, 0).try_into() {
            near.push((place, int(row, 1)));
        }
    }
    Ok((near.len() <= AT_ONCE).then_some(near))
}

/// What a key's row points to.
pub(super) fn target(file: &Connection, place: &[u8; 16]) -> Result<Option<i64>> {
    let mut asked = file.prepare_cached("SELECT target FROM keys WHERE place = ?1")?;
    let mut rows = asked.query([place])?;
    Ok(rows.next()?.map(|row| int(row, 0)))
}

/// The state and the head of the generation at a place, if it is this tenant's and sound, and when its
/// session was used.
fn hit(
    file: &Connection,
    tenant: &Tenant,
    place: Place,
    at: usize,
) -> Result<Option<(Found, Head, u64)>> {
    let mut asked = file.prepare_cached(
        "SELECT g.head, g.state, s.account, s.tenant, s.session, s.used, s.orders \
         FROM generations g, sessions s WHERE g.place = ?1 AND s.number = ?2",
    )?;
    let mut rows = asked.query([place.0, place.session()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let owner = Owner::read(blob(row, 2), blob(row, 3), blob(row, 4));
    // SECURITY: the whole tenant is compared, and the checksum holds it as well.
    let Some(owner) = owner.filter(|owner| owner.tenant == *tenant) else {
        return Ok(None);
    };
    let state = blob(row, 1);
    let head = Head::opened(blob(row, 0), &owner, state);
    Ok(head.map(|head| {
        let found = Found {
            at,
            state: Bytes::copy_from_slice(state),
            orders: Bytes::copy_from_slice(owner.opened(blob(row, 6))),
        };
        (found, head, Stamp(int(row, 5)).second())
    }))
}

/// A session without its states.
pub(super) struct Named {
    pub(super) number: i64,
    pub(super) owner: Owner,
    pub(super) saved_s: u64,
    pub(super) orders: Bytes,
}

const SESSION: &str = "number, account, tenant, session, saved_s, used, orders";

impl Named {
    fn read(row: &rusqlite::Row<'_>) -> Option<Self> {
        let owner = Owner::read(blob(row, 1), blob(row, 2), blob(row, 3))?;
        Some(Self {
            number: int(row, 0),
            saved_s: int(row, 4).unsigned_abs(),
            orders: Bytes::copy_from_slice(owner.opened(blob(row, 6))),
            owner,
        })
    }

    /// With its newest state; `None` where that cannot be read.
    fn row(self, file: &Connection) -> Result<Option<Row>> {
        let (first, last) = Place::of(self.number);
        let mut asked = file.prepare_cached(
            "SELECT head, state FROM generations WHERE place BETWEEN ?1 AND ?2 \
             ORDER BY place DESC LIMIT 1",
        )?;
        let mut rows = asked.query([first.0, last.0])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let state = blob(row, 1);
        let sound = Head::opened(blob(row, 0), &self.owner, state).is_some();
        Ok(sound.then(|| Row {
            tenant: self.owner.tenant,
            session: self.owner.session,
            saved_s: self.saved_s,
            state: Bytes::copy_from_slice(state),
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
    let mut asked = file.prepare_cached(&format!(
        "SELECT {SESSION} FROM sessions WHERE session = ?1 AND used >= ?2 \
         AND (?3 IS NULL OR account = ?3) ORDER BY used DESC LIMIT 1"
    ))?;
    let account = account.map(Account::bytes);
    let mut rows = asked.query((id.bytes(), Stamp::of_second(horizon).0, account))?;
    let named = rows.next()?.and_then(Named::read);
    Ok(named.filter(|named| named.owner.session == id))
}

pub(super) fn session(
    file: &Connection,
    account: Option<&Account>,
    id: SessionId,
    horizon: u64,
) -> Result<Option<Row>> {
    let view = Step::begin(file)?;
    let named = named(&view, account, id, horizon)?;
    named.map_or(Ok(None), |named| named.row(&view))
}

pub(super) fn sessions(
    file: &Connection,
    account: Option<&Account>,
    page: Page,
    horizon: u64,
) -> Result<Vec<Row>> {
    let view = Step::begin(file)?;
    let of_account = match account {
        Some(_) => "account = ?4",
        None => "?4 IS NULL",
    };
    let mut asked = view.prepare_cached(&format!(
        "SELECT {SESSION} FROM sessions WHERE {of_account} AND used >= ?1 \
         ORDER BY used DESC LIMIT ?2 OFFSET ?3"
    ))?;
    let (take, skip) = (page.take.min(Page::MAX_TAKE), page.skip);
    let account = account.map(Account::bytes);
    let horizon = Stamp::of_second(horizon).0;
    let mut rows = asked.query((horizon, take as i64, skip as i64, account))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(named) = Named::read(row) {
            found.extend(named.row(&view)?);
        }
    }
    Ok(found)
}

/// Sessions that have not expired; an index holds all that is read for it.
pub(super) fn count(file: &Connection, account: Option<&Account>, horizon: u64) -> Result<u64> {
    let of_account = match account {
        Some(_) => "account = ?2",
        None => "?2 IS NULL",
    };
    let mut asked = file.prepare_cached(&format!(
        "SELECT count(*) FROM sessions WHERE {of_account} AND used >= ?1"
    ))?;
    let account = account.map(Account::bytes);
    let mut rows = asked.query((Stamp::of_second(horizon).0, account))?;
    let counted = rows.next()?.map_or(0, |row| int(row, 0));
    Ok(counted.unsigned_abs())
}

/// Reads a few sessions, only to see whether they can be read.
pub(super) fn sample(file: &Connection) -> Result<()> {
    for order in ["DESC", "ASC"] {
        let mut asked = file.prepare(&format!(
            "SELECT number FROM sessions ORDER BY used {order} LIMIT {SAMPLE}"
        ))?;
        let numbers = asked.query_map([], |row| Ok(int(row, 0)))?;
        for number in numbers {
            for (_, head) in heads(file, number?)? {
                let Some(head) = head else { continue };
                for (_, key) in head.keys.iter() {
                    target(file, &key_place(head.circle, key))?;
                }
            }
        }
    }
    Ok(())
}

/// The rows of a session's generations, oldest first, each with the bytes of its state; of what
/// cannot be read only the place.
pub(super) fn heads(file: &Connection, number: i64) -> Result<Vec<(Line, Option<Head>)>> {
    let (first, last) = Place::of(number);
    let mut asked = file.prepare_cached(
        "SELECT place, head, length(state) FROM generations WHERE place BETWEEN ?1 AND ?2 \
         ORDER BY place LIMIT 1024",
    )?;
    let mut rows = asked.query([first.0, last.0])?;
    let mut heads = Vec::new();
    while let Some(row) = rows.next()? {
        let line = Line {
            place: Place(int(row, 0)),
            state: int(row, 2).unsigned_abs() as usize,
        };
        heads.push((line, Head::read(blob(row, 1))));
    }
    Ok(heads)
}

/// Where a generation stands, and the bytes of its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) place: Place,
    pub(super) state: usize,
}
