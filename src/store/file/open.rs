//! Opens the file for one process, refuses that of a newer release, and sets a damaged file aside.
//!
//! Rows of one session lie side by side in `generations`, so that removed rows make room for new ones. Keys of one
//! conversation lie side by side in `keys`, so that a whole chain is read from one page. There is no automatic
//! vacuum, since it slows every write, and free pages are reused before the file grows.

use std::{
    error,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, Error, ErrorCode, config::DbConfig, ffi};

use super::batch::Totals;

const FILE_NAME: &str = "sessions.db";
const LOCK_NAME: &str = "sessions.lock";

/// Changes when anything in the file changes its meaning, the encodings of states and commands too. 0.1.0 writes 2: a
/// later release brings such a file to its own format in `open_or_create`, in one transaction.
pub(super) const FORMAT: i32 = 2;
/// Marks a file of the proxy: "Pli". The header has the sum of it and the format, so a damaged format is not taken for
/// a newer one.
pub(super) const APPLICATION: i32 = 0x506c_6900;

pub(super) const TABLES: &str = "
    CREATE TABLE sessions (number INTEGER PRIMARY KEY, account BLOB NOT NULL,
        session BLOB NOT NULL, tenant BLOB NOT NULL, saved_s INTEGER NOT NULL,
        used INTEGER NOT NULL, commands BLOB NOT NULL);
    CREATE INDEX sessions_by_id ON sessions (session);
    CREATE INDEX sessions_by_use ON sessions (used);
    CREATE INDEX sessions_by_account ON sessions (account, used);
    CREATE TABLE generations (place INTEGER PRIMARY KEY, head BLOB NOT NULL, state BLOB NOT NULL);
    CREATE TABLE keys (place BLOB PRIMARY KEY, generation INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE shared (version INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE,
        value BLOB NOT NULL);";

/// The header of an SQLite file.
const HEAD_BYTES: u64 = 100;

/// How long the lock is waited for, and how often it is tried.
const LOCK_WITHIN: Duration = Duration::from_secs(1);
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// Most damaged files that are kept. The last of them is replaced, so that they do not fill the disk.
const MAX_SET_ASIDE: u32 = 9;

/// Page cache of the writer's connection.
const CACHE_KIB: u32 = 8_192;
/// How long a connection waits for a lock that another one holds. A reader takes the writer's lock where it finds the head
/// of the log half written, and may hold it for seconds while the disk is busy.
const BUSY: Duration = Duration::from_secs(5);

/// Whether the error shows that the file is damaged.
pub(super) fn is_damage(error: &Error) -> bool {
    match error {
        Error::SqliteFailure(error, _) => matches!(
            error.code,
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
        ),
        // Such as an absent table or column.
        Error::SqlInputError { .. }
        | Error::InvalidColumnType(..)
        | Error::FromSqlConversionFailure(..)
        | Error::Utf8Error(..)
        | Error::IntegralValueOutOfRange(..) => true,
        _ => false,
    }
}

/// Two tables contradict each other.
pub(super) fn inconsistency_error() -> Error {
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), None)
}

/// Of the kind [`ErrorKind::InvalidData`] if the file is damaged.
fn to_io_error(error: Error) -> io::Error {
    if is_damage(&error) {
        io::Error::new(ErrorKind::InvalidData, error)
    } else {
        io::Error::other(error)
    }
}

/// Opens a connection. It runs no checkpoint by itself, unless it is the last connection and closes. The file is not
/// mapped into memory, since a truncated file would end the process.
pub(super) fn connect(path: &Path, cache_kib: u32) -> rusqlite::Result<Connection> {
    let file = Connection::open(path)?;
    configure(&file, cache_kib)?;
    Ok(file)
}

fn configure(file: &Connection, cache_kib: u32) -> rusqlite::Result<()> {
    file.busy_timeout(BUSY)?;
    file.set_prepared_statement_cache_capacity(48);
    // Otherwise SQLite prepares joins again for each new value of a parameter.
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    file.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -{cache_kib};
         PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF; PRAGMA journal_size_limit = 67108864;
         PRAGMA wal_autocheckpoint = 0;"
    ))
}

/// Copies the write-ahead log into the file, as far as no connection has to wait. Returns the pages that the log had
/// before the copy.
pub(super) fn checkpoint(file: &Connection) -> rusqlite::Result<i64> {
    file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))
}

