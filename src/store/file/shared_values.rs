//! The table of shared values, which belong to no session.

use bytes::Bytes;
use rusqlite::{Connection, Result};
use xxhash_rust::xxh3::Xxh3;

use super::{
    batch::{Batch, WriteResult},
    sql::{column_bytes, column_int, execute, query_all},
};
use crate::store::MAX_SHARED;

/// Replaces the value of a name; beyond [`MAX_SHARED`] names, the name published longest ago goes.
pub(super) fn put_shared(batch: &mut Batch<'_>, name: &[u8], value: &[u8]) -> WriteResult {
    let version = batch.totals.shared_version + 1;
    let params = (name, value, version as i64, checksum_shared(name, value));
    let sql = "REPLACE INTO shared (name, value, version, sum) VALUES (?1, ?2, ?3, ?4)";
    execute(batch, sql, params)?;
    execute(
        batch,
        "DELETE FROM shared WHERE version <= \
         (SELECT version FROM shared ORDER BY version DESC LIMIT 1 OFFSET ?1)",
        [MAX_SHARED as i64],
    )?;
    batch.totals.shared_version = version;
    Ok(Ok(true))
}

/// All names and values whose checksums fit.
pub(super) fn read_all_shared(file: &Connection) -> Result<Vec<(Bytes, Bytes)>> {
    let rows = query_all(file, "SELECT name, value, sum FROM shared", [], |row| {
        let (name, value) = (column_bytes(row, 0), column_bytes(row, 1));
        let is_sound = checksum_shared(name, value) == column_int(row, 2);
        is_sound.then(|| (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)))
    })?;
    Ok(rows.into_iter().flatten().collect())
}

fn checksum_shared(name: &[u8], value: &[u8]) -> i64 {
    let mut sum = Xxh3::new();
    sum.update(&(name.len() as u64).to_le_bytes());
    sum.update(name);
    sum.update(value);
    sum.digest().cast_signed()
}
