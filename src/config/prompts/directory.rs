//! Reads the directory of texts that replace the built-in prompts.
//!
//! Every unusable file is reported, not only the first. Files whose names begin with a dot are ignored, since
//! editors and desktops make them.

use std::{fs, io, path::Path};

use super::{BUILT_IN, MAX_CHARS, Prompts};
use crate::config::loading::{load::read_text, problem::find_nearest, section::Section};

/// Files that are read of each folder, which has nine at most when all names are right.
const MAX_FILES: usize = 100;
const MAX_BYTES: u64 = 4 * MAX_CHARS as u64 + 4;
const KEY: &str = "prompts_dir";

/// The built-in texts, overridden by those of a directory.
pub(crate) fn read_prompts(s: &mut Section, folder: Option<&Path>) -> Prompts {
    let mut prompts = Prompts::default();
    let Some(folder) = folder else {
        return prompts;
    };
    if folder.as_os_str().is_empty() {
        let message = "must name a directory; leave it out for the built-in texts";
        s.refuse_text(KEY, "", message);
        return prompts;
    }
    let shown = format!("{folder:?}");
    let names = match list_files(folder) {
        Ok(names) => names,
        Err(error) => {
            let remedy = "make the directory, or leave the setting out for the built-in texts";
            let message = format!("cannot be read: {error}; {remedy}");
            s.refuse_value(KEY, Some(shown), message);
            return prompts;
        }
    };
    for entry in names {
        // A file beside the directories of languages is reported as no text.
        let texts = match list_files(&folder.join(&entry)) {
            Ok(files) => files.iter().map(|file| format!("{entry}/{file}")).collect(),
            Err(_) => vec![entry],
        };
        for name in texts {
            if let Err(message) = load_text(folder, &name, &mut prompts) {
                s.refuse_again(KEY, shown.clone(), format!("{name} {message}"));
            }
        }
    }
    prompts
}

/// Replaces one built-in text.
fn load_text(folder: &Path, name: &str, prompts: &mut Prompts) -> Result<(), String> {
    let index = find_text_index(name)?;
    let path = folder.join(name);
    // A pipe or a device might never end.
    let text = match path.metadata() {
        Ok(data) if !data.is_file() => Err(io::Error::other("it is no file")),
        _ => read_text(&path, MAX_BYTES, "a text"),
    };
    let text = text.map_err(|error| {
        format!("cannot be read: {error}; make it a readable file of UTF-8 text")
    })?;
    prompts.replace_text(index, &text)
}

/// The index of a text in [`BUILT_IN`]. An error lists the names that exist.
pub(super) fn find_text_index(name: &str) -> Result<usize, String> {
    let known = BUILT_IN.map(|(name, _)| name);
    let found = known.iter().position(|known| *known == name);
    found.ok_or_else(|| match find_nearest(name, &known) {
        Some(near) => format!("is not the name of a text; did you mean {near}?"),
        None => format!("is not the name of a text; there are {}", known.join(", ")),
    })
}

/// The names in a directory, sorted, without those that begin with a dot.
fn list_files(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)?.take(MAX_FILES) {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
