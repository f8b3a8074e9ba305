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
    Environment, Flags, LoadedConfig,
    load::{WrittenSettings, settings_path},
    problem::Problems,
};

/// Entries of a directory that are looked at.
const MAX_ENTRIES: usize = 100;

/// Reads settings, and sees when they should be read again. The environment and the flags stay as
/// they were.
#[derive(Debug)]
pub struct ConfigWatcher {
    flags: Flags,
    environment: Environment,
    paths: Vec<PathBuf>,
    /// The stamps of all paths when the settings were read last.
    loaded_stamps: Vec<u64>,
    /// Those at the last look.
    last_stamps: Vec<u64>,
    /// The settings in force are from a file that says something.
    had_content: bool,
    /// The file was read before.
    was_read: bool,
}

impl ConfigWatcher {
    pub fn new(flags: &Flags, environment: &Environment) -> Self {
        Self {
            flags: flags.clone(),
            environment: environment.clone(),
            paths: Vec::new(),
            loaded_stamps: Vec::new(),
            last_stamps: Vec::new(),
            had_content: false,
            was_read: false,
        }
    }

    /// Reads, merges and checks all sources as they are now.
    ///
    /// # Errors
    /// All problems at once. One of them is a file that is no longer there, or says nothing any more:
    /// the settings of nothing would let go of all clients and providers. So is a pipe that was read
    /// before.
    pub fn load_config(&mut self) -> Result<LoadedConfig, Problems> {
        let file = settings_path(&self.flags).to_owned();
        let refuse = |message| Err(Problems::for_file(file.display(), message));
        let again = std::mem::replace(&mut self.was_read, true);
        let lasting = can_reread(&file);
        if again && !lasting {
            self.record_stamps(stamp_paths(&self.paths));
            return refuse(
                "is no file that can be read again; restart the proxy with what it says now",
            );
        }
        // Noted before they are read: what changes in between is a change.
        self.paths = lasting.then(|| file.clone()).into_iter().collect();
        let mut before = stamp_paths(&self.paths);
        let written = WrittenSettings::read_sources(&self.flags, &self.environment);
        if let Some(texts) = written.as_ref().ok().and_then(WrittenSettings::prompts_dir) {
            before.push(stamp_path(&texts));
            self.paths.push(texts);
        }
        self.record_stamps(before);
        let written = written?;
        let says = written.has_content;
        if self.had_content && !says {
            return refuse(match written.file {
                None => "is gone; put it back, or restart the proxy to run without it",
                Some(_) => "is empty now; write it again, or restart the proxy to run without it",
            });
        }
        let loaded = written.check_settings(&self.environment)?;
        self.had_content = says;
        Ok(loaded)
    }

    fn record_stamps(&mut self, read: Vec<u64>) {
        self.last_stamps.clone_from(&read);
        self.loaded_stamps = read;
    }

    /// Looks once: whether there is something else than was read last, and the same as at the look
    /// before.
    pub fn has_changed(&mut self) -> bool {
        let now = stamp_paths(&self.paths);
        let settled = now == self.last_stamps;
        self.last_stamps = now;
        settled && self.last_stamps != self.loaded_stamps
    }
}

/// Whether it can be read again, as far as anybody knows: what is not there may come, and what is no
/// file is said where it is read. Nobody waits for a pipe that nobody writes to.
fn can_reread(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |data| data.is_file() || data.is_dir())
}

fn stamp_paths(paths: &[PathBuf]) -> Vec<u64> {
    paths.iter().map(|path| stamp_path(path)).collect()
}

/// A digest of what the file system says of a file, or of all files of a directory and of the directories in
/// it.
fn stamp_path(path: &Path) -> u64 {
    let mut digest = DefaultHasher::new();
    hash_file(path, 2, &mut digest);
    digest.finish()
}

fn hash_file(path: &Path, depth: u32, digest: &mut DefaultHasher) {
    let data = fs::metadata(path).ok();
    if depth > 0 && data.as_ref().is_some_and(Metadata::is_dir) {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.take(MAX_ENTRIES).map(|one| one.path()).collect();
        names.sort();
        for name in names {
            hash_file(&name, depth - 1, digest);
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