/// Whether a process uses the sessions of a directory. Waits for nothing and makes no file.
pub fn is_in_use(directory: &Path) -> bool {
    let lock = File::open(directory.join(LOCK_NAME));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// The locked path of the file; dropping it unlocks the path.
#[derive(Debug)]
pub(super) struct LockedFile {
    pub(super) path: PathBuf,
    _lock: File,
}

impl LockedFile {
    /// Locks a directory, and creates it if it is absent.
    ///
    /// # Errors
    /// Of the kind [`ErrorKind::ResourceBusy`] if another process has it.
    pub(super) fn lock_directory(directory: &Path) -> io::Result<Self> {
        let unusable = |path: &Path, error: io::Error| {
            let message = format!("cannot use {}: {error}", path.display());
            io::Error::new(error.kind(), message)
        };
        fs::create_dir_all(directory).map_err(|error| unusable(directory, error))?;
        // SQLite would take a relative path with a colon for a URI.
        let directory = std::path::absolute(directory)?;
        let (path, lock_path) = (directory.join(FILE_NAME), directory.join(LOCK_NAME));
        let lock = open_private(&lock_path).map_err(|error| unusable(&lock_path, error))?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { path, _lock: lock }),
                // The other process may be about to end. A lock has no wait with a timeout.
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WITHIN => {
                    thread::park_timeout(LOCK_AGAIN);
                }
                Err(TryLockError::WouldBlock) => {
                    let message = format!(
                        "{} is in use by another process: set another server.data_dir for this \
                         one, or keep the sessions of both on a server (store.url)",
                        path.display()
                    );
                    return Err(io::Error::new(ErrorKind::ResourceBusy, message));
                }
                Err(TryLockError::Error(error)) => return Err(unusable(&lock_path, error)),
            }
        }
    }

    /// Opens or creates the file; replaces a damaged one.
    ///
    /// # Errors
    /// Of the kind [`ErrorKind::Unsupported`] if a newer release wrote it.
    pub(super) fn open_or_replace(&self) -> io::Result<(Connection, Totals)> {
        match self.open_or_create() {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                self.set_aside(&error)?;
                self.open_or_create()
            }
            opened => opened,
        }
    }

    fn open_or_create(&self) -> io::Result<(Connection, Totals)> {
        let damage = |why: String| Err(io::Error::new(ErrorKind::InvalidData, why));
        if !has_sound_head(open_private(&self.path)?)? {
            return damage("its header is no SQLite header".to_owned());
        }
        let file = Connection::open(&self.path).map_err(to_io_error)?;
        // Until the file is known to be of this release, it stays as it is: closing it copies nothing into it.
        let keep_log = |on| file.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on);
        keep_log(true).map_err(to_io_error)?;
        let number = |name| file.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let format = number("user_version").map_err(to_io_error)?;
        let application = number("application_id").map_err(to_io_error)?;
        let is_marked = application == APPLICATION.wrapping_add(format);
        let is_new = (format, application) == (0, 0);
        if is_marked && format > FORMAT {
            let message = format!(
                "{} was written by a newer release (format {format}, this one supports {FORMAT}): \
                 start that release, or move the file away or set another server.data_dir to \
                 begin without its sessions; it was not changed",
                self.path.display()
            );
            return Err(io::Error::new(ErrorKind::Unsupported, message));
        } else if !is_new && (!is_marked || format != FORMAT) {
            return damage(format!("it has another format: {format}, {application:#x}"));
        }
        configure(&file, CACHE_KIB).map_err(to_io_error)?;
        if is_new {
            create_tables(&file).map_err(to_io_error)?;
        }
        // A query of an absent table fails like many others, so damage of the definitions is found here.
        if !has_own_tables(&file).map_err(to_io_error)? {
            return damage("it has other tables".to_owned());
        }
        let totals = Totals::read(&file).map_err(to_io_error)?;
        keep_log(false).map_err(to_io_error)?;
        Ok((file, totals))
    }

    /// Renames a damaged file together with its write-ahead log. No connection to it may be open.
    pub(super) fn set_aside(&self, why: &dyn error::Error) -> io::Result<()> {
        let aside = |number: u32| path_with_suffix(&self.path, &format!(".damaged-{number}"));
        let mut free = (1..MAX_SET_ASIDE).map(aside);
        let to = free.find(|path| !path.exists());
        let to = to.unwrap_or_else(|| aside(MAX_SET_ASIDE));
        fs::rename(&self.path, &to)?;
        let log = path_with_suffix(&self.path, "-wal");
        let log = fs::rename(log, path_with_suffix(&to, "-wal"));
        let index = fs::remove_file(path_with_suffix(&self.path, "-shm"));
        for result in [log, index] {
            if let Err(error) = result
                && error.kind() != ErrorKind::NotFound
            {
                return Err(error);
            }
        }
        tracing::error!(
            file = %self.path.display(),
            aside = %to.display(),
            error = %why,
            "the session file cannot be used: it was renamed to {}, and {} begins without sessions",
            to.display(),
            self.path.display()
        );
        Ok(())
    }
}

fn path_with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens or creates a file that only its owner may read. SQLite gives its log the same permissions.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Whether a file is empty or has a valid SQLite header (<https://www.sqlite.org/fileformat2.html>).
///
/// SQLite does not report two damaged fields as damage: with damaged versions it opens the file read-only, and with a
/// damaged schema format it reports an unsupported file.
fn has_sound_head(file: File) -> io::Result<bool> {
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head.is_empty()
        || head.starts_with(b"SQLite format 3\0")
            && matches!(head.get(18..20), Some([1 | 2, 1 | 2]))
            && matches!(head.get(44..48), Some([0, 0, 0, 0..=4])))
}

/// Whether the definitions of tables and indexes are those of [`TABLES`], in any order: SQLite's `VACUUM` changes it.
fn has_own_tables(file: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY sql";
    let mut list = file.prepare(sql)?;
    let found = list.query_map([], |row| row.get(0))?;
    let found: Vec<String> = found.collect::<Result<_, _>>()?;
    let mut own: Vec<_> = TABLES.split_terminator(';').map(str::trim).collect();
    own.sort_unstable();
    Ok(own == found)
}

/// Creates the tables in an empty file, in one transaction.
fn create_tables(file: &Connection) -> rusqlite::Result<()> {
    file.execute_batch(&format!(
        "BEGIN; {TABLES} PRAGMA application_id = {}; PRAGMA user_version = {FORMAT}; COMMIT",
        APPLICATION + FORMAT
    ))
}
