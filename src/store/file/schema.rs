//! The tables, and the settings of connections.
//!
//! Rows of one session lie side by side in `generations`, so that removed rows make room for new ones. Keys of one
//! conversation lie side by side in `keys`, so that a whole chain is read from one page. There is no automatic
//! vacuum, since it slows every write, and free pages are reused before the file grows.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags, config::DbConfig};
use xxhash_rust::xxh3::xxh3_64;

use super::sql::{column_bytes, execute, query_first};

/// Marks a file of the proxy: "Plim".
pub(super) const APPLICATION: i32 = 0x506c_696d;
/// To be changed with the meaning of anything in the file.
pub(super) const FORMAT: i32 = 1;

/// Every format keeps `meta` with the row `format`, by which an older release distinguishes a newer file from a
/// damaged one.
pub(super) const TABLES: [&str; 9] = [
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE sessions (number INTEGER PRIMARY KEY, account BLOB NOT NULL, \
     session BLOB NOT NULL, tenant BLOB NOT NULL, saved_s INTEGER NOT NULL, \
     used INTEGER NOT NULL, orders BLOB NOT NULL)",
    "CREATE INDEX sessions_by_id ON sessions (session)",
    "CREATE INDEX sessions_by_use ON sessions (used)",
    "CREATE INDEX sessions_by_account ON sessions (account, used)",
    "CREATE TABLE generations (place INTEGER PRIMARY KEY, head BLOB NOT NULL, \
     state BLOB NOT NULL)",
    "CREATE TABLE keys (place BLOB PRIMARY KEY, target INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE shared (name BLOB PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, \
     sum INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX shared_by_version ON shared (version)",
];

/// How long a connection waits for a lock; only external tools hold one.
const BUSY: Duration = Duration::from_millis(200);
/// Most cached prepared statements.
const STATEMENTS: usize = 48;

/// Opens an existing file without changing it. Closing the connection runs no checkpoint, since another file may have
/// taken the name.
pub(super) fn open_connection(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = Connection::open_with_flags(path, flags)?;
    file.busy_timeout(BUSY)?;
    file.set_prepared_statement_cache_capacity(STATEMENTS);
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(file)
}

/// Configures a connection. It runs no checkpoint by itself. The file is not mapped into memory, since a truncated
/// file would end the process.
pub(super) fn configure_connection(file: &Connection, cache_kib: u32) -> rusqlite::Result<()> {
    file.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; \
         PRAGMA cache_size = -{cache_kib}; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; \
         PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = OFF; \
         PRAGMA journal_size_limit = 67108864;"
    ))
}

/// Copies the write-ahead log into the file, as far as no connection has to wait. Returns the pages of the log at the
/// beginning.
pub(super) fn checkpoint_log(file: &Connection) -> rusqlite::Result<i64> {
    file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))
}

/// Copies the whole write-ahead log into the file, and lets the last connection remove it.
pub(super) fn truncate_log(file: &Connection) -> rusqlite::Result<()> {
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
        .map(drop)
}

/// Creates the tables in an empty file, in one transaction.
pub(super) fn create_tables(file: &Connection) -> rusqlite::Result<()> {
    let all = TABLES.join("; ");
    file.execute_batch(&format!(
        "BEGIN IMMEDIATE; {all}; PRAGMA application_id = {APPLICATION}; \
         PRAGMA user_version = {FORMAT};"
    ))?;
    write_meta(file, "format", FORMAT.unsigned_abs().into())?;
    file.execute_batch("COMMIT")
}

/// A number of `meta`; `None` if it is absent or its checksum does not fit.
pub(super) fn read_meta(file: &Connection, name: &str) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT value FROM meta WHERE name = ?1";
    let value = query_first(file, sql, [name], |row| {
        let (value, sum) = column_bytes(row, 0).split_first_chunk()?;
        (sum == xxh3_64(value).to_le_bytes()).then_some(u64::from_le_bytes(*value))
    })?;
    Ok(value.flatten())
}

pub(super) fn write_meta(file: &Connection, name: &str, value: u64) -> rusqlite::Result<()> {
    let value = value.to_le_bytes();
    let stored = [value, xxh3_64(&value).to_le_bytes()].concat();
    let sql = "REPLACE INTO meta (name, value) VALUES (?1, ?2)";
    execute(file, sql, (name, stored)).map(drop)
}
