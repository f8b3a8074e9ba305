//! The list as it was fetched last, in the data directory, so that a restart needs no network.
//!
//! A line with the form of the file, the digest of the list's address and the time, and then the list as it came. The
//! file is replaced at once. A damaged one, or one of another address, is ignored. A draft that a killed process has left
//! is removed by the next one that writes a list.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use reqwest::Url;
use sha2::{Digest, Sha256};

const FILE: &str = "catalogue";
/// Begins the file; its number changes with its form.
const FORM: &str = "plimsoll-catalogue-3";
/// Begins the name of a draft.
const DRAFT: &str = ".catalogue.";
/// No process writes for so long: a draft that is older is left over.
const DRAFT_LIFE: Duration = Duration::from_secs(3_600);
/// The first line, at most.
const MAX_HEAD_BYTES: u64 = 256;

#[derive(Debug)]
pub(super) struct StoredList {
    path: PathBuf,
    /// SECURITY: a digest, since the address may contain a key.
    source: String,
}

impl StoredList {
    pub(super) fn new(data_dir: &Path, url: &Url) -> Self {
        Self {
            path: data_dir.join(FILE),
            source: hex::encode(Sha256::digest(url.as_str())),
        }
    }

    /// The list, and when it was fetched. `None`: there is none, or it is of no use.
    pub(super) fn read(&self, max_bytes: usize) -> Option<(Vec<u8>, SystemTime)> {
        let most = max_bytes as u64 + MAX_HEAD_BYTES;
        if fs::metadata(&self.path).ok()?.len() > most {
            return None;
        }
        let mut bytes = fs::read(&self.path).ok()?;
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        let list = bytes.split_off(end + 1);
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let seconds = head.strip_prefix(&format!("{FORM} {} ", self.source))?;
        let since = Duration::from_secs(seconds.parse().ok()?);
        Some((list, UNIX_EPOCH.checked_add(since)?))
    }

    /// Replaces the file, in a directory that is made where it is absent.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, list: &[u8], fetched: SystemTime) -> io::Result<()> {
        let since = fetched.duration_since(UNIX_EPOCH).unwrap_or_default();
        let head = format!("{FORM} {} {}\n", self.source, since.as_secs());
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        remove_old_drafts(folder);
        let mut draft = tempfile::Builder::new().prefix(DRAFT).tempfile_in(folder)?;
        draft.write_all(head.as_bytes())?;
        draft.write_all(list)?;
        draft.as_file().sync_all()?;
        draft.persist(&self.path)?;
        Ok(())
    }
}

/// Removes drafts that another process began long ago, as far as that is possible.
fn remove_old_drafts(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_draft = entry.file_name().to_string_lossy().starts_with(DRAFT);
        let written = entry.metadata().and_then(|file| file.modified());
        let age = written.ok().and_then(|written| written.elapsed().ok());
        if is_draft && age.is_some_and(|age| age > DRAFT_LIFE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        time::{Duration, SystemTime, UNIX_EPOCH},
    };

    use reqwest::Url;

    use super::{DRAFT_LIFE, FILE, StoredList};

    #[test]
    fn a_list_is_read_as_it_was_written_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |url: &str| StoredList::new(folder.path(), &Url::parse(url).unwrap());
        let (here, there) = (at("http://a/?key=sk-secret"), at("http://b/"));
        assert_eq!(here.read(100), None);
        let fetched = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        here.write(b"old", UNIX_EPOCH).unwrap();
        here.write(b"{\"a\":\n1}", fetched).unwrap();
        assert_eq!(here.read(100), Some((b"{\"a\":\n1}".to_vec(), fetched)));
        assert_eq!(there.read(100), None, "of another address");
        let path = folder.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        assert!(!String::from_utf8_lossy(&whole).contains("secret"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        for damaged in [&b""[..], b"\n", b"plimsoll", &whole[..60], &[0xff; 99]] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(here.read(100), None, "{damaged:?}");
        }
        fs::write(&path, [&whole[..], &[b' '; 400]].concat()).unwrap();
        assert_eq!(here.read(100), None, "too large");
    }

    #[test]
    fn a_directory_is_made_where_that_is_possible() {
        let folder = tempfile::tempdir().unwrap();
        let url = Url::parse("http://a/").unwrap();
        let new = StoredList::new(&folder.path().join("deep/data"), &url);
        new.write(b"{}", UNIX_EPOCH).unwrap();
        assert!(new.read(100).is_some());
        // A file stands in the way.
        let impossible = StoredList::new(&folder.path().join("deep/data").join(FILE), &url);
        assert!(impossible.write(b"{}", UNIX_EPOCH).is_err());
    }

    #[test]
    fn drafts_of_killed_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let drafts = [
            (".catalogue.0123456789abcdef", 2 * DRAFT_LIFE),
            (".catalogue.fedcba9876543210", DRAFT_LIFE / 2),
            (".secret.0123456789abcdef", 2 * DRAFT_LIFE),
        ];
        for (name, age) in drafts {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(now - age).unwrap();
        }
        let list = StoredList::new(folder.path(), &Url::parse("http://a/").unwrap());
        list.write(b"{}", now).unwrap();
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [drafts[1].0, drafts[2].0, FILE]);
    }
}
