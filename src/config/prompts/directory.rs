//! Reads the directory of texts that take the place of the built-in prompts.
//!
//! Every file that cannot be used is reported, not only the first. Files whose names begin with a
//! dot are left alone: editors and desktops make them. Nothing is read beyond its bound.

use std::{fs, io, path::Path};

use super::{MAX_CHARS, Prompts, list_text_names};
use crate::config::{load::read_text, problem::find_nearest, section::Section};

/// Files of a folder that are looked at. With the right names there are nine.
const MAX_FILES: usize = 100;

/// Bytes of the longest text.
const MAX_BYTES: u64 = 4 * MAX_CHARS as u64 + 4;

const KEY: &str = "prompts_dir";

/// The built-in texts, and those of a directory over them.
pub(in crate::config) fn read_prompts(s: &mut Section, folder: Option<&Path>) -> Prompts {
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
            let message = format!(
                "cannot be read: {error}; make the directory, or leave the setting out for the \
                 built-in texts"
            );
            s.refuse_value(KEY, Some(shown), message);
            return prompts;
        }
    };
    for entry in names {
        // A file beside the directories of languages is no text either, and said to be none.
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

/// Puts one text of a directory in the place of the built-in one.
fn load_text(folder: &Path, name: &str, prompts: &mut Prompts) -> Result<(), String> {
    let at = find_text_index(name)?;
    let path = folder.join(name);
    // What is no file, such as a pipe, might never end.
    let text = match path.metadata() {
        Ok(data) if !data.is_file() => Err(io::Error::other("it is no file")),
        _ => read_text(&path, MAX_BYTES, "a text"),
    };
    let text = text.map_err(|error| {
        format!("cannot be read: {error}; make it a readable file of UTF-8 text")
    })?;
    prompts.replace_text(at, &text)
}

/// The number of a text by its name, else which there are.
pub(super) fn find_text_index(name: &str) -> Result<usize, String> {
    let known = list_text_names();
    let found = known.iter().position(|known| *known == name);
    found.ok_or_else(|| match find_nearest(name, &known) {
        Some(near) => format!("is not the name of a text; did you mean {near}?"),
        None => format!("is not the name of a text; there are {}", known.join(", ")),
    })
}

/// The names in a directory, in order.
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
