//! What no session owns, in a table of its own.

use bytes::Bytes;
use rusqlite::{Connection, Result};
use xxhash_rust::xxh3::Xxh3;

use super::row::{blob, int};
use crate::store::MAX_SHARED;

/// Names of which something is shared, and the version of the newest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) version: u64,
    names: usize,
}

impl Told {
    /// Reads it from the file. There are few enough of them to be counted.
    pub(super) fn load(file: &Connection) -> Result<Self> {
        file.query_row(
            "SELECT count(*), coalesce(max(version), 0) FROM shared",
            [],
            |row| {
                Ok(Self {
                    names: int(row, 0).unsigned_abs() as usize,
                    version: int(row, 1).unsigned_abs(),
                })
            },
        )
    }

    /// Reads it again, and tells everybody to: somebody else changed the file.
    pub(super) fn anew(self, file: &Connection) -> Result<Self> {
        let told = Self::load(file)?;
        Ok(Self {
            version: told.version.max(self.version) + 1,
            ..told
        })
    }
}

/// Puts a value in the place of the one of that name before; beyond the bound, what was not given
/// for longest goes.
pub(super) fn put(file: &Connection, told: &mut Told, name: &[u8], value: &[u8]) -> Result<()> {
    let version = told.version + 1;
    let sum = sum(name, value);
    let mut changed = file
        .prepare_cached("UPDATE shared SET value = ?2, version = ?3, sum = ?4 WHERE name = ?1")?;
    if changed.execute((name, value, version as i64, sum))? == 0 {
        let mut added = file.prepare_cached(
            "INSERT INTO shared (name, value, version, sum) VALUES (?1, ?2, ?3, ?4)",
        )?;
        added.execute((name, value, version as i64, sum))?;
        told.names += 1;
    }
    if told.names > MAX_SHARED {
        let mut removed = file.prepare_cached(
            "DELETE FROM shared WHERE name = (SELECT name FROM shared ORDER BY version LIMIT 1)",
        )?;
        told.names -= removed.execute([])?;
    }
    told.version = version;
    Ok(())
}

/// All names and values.
pub(super) fn all(file: &Connection) -> Result<Vec<(Bytes, Bytes)>> {
    let mut asked = file.prepare_cached("SELECT name, value, sum FROM shared")?;
    let mut rows = asked.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let (name, value) = (blob(row, 0), blob(row, 1));
        if sum(name, value) == int(row, 2) {
            all.push((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
        }
    }
    Ok(all)
}

fn sum(name: &[u8], value: &[u8]) -> i64 {
    let mut sum = Xxh3::new();
    sum.update(&(name.len() as u64).to_le_bytes());
    sum.update(name);
    sum.update(value);
    sum.digest().cast_signed()
}
