//! Whether what the settings are read from has changed on disk.
//!
//! Files are told apart by their time, their length and the place behind all symbolic links, not by their
//! contents: so a file that was written, or found behind a link that was turned elsewhere, is another one.
//! A change counts once two looks in a row find the
//! same, so that no file is read that is just being written.

use std::{
    fs::{self, Metadata},
    path::{Path, PathBuf},
    time::SystemTime,
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
    /// As it was when the settings were read last.
    read: Vec<Stamp>,
    /// As it was at the last look.
    seen: Vec<Stamp>,
    /// The file that the settings in force are from.
    file: Option<PathBuf>,
    /// It says something.
    says: bool,
    /// It was read before.
    begun: bool,
}

/// What the file system says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// Without links on the way to it; `None` of one that is not there.
    place: Option<PathBuf>,
    modified: Option<SystemTime>,
    length: Option<u64>,
}

impl Watch {
    pub fn new(flags: &Flags, environment: &Environment) -> Self {
        Self {
            flags: flags.clone(),
            environment: environment.clone(),
            paths: Vec::new(),
            read: Vec::new(),
            seen: Vec::new(),
            file: None,
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
        let again = std::mem::replace(&mut self.begun, true);
        let lasting = lasts(&file);
        if again && !lasting {
            self.note(stamps(&self.paths));
            return Err(Problems::of_file(
                file.display(),
                "is no file that can be read again; restart the proxy with what it says now",
            ));
        }
        // Noted before they are read: what changes in between is a change.
        self.paths.clear();
        self.paths.extend(lasting.then_some(file));
        let mut before = stamps(&self.paths);
        let written = Written::read(&self.flags, &self.environment);
        if let Some(texts) = written.as_ref().ok().and_then(Written::texts) {
            before.append(&mut stamps(std::slice::from_ref(&texts)));
            self.paths.push(texts);
        }
        self.note(before);
        let written = written?;
        let says = !written.empty;
        let loaded = written.check(&self.environment)?;
        if let Some(file) = &self.file {
            if loaded.file.is_none() {
                let message = "is gone; put it back, or restart the proxy to run without it";
                return Err(Problems::of_file(file.display(), message));
            }
            if self.says && !says {
                let message =
                    "is empty now; write it again, or restart the proxy to run without it";
                return Err(Problems::of_file(file.display(), message));
            }
        }
        self.file.clone_from(&loaded.file);
        self.says = says;
        Ok(loaded)
    }

    fn note(&mut self, read: Vec<Stamp>) {
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

/// All files, those of directories and of the directories in them included.
fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let mut stamps = Vec::new();
    for path in paths {
        stamp(path, 2, &mut stamps);
    }
    stamps
}

fn stamp(path: &Path, depth: u32, stamps: &mut Vec<Stamp>) {
    let data = fs::metadata(path).ok();
    if depth > 0 && data.as_ref().is_some_and(Metadata::is_dir) {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.take(MAX_ENTRIES).map(|one| one.path()).collect();
        names.sort();
        for name in names {
            stamp(&name, depth - 1, stamps);
        }
    }
    stamps.push(Stamp {
        path: path.to_owned(),
        place: fs::canonicalize(path).ok(),
        modified: data.as_ref().and_then(|data| data.modified().ok()),
        length: data.as_ref().map(Metadata::len),
    });
}

#[cfg(test)]
mod tests;
