//! Whether what the settings are read from has changed on disk.
//!
//! Files are told apart by their time, their length and the place behind all symbolic links, not by their
//! contents: so a file that was written, or found behind a link that was turned elsewhere, is another one.
//! A change counts once two looks in a row find the
//! same, so that no file is read that is just being written.

use std::{
    fs::{self, Metadata},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use super::{
    Environment, Flags, Loaded,
    load::{Written, file_of},
    problem::Problems,
};

/// Entries of a directory that are looked at.
const MAX_ENTRIES: usize = 100;

/// Reads settings, and sees when they should be read again. The environment and the flags stay as
/// they were.
#[derive(Debug)]
pub struct Watch {
    flags: Flags,
    environment: Environment,
    paths: Vec<PathBuf>,
    /// The stamps of all paths when the settings were read last.
    read: Vec<u64>,
    /// Those at the last look.
    seen: Vec<u64>,
    /// The settings in force are from a file that says something.
    says: bool,
    /// The file was read before.
    begun: bool,
}

impl Watch {
    pub fn new(flags: &Flags, environment: &Environment) -> Self {
        Self {
            flags: flags.clone(),
            environment: environment.clone(),
            paths: Vec::new(),
            read: Vec::new(),
            seen: Vec::new(),
            says: false,
            begun: false,
        }
    }

    /// Reads, merges and checks all sources as they are now.
    ///
    /// # Errors
    /// All problems at once. One of them is a file that is no longer there, or says nothing any more:
    /// the settings of nothing would let go of all clients and providers. So is a pipe that was read
    /// before.
    pub fn load(&mut self) -> Result<Loaded, Problems> {
        let file = file_of(&self.flags).to_owned();
        let refuse = |message| Err(Problems::of_file(file.display(), message));
        let again = std::mem::replace(&mut self.begun, true);
        let lasting = lasts(&file);
        if again && !lasting {
            self.note(stamps(&self.paths));
            return refuse(
                "is no file that can be read again; restart the proxy with what it says now",
            );
        }
        // Noted before they are read: what changes in between is a change.
        self.paths = lasting.then(|| file.clone()).into_iter().collect();
        let mut before = stamps(&self.paths);
        let written = Written::read(&self.flags, &self.environment);
        if let Some(texts) = written.as_ref().ok().and_then(Written::texts) {
            before.push(stamp(&texts));
            self.paths.push(texts);
        }
        self.note(before);
        let written = written?;
        let says = written.says;
        if self.says && !says {
            return refuse(match written.file {
                None => "is gone; put it back, or restart the proxy to run without it",
                Some(_) => "is empty now; write it again, or restart the proxy to run without it",
            });
        }
        let loaded = written.check(&self.environment)?;
        self.says = says;
        Ok(loaded)
    }

    fn note(&mut self, read: Vec<u64>) {
        self.seen.clone_from(&read);
        self.read = read;
    }

    /// Looks once: whether there is something else than was read last, and the same as at the look
    /// before.
    pub fn changed(&mut self) -> bool {
        let now = stamps(&self.paths);
        let settled = now == self.seen;
        self.seen = now;
        settled && self.seen != self.read
    }
}

/// Whether it can be read again, as far as anybody knows: what is not there may come, and what is no
/// file is said where it is read. Nobody waits for a pipe that nobody writes to.
fn lasts(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |data| data.is_file() || data.is_dir())
}

fn stamps(paths: &[PathBuf]) -> Vec<u64> {
    paths.iter().map(|path| stamp(path)).collect()
}

/// A digest of what the file system says of a file, or of all files of a directory and of the directories in
/// it.
fn stamp(path: &Path) -> u64 {
    let mut digest = DefaultHasher::new();
    add_file(path, 2, &mut digest);
    digest.finish()
}

fn add_file(path: &Path, depth: u32, digest: &mut DefaultHasher) {
    let data = fs::metadata(path).ok();
    if depth > 0 && data.as_ref().is_some_and(Metadata::is_dir) {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.take(MAX_ENTRIES).map(|one| one.path()).collect();
        names.sort();
        for name in names {
            add_file(&name, depth - 1, digest);
        }
    }
    // The place behind all links; none of one that is not there.
    let place = fs::canonicalize(path).ok();
    let modified = data.as_ref().and_then(|data| data.modified().ok());
    let length = data.as_ref().map(Metadata::len);
    (path, place, modified, length).hash(digest);
}

#[cfg(test)]
mod tests;
