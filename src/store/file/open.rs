//! Opening the file: one process at a time, no newer format, and a damaged one is set aside.

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

/// The head of SQLite's files.
const HEAD_BYTES: u64 = 100;

/// How long another process has to let go of the file, and how often that is looked for.
const LOCK_WITHIN: Duration = Duration::from_secs(1);
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// Damaged files that are kept; the last gives way to the next, so that they do not fill the disk.
const MAX_SET_ASIDE: u32 = 9;

/// Memory for pages of the connection that writes.
const CACHE_KIB: u32 = 8_192;

/// Why the file was not opened. With the first three there is no use in starting.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenFileError {
    #[error(
        "{} is another process's: give this one a server.data_dir of its own, or let both keep \
         their sessions on a server (store.url)",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("cannot use {}", path.display())]
    Unusable { path: PathBuf, source: io::Error },
    #[error(
        "{} was written by a newer release (format {format}, this one knows {FORMAT}): start that \
         release, or move the file away to begin without its sessions; it was not changed",
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

/// Whether the file holds what we did not write.
pub(super) fn is_damage(error: &Error) -> bool {
    let code = match error {
        Error::SqliteFailure(error, _) => error.code,
        // No such table or column: both were there.
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

/// Where two tables contradict each other.
pub(super) fn inconsistency_error() -> Error {
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), None)
}

/// The file's place, which is this process's for as long as this is held.
#[derive(Debug)]
pub(super) struct LockedFile {
    path: PathBuf,
    _lock: File,
}

impl LockedFile {
    /// Takes the lock of a directory, which is made where it is absent.
    pub(super) fn lock_directory(directory: &Path) -> Result<Self, OpenFileError> {
        let named = |path: &Path, source| OpenFileError::Unusable {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(directory).map_err(|source| named(directory, source))?;
        // A path of SQLite's may not begin with the name of a scheme.
        let directory = std::path::absolute(directory).map_err(|from| named(directory, from))?;
        let path = directory.join(LOCK_NAME);
        let lock = open_private(&path).map_err(|source| named(&path, source))?;
        let asked = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                // Whoever has it may be on its way out.
                Err(TryLockError::WouldBlock) if asked.elapsed() < LOCK_WITHIN => {
                    // A lock has no wait with a bound.
                    thread::park_timeout(LOCK_AGAIN);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(OpenFileError::InUse {
                        path: directory.join(FILE_NAME),
                    });
                }
                Err(TryLockError::Error(source)) => return Err(named(&path, source)),
            }
        }
        Ok(Self {
            path: directory.join(FILE_NAME),
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file and reads from it what is needed to begin; where either meets damage, with a
    /// new file.
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
            return Err(OpenFileError::Damaged("its head is no head of SQLite's"));
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

    /// Whether nothing was ever written; refuses what is not of this format.
    ///
    /// A number in the head of the file alone proves nothing, it may have been damaged: a newer release
    /// says so in two places.
    fn is_fresh(&self, file: &Connection) -> Result<bool, OpenFileError> {
        let format = read_pragma(file, "user_version")?;
        let application = read_pragma(file, "application_id")?;
        let tables: i64 =
            file.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if (format, application, tables) == (0, 0, 0) {
            return Ok(true);
        }
        if format > i64::from(FORMAT) {
            let told = schema::read_meta(file, "format").ok().flatten();
            if told.is_some_and(|told| i64::try_from(told) == Ok(format)) {
                return Err(OpenFileError::Newer {
                    path: self.path.clone(),
                    format,
                });
            }
        }
        if (format, application) != (FORMAT.into(), APPLICATION.into()) {
            return Err(OpenFileError::Damaged("its head is not ours"));
        }
        Ok(false)
    }

    /// Gives a damaged file another name, with the log that belongs to it. No connection to it may
    /// be open.
    pub(super) fn set_aside(&self, why: &dyn std::error::Error) -> io::Result<()> {
        let aside = |number: u32| path_with_suffix(&self.path, &format!(".damaged-{number}"));
        let mut free = (1..MAX_SET_ASIDE).map(aside);
        let to = free.find(|path| !path.exists());
        let to = to.unwrap_or_else(|| aside(MAX_SET_ASIDE));
        fs::rename(&self.path, &to)?;
        let log = fs::rename(
            path_with_suffix(&self.path, "-wal"),
            path_with_suffix(&to, "-wal"),
        );
        let index = fs::remove_file(path_with_suffix(&self.path, "-shm"));
        for moved in [log, index] {
            match moved {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        tracing::error!(
            file = %self.path.display(),
            aside = %to.display(),
            error = %why,
            "the file of sessions is damaged: it was set aside as {}, and {} begins anew",
            to.display(),
            self.path.display()
        );
        Ok(())
    }
}

/// A name in the same directory with something behind it.
pub(super) fn path_with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Opens a file that its owner alone may read, and makes it where it is absent. SQLite gives the
/// files beside it the same rights.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Whether a file begins as SQLite's do, or not at all.
///
/// Two numbers in it SQLite does not take for damage where they are: with one the file can be read
/// and never written, with the other it is called unsupported. <https://www.sqlite.org/fileformat2.html>
fn has_sound_head(file: File) -> io::Result<bool> {
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head)?;
    let versions = head.get(18..20);
    let schema = head.get(44..48);
    Ok(head.is_empty()
        || head.starts_with(b"SQLite format 3\0")
            && versions.is_some_and(|versions| versions.iter().all(|it| matches!(it, 1 | 2)))
            && schema.is_some_and(|schema| matches!(schema, [0, 0, 0, 0..=4])))
}

/// Looks for damage in a few places, the newest among them; takes no longer where the file is large.
fn check_tables(file: &Connection) -> Result<(), OpenFileError> {
    let mut asked = file.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")?;
    let found = asked.query_map([], |row| row.get::<_, String>(0))?;
    let mut found = found.collect::<Result<Vec<_>, _>>()?;
    found.sort();
    let mut tables = TABLES;
    tables.sort_unstable();
    if found != tables {
        return Err(OpenFileError::Damaged("its tables are not ours"));
    }
    Ok(read::check_sample(file)?)
}
