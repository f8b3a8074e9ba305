//! The installation's secret: the key of all digests that outsiders must not be able to guess.
//!
//! `data_dir/secret` holds the secret as 64 hex digits, readable by its owner only. The first start creates this file,
//! unless `server.secret_env` names a variable that holds a secret. Replicas that share a store must share this secret.
//! If it is lost, stored sessions are no longer found; nothing else is lost.

use std::{
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// 256 random bits. Not serialisable, and hidden in `Debug`.
#[derive(Clone)]
pub struct InstallationSecret([u8; 32]);

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot use {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "{} must hold 64 hex digits; remove it to have a new one made (stored sessions are then \
         no longer found)",
        path.display()
    )]
    Malformed { path: PathBuf },
    #[error("the system's random number source failed")]
    Random(#[source] getrandom::Error),
}

impl InstallationSecret {
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// For keyed digests only.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Derives the key with which `plimsoll run` names its clients' account (`x-plimsoll-key`) if the settings have no
    /// client keys.
    pub fn derive_run_key(&self) -> String {
        let digest = blake3::keyed_hash(&self.0, b"the key of plimsoll run");
        hex::encode(&digest.as_bytes()[..16])
    }

    /// A secret that lives as long as this process.
    pub fn random() -> Result<Self, SecretError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(SecretError::Random)?;
        Ok(Self(bytes))
    }

    /// Reads `data_dir/secret`. If the file is absent, creates it, and the directory if that is absent.
    ///
    /// Blocks; for start-up only. Processes that start at the same time get the same secret.
    pub fn load_or_create(data_dir: &Path) -> Result<Self, SecretError> {
        let path = data_dir.join("secret");
        let file_error = |source| SecretError::File {
            path: path.clone(),
            source,
        };
        match fs::read_to_string(&path) {
            Ok(text) => {
                warn_if_open(&path);
                return Self::parse_hex(&text, &path);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(file_error(error)),
        }
        fs::create_dir_all(data_dir).map_err(file_error)?;
        let fresh = Self::random()?;
        create_secret_file(data_dir, &path, &fresh).map_err(file_error)?;
        // If another process has created the file first, both use that secret.
        let text = fs::read_to_string(&path).map_err(file_error)?;
        Self::parse_hex(&text, &path)
    }

    fn parse_hex(text: &str, path: &Path) -> Result<Self, SecretError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.trim(), &mut bytes).map_err(|_| SecretError::Malformed {
            path: path.to_owned(),
        })?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for InstallationSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// Writes the secret to a draft file, which its owner alone may read, and moves the draft to `path`, so that no other
/// process reads half of a secret. A secret that another process created meanwhile stays.
fn create_secret_file(data_dir: &Path, path: &Path, secret: &InstallationSecret) -> io::Result<()> {
    let mut draft = tempfile::Builder::new()
        .prefix(".secret.")
        .tempfile_in(data_dir)?;
    writeln!(draft, "{}", hex::encode(secret.as_bytes()))?;
    draft.as_file().sync_all()?;
    match draft.persist_noclobber(path) {
        Err(failed) if failed.error.kind() != io::ErrorKind::AlreadyExists => {
            // Some file systems have no links. A rename is atomic too, but of two processes the last one wins.
            failed.file.persist(path)?;
        }
        _ => {}
    }
    Ok(())
}

/// Warns if others may read the secret: they could tell whose conversation a stored key belongs to. This is no error,
/// since a mounted file may have to be readable by a group.
#[cfg(unix)]
fn warn_if_open(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let open = fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0);
    if open {
        tracing::warn!(path = %path.display(), "the secret file is readable by other users; restrict its permissions");
    }
}

#[cfg(not(unix))]
fn warn_if_open(_path: &Path) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_creates_the_secret() {
        let home = tempfile::tempdir().unwrap();
        let data_dir = home.path().join("deep/data");
        let first = InstallationSecret::load_or_create(&data_dir).unwrap();
        let second = InstallationSecret::load_or_create(&data_dir).unwrap();
        assert_eq!(first.as_bytes(), second.as_bytes());
        assert_eq!(fs::read_dir(&data_dir).unwrap().count(), 1);
        assert_eq!(format!("{first:?}"), "[hidden]");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        InstallationSecret::load_or_create(home.path()).unwrap();
        let mode = fs::metadata(home.path().join("secret")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn concurrent_starts_get_one_secret() {
        let home = tempfile::tempdir().unwrap();
        let secrets: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| InstallationSecret::load_or_create(home.path()).unwrap()))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            joined.map(|secret| *secret.as_bytes()).collect()
        });
        assert!(secrets.iter().all(|secret| *secret == secrets[0]));
    }

    #[test]
    fn a_damaged_file_is_reported_with_its_format() {
        let home = tempfile::tempdir().unwrap();
        for damaged in ["", "abc", &"z".repeat(64), &"a".repeat(66)] {
            fs::write(home.path().join("secret"), damaged).unwrap();
            let error = InstallationSecret::load_or_create(home.path()).unwrap_err();
            assert!(error.to_string().contains("64 hex digits"), "{error}");
        }
    }
}
