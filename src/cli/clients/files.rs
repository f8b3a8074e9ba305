//! Clients' files on the disk.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::ClientFile;
use crate::config::Environment;

impl ClientFile {
    /// Where the file is, or would be. `None`: no variable names a folder, so there is no home.
    pub(in crate::cli) fn find(&self, environment: &Environment) -> Option<PathBuf> {
        let mut folders = self.folders.iter().filter_map(|folder| {
            let named = environment.find_folder(folder.variable)?;
            Some(named.join(folder.below))
        });
        let folder = folders.next()?;
        let mut paths = self.names.iter().map(|name| folder.join(name));
        let there = paths.find(|path| path.exists());
        there.or_else(|| Some(folder.join(self.names.first()?)))
    }
}

/// The content of a file; `None`: there is none.
///
/// # Errors
/// It cannot be read, or is no UTF-8.
pub(in crate::cli) fn read_file(path: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// # Errors
/// The file is there, and its owner may not write to it. Where its folder may be written, it could be replaced all the same: who
/// has made it read-only does not want that.
pub(in crate::cli) fn refuse_read_only(path: &Path) -> Result<(), String> {
    let is_read_only = fs::metadata(path).is_ok_and(|there| {
        #[cfg(unix)]
        return std::os::unix::fs::PermissionsExt::mode(&there.permissions()) & 0o200 == 0;
        #[cfg(not(unix))]
        return there.permissions().readonly();
    });
    if is_read_only {
        let shown = path.display();
        return Err(format!(
            "it is read-only; make it writable (chmod u+w {shown}), or change what it is made from, and try again"
        ));
    }
    Ok(())
}

/// Replaces a file at once, or makes it, with the folders above it. Permissions stay; a new file is its owner's alone. What a
/// link leads to is replaced, not the link; one that leads nowhere is an error.
///
/// # Errors
/// It cannot be written, or is read-only; the file is as it was.
pub(in crate::cli) fn write_file(path: &Path, text: &str) -> Result<(), String> {
    refuse_read_only(path)?;
    let write = || {
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if fs::symlink_metadata(path).is_ok() => return Err(error),
            Err(_) => path.to_owned(),
        };
        let folder = target.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut draft = tempfile::Builder::new()
            .prefix(".plimsoll.")
            .tempfile_in(folder)?;
        draft.write_all(text.as_bytes())?;
        if let Ok(there) = fs::metadata(&target) {
            draft.as_file().set_permissions(there.permissions())?;
        }
        draft.as_file().sync_all()?;
        draft.persist(&target)?;
        Ok(())
    };
    write().map_err(|error: io::Error| format!("{} cannot be written: {error}", path.display()))
}

/// The folders above a file that are not there yet, the lowest first.
pub(in crate::cli) fn list_missing_folders(path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1);
    above
        .take_while(|folder| !folder.exists())
        .map(Path::to_owned)
        .collect()
}
