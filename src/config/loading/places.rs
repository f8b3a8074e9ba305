//! Where the settings file and the data are looked for if nobody names them.
//!
//! SECURITY: nothing of the working directory is used unasked: a cloned repository can bring a `config.toml` that sends a
//! login elsewhere. The exception is the repository that the running program was built in, as `cargo run` has it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::config::loading::{
    environment::Environment,
    load::{Flags, list_names},
};

const FILE: &str = "config.toml";
const FOLDER: &str = "plimsoll";

/// The settings file of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingsFile {
    pub(crate) path: PathBuf,
    /// By a flag or a variable: it must exist.
    pub(crate) is_named: bool,
}

/// The named settings file, or else the first of [`list_settings_files`] that is there.
pub(crate) fn find_settings_file(flags: &Flags, environment: &Environment) -> Option<SettingsFile> {
    let by_variable = environment.get_variable("PLIMSOLL_CONFIG");
    let by_variable = by_variable.filter(|path| !path.is_empty());
    let named = flags.config.clone().or(by_variable.map(PathBuf::from));
    let is_named = named.is_some();
    let mut usual = list_settings_files(environment).into_iter();
    let path = named.or_else(|| usual.find(|path| fs::metadata(path).is_ok()))?;
    Some(SettingsFile { path, is_named })
}

/// The places of a settings file that nobody names, the strongest first.
pub(crate) fn list_settings_files(environment: &Environment) -> Vec<PathBuf> {
    let user = environment
        .find_folder("XDG_CONFIG_HOME")
        .or_else(|| below_home(environment, ".config"));
    let places = [
        environment.own_folder().map(Path::to_owned),
        user.map(|folder| folder.join(FOLDER)),
        // SECURITY: on Windows this would be a folder that any user can make.
        cfg!(unix).then(|| Path::new("/etc").join(FOLDER)),
    ];
    let places = places.into_iter().flatten();
    places.map(|folder| folder.join(FILE)).collect()
}

/// The places of the data that nobody names, the strongest first.
pub(crate) fn list_data_folders(environment: &Environment) -> Vec<PathBuf> {
    let places = [
        environment.own_folder().map(|folder| folder.join("data")),
        environment.find_folder("STATE_DIRECTORY"),
        environment
            .find_folder("XDG_STATE_HOME")
            .map(|folder| folder.join(FOLDER)),
        below_home(environment, ".local/state").map(|folder| folder.join(FOLDER)),
    ];
    places.into_iter().flatten().collect()
}

/// Whether files can be made in a folder, or in the next above it that is there. Leaves nothing behind.
pub(crate) fn can_write(folder: &Path) -> bool {
    // As a relative path it has the working directory above it.
    let folder = Path::new(".").join(folder);
    let there = folder.ancestors().find(|it| it.exists());
    there.is_some_and(|it| tempfile::tempfile_in(it).is_ok())
}

/// The settings file of the working directory that is not read and looks like one of this program: one of its names
/// at the top is in `sections`.
pub(crate) fn find_stranger_file(
    environment: &Environment,
    read: Option<&Path>,
    sections: &[String],
) -> Option<PathBuf> {
    let path = environment.working_folder()?.join(FILE);
    // A pipe would have the start wait for a writer.
    if !fs::metadata(&path).ok()?.is_file() || is_same(&path, read) {
        return None;
    }
    let names = list_names(&path)?;
    let is_ours = names.iter().any(|name| sections.contains(name));
    is_ours.then_some(path)
}

/// The folder `data` of the working directory, where it has sessions or a secret and is not `used`.
pub(crate) fn find_stranger_data(
    environment: &Environment,
    used: Option<&Path>,
) -> Option<PathBuf> {
    let folder = environment.working_folder()?.join("data");
    let has_state = ["sessions.db", "secret"]
        .iter()
        .any(|name| folder.join(name).is_file());
    (has_state && !is_same(&folder, used)).then_some(folder)
}

fn is_same(path: &Path, other: Option<&Path>) -> bool {
    let whole = fs::canonicalize(path).ok();
    whole.is_some() && whole == other.and_then(|other| fs::canonicalize(other).ok())
}

fn below_home(environment: &Environment, path: &str) -> Option<PathBuf> {
    environment.find_folder("HOME").map(|home| home.join(path))
}

#[cfg(test)]
mod tests;
