//! Watches the settings file and the directory of prompts for changes.
//!
//! A stamp is a digest of a file's modification time, its length and its path behind all symbolic links, but not
//! of its contents. A change counts once two polls in a row see the same stamps, so that no half-written file is
//! read.

use std::{
    fs::{self, Metadata},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use crate::config::{
    Environment, Flags, LoadedConfig,
    loading::{
        load::WrittenSettings,
        places::{SettingsFile, find_settings_file, list_settings_files},
        problem::Problems,
    },
};

/// Entries of a directory that are stamped.
const MAX_ENTRIES: usize = 100;

/// Loads settings, and finds out when to load them again. The environment and the flags never change.
#[derive(Debug, Default)]
pub struct ConfigWatcher {
    flags: Flags,
    environment: Environment,
    /// The file that was found first; another one is not read before a restart.
    file: Option<SettingsFile>,
    paths: Vec<PathBuf>,
    /// The stamps of all paths at the last load.
    loaded_stamps: Vec<u64>,
    /// The stamps of all paths at the last poll.
    last_stamps: Vec<u64>,
    /// Whether the settings in force are from a file that is not empty.
    had_content: bool,
    /// Whether the file was read before.
    was_read: bool,
}

impl ConfigWatcher {
    pub fn new(flags: &Flags, environment: &Environment) -> Self {
        Self {
            flags: flags.clone(),
            environment: environment.clone(),
            ..Self::default()
        }
    }

    /// Reads, merges and checks all sources as they are now.
    ///
    /// # Errors
    /// All problems at once. A file that was deleted or emptied is a problem too, since the defaults would drop
    /// all clients and providers; so is a pipe that was read before.
    pub fn load_config(&mut self) -> Result<LoadedConfig, Problems> {
        if self.file.is_none() {
            self.file = find_settings_file(&self.flags, &self.environment);
        }
        let file = self.file.clone();
        let path = file.as_ref().map(|file| file.path.clone());
        let refuse = |message| {
            let path = path.as_deref().unwrap_or(Path::new("settings"));
            Err(Problems::for_file(path.display(), message))
        };
        let was_read = std::mem::replace(&mut self.was_read, file.is_some());
        let can_reread = path.as_deref().is_none_or(can_reread);
        if was_read && !can_reread {
            self.record_stamps(stamp_paths(&self.paths));
            return refuse(
                "is no file that can be read again; restart the proxy to apply a change",
            );
        }
        // The stamps are taken before the files are read, so that a write in between counts as a change.
        self.paths = match &path {
            Some(path) => can_reread.then(|| path.clone()).into_iter().collect(),
            None => list_settings_files(&self.environment),
        };
        let mut stamps = stamp_paths(&self.paths);
        let written = WrittenSettings::read_sources(file.as_ref(), &self.flags, &self.environment);
        let more = written.as_ref().map(WrittenSettings::list_read_paths);
        let more = more.unwrap_or_default();
        stamps.extend(stamp_paths(&more));
        self.paths.extend(more);
        self.record_stamps(stamps);
        let written = written?;
        let has_content = written.has_content;
        if self.had_content && !has_content {
            return refuse(match written.file {
                None => "is gone; restore it, or restart the proxy to run without it",
                Some(_) => "is empty now; write it again, or restart the proxy to run without it",
            });
        }
        let loaded = written.check(&self.environment)?;
        self.had_content = has_content;
        Ok(loaded)
    }

    fn record_stamps(&mut self, stamps: Vec<u64>) {
        self.last_stamps.clone_from(&stamps);
        self.loaded_stamps = stamps;
    }

    /// Polls once: whether the files differ from those last loaded, and equal those at the poll before.
    pub fn has_changed(&mut self) -> bool {
        let stamps = stamp_paths(&self.paths);
        let is_settled = stamps == self.last_stamps;
        self.last_stamps = stamps;
        is_settled && self.last_stamps != self.loaded_stamps
    }
}

/// Whether a path may be read more than once: anything but a pipe or a device. Reading a pipe again would wait
/// for a writer. A missing path counts, since it may appear.
fn can_reread(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |data| data.is_file() || data.is_dir())
}

fn stamp_paths(paths: &[PathBuf]) -> Vec<u64> {
    paths.iter().map(|path| stamp_path(path)).collect()
}

/// A digest of the metadata of a file, or of a directory with its files and those of its subdirectories.
fn stamp_path(path: &Path) -> u64 {
    let mut digest = DefaultHasher::new();
    hash_file(path, 2, &mut digest);
    digest.finish()
}

fn hash_file(path: &Path, depth: u32, digest: &mut DefaultHasher) {
    let data = fs::metadata(path).ok();
    if depth > 0 && data.as_ref().is_some_and(Metadata::is_dir) {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries
            .take(MAX_ENTRIES)
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        for path in paths {
            hash_file(&path, depth - 1, digest);
        }
    }
    let target = fs::canonicalize(path).ok();
    let modified = data.as_ref().and_then(|data| data.modified().ok());
    let length = data.as_ref().map(Metadata::len);
    (path, target, modified, length).hash(digest);
}

#[cfg(test)]
mod tests;
