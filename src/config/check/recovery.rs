//! Recovery: bounds, and texts that take the place of the built-in prompts.
//!
//! Every file that cannot be used is reported, not only the first. Files whose names begin with a
//! dot are left alone: editors and desktops make them. Nothing is read beyond its bound.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::Checker;
use crate::{
    config::{
        RecoveryConfig,
        file::{self, Speech},
        problem::{Problem, nearest},
    },
    recovery::{
        Language, Prompts,
        prompt::{MAX_CHARS, Unfit, names},
    },
};

/// Files of a folder that are looked at. With the right names there are seven.
const MAX_FILES: usize = 100;

const PROMPTS_DIR: [&str; 2] = ["recovery", "prompts_dir"];

impl Checker<'_> {
    pub(super) fn recovery(&mut self, written: &file::Recovery) -> RecoveryConfig {
        let path = |key| ["recovery", key];
        RecoveryConfig {
            enabled: written.enabled,
            language: match written.language {
                Speech::Auto => None,
                Speech::En => Some(Language::English),
                Speech::Zh => Some(Language::Chinese),
            },
            tools: written.tools,
            caution_cadence: self.cadence(&path("caution_cadence"), written.caution_cadence),
            critical_countdown: self.within(
                &path("critical_countdown"),
                written.critical_countdown,
                1..=100,
                "it is the number of answers from the first critical prompt to a new course",
            ),
            max_rounds: self.within(
                &path("max_rounds"),
                written.max_rounds,
                1..=32,
                "it is how often the model may call nothing but the tools of recovery within one \
                 request",
            ),
            max_tool_result_chars: self.size(
                &path("max_tool_result_chars"),
                written.max_tool_result_chars,
                1_000..=100_000_000,
                "it is the length of a new tool result while the health is not \"healthy\", in \
                 characters",
            ),
            prompts: Arc::new(self.prompts(written.prompts_dir.as_deref())),
            prompts_dir: written.prompts_dir.as_ref().map(PathBuf::from),
        }
    }

    pub(super) fn cadence(&mut self, path: &[&str], value: u32) -> u32 {
        let why = "it is the number of answers from one caution prompt to the next";
        self.within(path, value, 1..=10_000, why)
    }

    fn prompts(&mut self, folder: Option<&str>) -> Prompts {
        let mut prompts = Prompts::default();
        let Some(written) = folder else {
            return prompts;
        };
        if written.is_empty() {
            let message = "must name a directory; leave it out for the built-in texts";
            self.refuse(&PROMPTS_DIR, Some("\"\"".to_owned()), message);
            return prompts;
        }
        let folder = Path::new(written);
        let top = match files(folder) {
            Ok(top) => top,
            Err(error) => {
                let message = format!(
                    "cannot be read: {error}; make the directory, or leave the setting out for the \
                     built-in texts"
                );
                self.refuse(&PROMPTS_DIR, Some(format!("{written:?}")), message);
                return prompts;
            }
        };
        for name in top {
            if names().iter().all(|known| !in_folder(known, &name)) {
                let message = "is not known here; put texts into en/ and zh/, or move it elsewhere";
                self.refuse_text(written, &name, message);
                continue;
            }
            match files(&folder.join(&name)) {
                Ok(files) => {
                    for file in files {
                        self.prompt(written, &format!("{name}/{file}"), &mut prompts);
                    }
                }
                Err(error) => {
                    let message = format!("cannot be read: {error}; it must be a directory");
                    self.refuse_text(written, &name, &message);
                }
            }
        }
        prompts
    }

    /// Reads one text.
    fn prompt(&mut self, folder: &str, name: &str, prompts: &mut Prompts) {
        let known = names();
        if !known.contains(&name) {
            let message = match nearest(name, &known) {
                Some(near) => format!("is not the name of a text; did you mean {near}?"),
                None => {
                    let (language, _) = name.split_once('/').unwrap_or_default();
                    let mut here = known.to_vec();
                    here.retain(|known| in_folder(known, language));
                    format!("is not the name of a text; there are {}", here.join(", "))
                }
            };
            self.refuse_text(folder, name, &message);
            return;
        }
        let message = match read(&Path::new(folder).join(name)) {
            Err(error) => format!("cannot be read: {error}; make it a readable file of UTF-8 text"),
            Ok(text) => match prompts.replace(name, &text) {
                Ok(()) => return,
                Err(Unfit::Empty) => {
                    "is empty; write a text, or remove it for the built-in one".to_owned()
                }
                Err(Unfit::TooLong(most)) => {
                    format!("is longer than {most} characters; shorten it")
                }
                Err(Unfit::NoCount) => {
                    "must contain {remaining}, which stands for the answers that are left"
                        .to_owned()
                }
                Err(Unfit::Unknown) => "is not the name of a text; remove it".to_owned(),
            },
        };
        self.refuse_text(folder, name, &message);
    }

    /// Notes what is wrong with one file of the directory; there may be several.
    fn refuse_text(&mut self, folder: &str, name: &str, message: &str) {
        self.problems.push(Problem {
            origin: self.layers.origin(&PROMPTS_DIR),
            key: PROMPTS_DIR.join("."),
            value: Some(format!("{folder:?}")),
            message: format!("{name} {message}"),
        });
    }
}

/// Whether a text lies in that folder.
fn in_folder(text: &str, folder: &str) -> bool {
    text.split_once('/').is_some_and(|(at, _)| at == folder)
}

/// The names in a directory, in order.
fn files(folder: &Path) -> io::Result<Vec<String>> {
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

/// A whole text; a longer one than any can be is read as far as to see that it is too long.
fn read(path: &Path) -> io::Result<String> {
    // What is no file, such as a pipe, might never end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    const MAX_BYTES: u64 = 4 * MAX_CHARS as u64 + 4;
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)?;
    let whole = (bytes.len() as u64) < MAX_BYTES;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // Cut inside a character by our own bound.
        Err(error) if !whole && error.utf8_error().error_len().is_none() => {
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not UTF-8",
        )),
    }
}
