//! Edits of a client's file: the values of its row are set, and taken out again; everything else in the file stays.
//!
//! A row's content is read as [`Leaf`]s, so that the same values are printed, written, compared and removed, in JSON and TOML
//! alike. A file that cannot be edited safely is refused: nothing here guesses.

mod json;
mod toml;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClientFile, FileFormat, Values};

/// One value of a file. Objects and tables are paths; an array has its elements one by one, each at the array's path.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(in crate::cli) struct Leaf {
    pub(in crate::cli) path: Vec<String>,
    pub(in crate::cli) value: Value,
    pub(in crate::cli) is_element: bool,
}

/// A file that can be edited.
trait Document: Sized {
    /// How a comment begins that fills a line.
    const COMMENT: &str;
    /// # Errors
    /// Why the text cannot be edited.
    fn parse(text: &str) -> Result<Self, String>;
    /// The whole content, in the order of the text.
    fn list_leaves(&self) -> Vec<Leaf>;
    fn has(&self, path: &[String]) -> bool;
    /// Sets a value, or appends an element that is not there yet.
    ///
    /// # Errors
    /// What stands in the way.
    fn set(&mut self, leaf: &Leaf) -> Result<(), String>;
    /// Sets a value to what it was.
    ///
    /// # Errors
    /// What stands in the way.
    fn put_back(&mut self, leaf: &Leaf, before: &Self) -> Result<(), String>;
    /// Takes out a value or an element that is there.
    fn remove(&mut self, leaf: &Leaf);
    /// Takes out what is at a path, if it is empty.
    fn prune(&mut self, path: &[String]);
    fn write(&self) -> String;
}

/// The values of a client's file for some models, each by its own [`Values`]. Where two of them disagree, as on the model to begin
/// with, the first one counts.
pub(in crate::cli) fn list_leaves(file: &ClientFile, models: &[Values]) -> Vec<Leaf> {
    let content = match file.format {
        FileFormat::Json => json::Json::parse(file.content).map(|it| it.list_leaves()),
        FileFormat::Toml => toml::Toml::parse(file.content).map(|it| it.list_leaves()),
        FileFormat::Yaml => Ok(Vec::new()),
    };
    let content = content.unwrap_or_default();
    let mut leaves: Vec<Leaf> = Vec::new();
    for leaf in models.iter().flat_map(|values| fill_in(&content, values)) {
        let is_there =
            |it: &Leaf| it.path == leaf.path && (!leaf.is_element || it.value == leaf.value);
        if !leaves.iter().any(is_there) {
            leaves.push(leaf);
        }
    }
    leaves
}

/// The leaves whose placeholders all have a value.
fn fill_in<'a>(content: &'a [Leaf], values: &'a Values) -> impl Iterator<Item = Leaf> + 'a {
    content.iter().filter_map(|leaf| {
        let path = leaf.path.iter().map(|name| values.expand(name));
        Some(Leaf {
            path: path.collect::<Option<_>>()?,
            value: fill_in_value(&leaf.value, values)?,
            is_element: leaf.is_element,
        })
    })
}

/// A text that is `{window}` or `{output}` and nothing else becomes a number.
fn fill_in_value(value: &Value, values: &Values) -> Option<Value> {
    Some(match value {
        Value::String(text) if text == "{window}" => values.window?.into(),
        Value::String(text) if text == "{output}" => values.longest_answer().into(),
        Value::String(text) => values.expand(text)?.into(),
        Value::Object(members) => {
            let filled = members.iter().filter_map(|(name, value)| {
                Some((values.expand(name)?, fill_in_value(value, values)?))
            });
            Value::Object(filled.collect())
        }
        other => other.clone(),
    })
}

/// The text with the values set; without a text, a file of them alone.
///
/// # Errors
/// Why the text cannot be edited.
pub(in crate::cli) fn set_leaves(
    format: FileFormat,
    text: Option<&str>,
    leaves: &[Leaf],
) -> Result<String, String> {
    let set = |text: &str| match format {
        FileFormat::Json => set_in::<json::Json>(text, leaves),
        FileFormat::Toml => set_in::<toml::Toml>(text, leaves),
        FileFormat::Yaml => Err("YAML is not edited".to_owned()),
    };
    match text {
        Some(text) => keep_line_ends(text, set),
        None => set("").map(|text| text.trim_end().to_owned() + "\n"),
    }
}

fn set_in<D: Document>(text: &str, leaves: &[Leaf]) -> Result<String, String> {
    let mut document = D::parse(text)?;
    for leaf in leaves {
        document.set(leaf)?;
    }
    let text = document.write();
    // Of a key that stands twice, readers take the last.
    let written = D::parse(&text)?.list_leaves();
    match leaves.iter().find(|leaf| !written.contains(leaf)) {
        Some(leaf) => Err(format!(
            "{} cannot be set in it: its place is within braces",
            leaf.path.join(".")
        )),
        None => Ok(text),
    }
}

/// Words in the names of values that may be secrets.
const SECRET_WORDS: [&str; 6] = ["auth", "header", "key", "password", "secret", "token"];
/// In bytes; shorter texts are words, such as `unused`.
const LEAST_SECRET: usize = 8;

