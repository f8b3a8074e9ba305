//! Opens the file for one process, refuses a newer format, and sets a damaged file aside.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, Error, ErrorCode, ffi};

use super::{
    read,
    schema::{self, APPLICATION, FORMAT, TABLES},
    sql::read_pragma,
};

const FILE_NAME: &str = "sessions.db";
const LOCK_NAME: &str = "sessions.lock";

/// The header of an SQLite file.
const HEAD_BYTES: u64 = 100;

/// How long the lock is waited for, and how often it is tried.
const LOCK_WITHIN: Duration = Duration::from_secs(1);
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// Most damaged files that are kept. The last of them is replaced, so that they do not fill the disk.
const MAX_SET_ASIDE: u32 = 9;

/// Page cache of the writer's connection.
const CACHE_KIB: u32 = 8_192;

/// Why the file was not opened. The first three prevent the start of the proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenFileError {
    #[error(
        "{} is in use by another process: set another server.data_dir for this one, or keep the \
         sessions of both on a server (store.url)",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("cannot use {}", path.display())]
    Unusable { path: PathBuf, source: io::Error },
    #[error(
        "{} was written by a newer release (format {format}, this one supports {FORMAT}): start \
         that release, or move the file away to begin without its sessions; it was not changed",
        path.display()
    )]
    Newer { path: PathBuf, format: i64 },
    #[error("{0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Sql(#[from] Error),
    #[error(transparent)]
    File(#[from] io::Error),
}

impl From<OpenFileError> for io::Error {
    fn from(fault: OpenFileError) -> Self {
        Self::other(fault)
    }
}

impl OpenFileError {
    fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Sql(error) => is_damage(error),
            _ => false,
        }
    }
}

/// Whether the error shows that the file is damaged.
pub(super) fn is_damage(error: &Error) -> bool {
    let code = match error {
        Error::SqliteFailure(error, _) => error.code,
        // No such table or column, though the tables are checked when the file is opened.
        Error::SqlInputError { .. }
        | Error::InvalidColumnType(..)
        | Error::FromSqlConversionFailure(..)
        | Error::Utf8Error(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::QueryReturnedNoRows => return true,
        _ => return false,
    };
    matches!(
        code,
        ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::ConstraintViolation
            | ErrorCode::TypeMismatch
    )
}

/// Two tables contradict each other.
pub(super) fn inconsistency_error() -> Error {
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), None)
}

/// The locked path of the file; dropping it unlocks the path.
#[derive(Debug)]
pub(super) struct LockedFile {
    path: PathBuf,
    _lock: File,
}

impl LockedFile {
    /// Locks a directory, and creates it if it is absent.
    pub(super) fn lock_directory(directory: &Path) -> Result<Self, OpenFileError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenFileError::Unusable { path, source }
        };
        fs::create_dir_all(directory).map_err(unusable(directory))?;
        // SQLite would take a relative path with a colon for a URI.
        let directory = std::path::absolute(directory).map_err(unusable(directory))?;
        let path = directory.join(FILE_NAME);
        let lock_path = directory.join(LOCK_NAME);
        let lock = open_private(&lock_path).map_err(unusable(&lock_path))?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { path, _lock: lock }),
                // The other process may be about to end. A lock has no wait with a timeout.
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WITHIN => {
                    thread::park_timeout(LOCK_AGAIN);
                }
                Err(TryLockError::WouldBlock) => return Err(OpenFileError::InUse { path }),
                Err(TryLockError::Error(source)) => return Err(unusable(&lock_path)(source)),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file and runs `begin` on it. If either finds damage, both are repeated with a new file.
    pub(super) fn open_or_replace<T>(
        &self,
        begin: impl Fn(Connection) -> Result<T, OpenFileError>,
    ) -> Result<T, OpenFileError> {
        match self.open_or_create().and_then(&begin) {
            Err(fault) if fault.is_damage() => {
                self.set_aside(&fault)?;
                self.open_or_create().and_then(&begin)
            }
            opened => opened,
        }
    }

    fn open_or_create(&self) -> Result<Connection, OpenFileError> {
        if !has_sound_head(open_private(&self.path)?)? {
            return Err(OpenFileError::Damaged("its header is no SQLite header"));
        }
        let file = schema::open_connection(&self.path)?;
        let fresh = self.is_fresh(&file)?;
        schema::configure_connection(&file, CACHE_KIB)?;
        match fresh {
            true => schema::create_tables(&file)?,
            false => check_tables(&file)?,
        }
        Ok(file)
    }

    /// Whether nothing was ever written; refuses other formats.
    ///
    /// The format number in the header may be damaged, so a newer release writes it in `meta` too.
    fn is_fresh(&self, file: &Connection) -> Result<bool, OpenFileError> {
        let format = read_pragma(file, "user_version")?;
        let application = read_pragma(file, "application_id")?;
        let tables: i64 =
            file.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if (format, application, tables) == (0, 0, 0) {
            return Ok(true);
        }
        if format > i64::from(FORMAT) {
            let meta = schema::read_meta(file, "format").ok().flatten();
            if meta == Some(format.unsigned_abs()) {
                let path = self.path.clone();
                return Err(OpenFileError::Newer { path, format });
            }
        }
        if (format, application) != (FORMAT.into(), APPLICATION.into()) {
            return Err(OpenFileError::Damaged("its header has another format"));
        }
        Ok(false)
    }

    /// Renames a damaged file together with its write-ahead log. No connection to it may be open.
    pub(super) fn set_aside(&self, why: &dyn std::error::Error) -> io::Result<()> {
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
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
        }
        tracing::error!(
            file = %self.path.display(),
            aside = %to.display(),
            error = %why,
            "the session file is damaged: it was set aside as {}, and {} begins anew",
            to.display(),
            self.path.display()
        );
        Ok(())
    }
}

pub(super) fn path_with_suffix(path: &Path, suffix: &str) -> PathBuf {
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

/// Checks the tables and a sample of their rows for damage, in a time that does not grow with the file.
fn check_tables(file: &Connection) -> Result<(), OpenFileError> {
    let mut statement = file.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")?;
    let found = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut found = found.collect::<Result<Vec<_>, _>>()?;
    found.sort();
    let mut tables = TABLES;
    tables.sort_unstable();
    if found != tables {
        return Err(OpenFileError::Damaged("its tables have another schema"));
    }
    Ok(read::check_sample(file)?)
}
