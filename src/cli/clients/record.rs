//! What `plimsoll connect` wrote, so that it can be undone: `data_dir/clients/NAME.json`, and beside it a copy of each file as
//! it was, in `data_dir/clients/NAME/`.
//!
//! SECURITY: a client's file may hold keys. The record and the copies are readable by their owner only.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    FileFormat,
    edit::{Leaf, remove_leaves},
    files::{read_file, write_file},
};

/// One file that was written.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::cli) struct Written {
    pub(in crate::cli) path: PathBuf,
    pub(in crate::cli) format: FileFormat,
    /// `None`: there was no file.
    pub(in crate::cli) before: Option<String>,
    pub(in crate::cli) after: String,
    pub(in crate::cli) leaves: Vec<Leaf>,
    /// Folders that were made for it, the lowest first.
    pub(in crate::cli) folders: Vec<PathBuf>,
}

/// A file as it would be if nothing had been written.
pub(in crate::cli) struct Undone {
    /// `None`: no file.
    pub(in crate::cli) text: Option<String>,
    /// Whether the file is as it was written, so that all its bytes come back.
    pub(in crate::cli) is_exact: bool,
    /// What was written and has another value since. It stays.
    pub(in crate::cli) changed: Vec<String>,
    /// What was added since to the tables that were written. It stays.
    pub(in crate::cli) added: Vec<String>,
}

impl Written {
    /// # Errors
    /// The file was changed since, and cannot be edited.
    pub(in crate::cli) fn undo(&self, now: Option<&str>) -> Result<Undone, String> {
        let exact = |text: Option<&str>| Undone {
            text: text.map(str::to_owned),
            is_exact: true,
            changed: Vec::new(),
            added: Vec::new(),
        };
        let before = self.before.as_deref();
        match now {
            None => Ok(exact(None)),
            Some(now) if now == self.after => Ok(exact(before)),
            Some(now) if Some(now) == before => Ok(exact(before)),
            Some(now) => {
                let left = remove_leaves(self.format, now, before, &self.leaves)?;
                let is_empty = left.text.split_whitespace().all(|word| "{}".contains(word));
                Ok(Undone {
                    text: Some(left.text).filter(|_| before.is_some() || !is_empty),
                    is_exact: false,
                    changed: left.changed,
                    added: left.added,
                })
            }
        }
    }
}

/// What was written for one client.
pub(in crate::cli) struct Record {
    path: PathBuf,
    copies: PathBuf,
    pub(in crate::cli) files: Vec<Written>,
}

impl Record {
    /// # Errors
    /// It is there and cannot be read.
    pub(in crate::cli) fn load(data_dir: &Path, client: &str) -> Result<Self, String> {
        let copies = data_dir.join("clients").join(client);
        let path = copies.with_extension("json");
        let files = match read_file(&path)? {
            Some(text) => serde_json::from_str(&text).map_err(|error| {
                let copies = copies.display();
                format!(
                    "{} cannot be read: {error}; copies of the files are in {copies}",
                    path.display()
                )
            })?,
            None => Vec::new(),
        };
        Ok(Self {
            path,
            copies,
            files,
        })
    }

    pub(in crate::cli) fn find(&self, path: &Path) -> Option<&Written> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Keeps what is about to be written. The path of the copy, where there was a file.
    ///
    /// # Errors
    /// The data directory cannot be written.
    pub(in crate::cli) fn add(&mut self, file: Written) -> Result<Option<PathBuf>, String> {
        let name = file.path.file_name().unwrap_or_default();
        let copy = file
            .before
            .as_ref()
            .map(|before| (self.copies.join(name), before));
        if let Some((copy, before)) = &copy {
            write_file(copy, before)?;
        }
        let copy = copy.map(|(copy, _)| copy);
        self.files.retain(|there| there.path != file.path);
        self.files.push(file);
        self.save()?;
        Ok(copy)
    }

    /// Forgets a file, and its copy.
    ///
    /// # Errors
    /// The data directory cannot be written.
    pub(in crate::cli) fn forget(&mut self, path: &Path) -> Result<(), String> {
        let _ = fs::remove_file(self.copies.join(path.file_name().unwrap_or_default()));
        self.files.retain(|there| there.path != path);
        self.save()
    }

    fn save(&self) -> Result<(), String> {
        if self.files.is_empty() {
            let _ = fs::remove_dir(&self.copies);
            let gone = fs::remove_file(&self.path);
            return gone
                .map_err(|error| format!("{} cannot be removed: {error}", self.path.display()));
        }
        let text = serde_json::to_string_pretty(&self.files).map_err(|error| error.to_string())?;
        write_file(&self.path, &text)
    }
}