/// The text as it may be shown: without the values that may be secrets by their names.
///
/// SECURITY: what a command prints is pasted elsewhere.
pub(in crate::cli) fn hide_secrets(format: FileFormat, text: &str) -> String {
    let leaves = match format {
        FileFormat::Json => json::Json::parse(text).map(|it| it.list_leaves()),
        FileFormat::Toml => toml::Toml::parse(text).map(|it| it.list_leaves()),
        FileFormat::Yaml => Ok(Vec::new()),
    };
    let may_be_secret = |leaf: &Leaf| {
        let names = leaf.path.iter().map(|name| name.to_ascii_lowercase());
        names
            .flat_map(|name| SECRET_WORDS.map(|word| name.contains(word)))
            .any(|has| has)
    };
    let secret = leaves.unwrap_or_default().into_iter().filter(may_be_secret);
    let texts = secret.filter_map(|leaf| leaf.value.as_str().map(str::to_owned));
    let texts = texts.filter(|text| text.len() >= LEAST_SECRET);
    texts.fold(text.to_owned(), |shown, secret| shown.replace(&secret, "…"))
}

/// What is left of a text without the values.
#[derive(Debug)]
pub(in crate::cli) struct Removed {
    pub(in crate::cli) text: String,
    /// Paths of values that are not as they were set. They stay.
    pub(in crate::cli) changed: Vec<String>,
    /// Paths of values that somebody has added to what was set: in a table that was not there before. They stay, and the client may
    /// miss what stood beside them.
    pub(in crate::cli) added: Vec<String>,
}

/// The text without the values, which are there again as in `before`. What was set and has another value since stays.
///
/// # Errors
/// Why the text cannot be edited.
pub(in crate::cli) fn remove_leaves(
    format: FileFormat,
    text: &str,
    before: Option<&str>,
    leaves: &[Leaf],
) -> Result<Removed, String> {
    let (mut changed, mut added) = (Vec::new(), Vec::new());
    let before = to_line_feeds(before.unwrap_or_default());
    let text = keep_line_ends(text, |text| {
        let removed = match format {
            FileFormat::Json => remove_in::<json::Json>(text, &before, leaves)?,
            FileFormat::Toml => remove_in::<toml::Toml>(text, &before, leaves)?,
            FileFormat::Yaml => return Err("YAML is not edited".to_owned()),
        };
        (changed, added) = (removed.changed, removed.added);
        Ok(removed.text)
    })?;
    Ok(Removed {
        text,
        changed,
        added,
    })
}

fn remove_in<D: Document>(text: &str, before: &str, leaves: &[Leaf]) -> Result<Removed, String> {
    let mut document = D::parse(text)?;
    let before = D::parse(before)?;
    let present = document.list_leaves();
    let past = before.list_leaves();
    let mut changed = Vec::new();
    for leaf in leaves.iter().rev() {
        if !present.contains(leaf) {
            let is_gone = leaf.is_element || !document.has(&leaf.path);
            changed.extend((!is_gone).then(|| leaf.path.join(".")));
            continue;
        }
        if !leaf.is_element && before.has(&leaf.path) {
            document.put_back(leaf, &before)?;
        } else if !past.contains(leaf) {
            document.remove(leaf);
        }
        for end in (1..=leaf.path.len()).rev() {
            let above = &leaf.path[..end];
            if !before.has(above) {
                document.prune(above);
            }
        }
    }
    let added = list_added(&document, &before, leaves);
    let text = return_comments::<D>(text, document.write());
    Ok(Removed {
        text,
        changed,
        added,
    })
}

/// What is left in the tables that were set, and was neither set nor there before.
fn list_added<D: Document>(document: &D, before: &D, leaves: &[Leaf]) -> Vec<String> {
    let is_set = |leaf: &Leaf| leaves.iter().any(|own| own.path == leaf.path);
    let is_beside = |leaf: &Leaf| {
        let own = leaves.iter().filter_map(|own| own.path.split_last());
        let mut tables = own.map(|(_, above)| above).filter(|it| !it.is_empty());
        tables.any(|table| leaf.path.starts_with(table) && !before.has(table))
    };
    let left = document.list_leaves().into_iter();
    let mut added: Vec<String> = left
        .filter(|leaf| !is_set(leaf) && is_beside(leaf))
        .map(|leaf| leaf.path.join("."))
        .collect();
    added.dedup();
    added
}

/// The edited text with the comments that went with the values below them: nothing that was written is a comment.
fn return_comments<D: Document>(text: &str, edited: String) -> String {
    let is_comment = |line: &str| line.trim_start().starts_with(D::COMMENT);
    let returned: String = similar::TextDiff::from_lines(text, &*edited)
        .iter_all_changes()
        .filter(|change| change.tag() != similar::ChangeTag::Delete || is_comment(change.value()))
        .map(|change| change.value().to_owned())
        .collect();
    let list = |text: &str| D::parse(text).map(|document| document.list_leaves());
    // In a text of several lines, what looks like a comment is none.
    if list(&returned) == list(&edited) {
        returned
    } else {
        edited
    }
}

/// Edits a text in the form that the editors know: lines that end with a line feed, without a byte order mark. Both come back.
///
/// # Errors
/// Line ends of both kinds: they would not come back as they were.
fn keep_line_ends(
    text: &str,
    edit: impl FnOnce(&str) -> Result<String, String>,
) -> Result<String, String> {
    let (mark, body) = match text.strip_prefix('\u{feff}') {
        Some(body) => ("\u{feff}", body),
        None => ("", text),
    };
    let plain = to_line_feeds(body);
    let has_returns = plain.len() < body.len();
    if has_returns && body.replace("\r\n", "").contains('\n') || plain.contains('\r') {
        return Err("its lines end in different ways".to_owned());
    }
    let edited = edit(&plain)?;
    Ok(mark.to_owned()
        + &if has_returns {
            edited.replace('\n', "\r\n")
        } else {
            edited
        })
}

fn to_line_feeds(text: &str) -> String {
    text.trim_start_matches('\u{feff}').replace("\r\n", "\n")
}

#[cfg(test)]
mod tests;
