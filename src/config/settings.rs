//! The settings in force as an administrator sees them: each with its value and where that comes from.
//!
//! SECURITY: what may be a key never leaves this file. Numbers and switches are shown; a text is shown only
//! where its key is known to hold none, addresses without user, password and query, and everything else is
//! hidden, so that a setting that is added later is hidden until somebody decides.

use serde::Serialize;
use serde_json::Value;

use super::{file::File, layer::Layers, problem::dotted};

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// With its section, as in `providers.openai.base_url`.
    pub key: String,
    /// `null` where nothing is set, and where it is hidden.
    pub value: Value,
    pub hidden: bool,
    pub from: Source,
    /// The file, variable or flag; `None` for a default.
    pub origin: Option<String>,
}

/// Who has the last word on a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Default,
    File,
    Environment,
    Flag,
}

/// Keys whose texts hold no secret. Those that end with `_env` name a variable and are shown too.
const PLAIN: [&str; 22] = [
    "auth",
    "ca_file",
    "data_dir",
    "default_provider",
    "deployments",
    "exclude_tools",
    "fallback",
    "key_header",
    "language",
    "larger",
    "listen",
    "model",
    "models",
    "paths",
    "prefix",
    "preset",
    "profile",
    "prompts_dir",
    "provider",
    "service_name",
    "tools",
    "usage",
];

/// Keys that hold addresses.
const ADDRESSES: [&str; 3] = ["base_url", "endpoint", "url"];

/// All settings of a file and the layers it was made of, by key.
pub(super) fn settings(file: &File, layers: &Layers) -> Vec<Setting> {
    let mut all = Vec::new();
    // A shape of our own always becomes JSON.
    let whole = serde_json::to_value(file).unwrap_or_default();
    walk(&mut Vec::new(), &whole, layers, &mut all);
    all
}

/// The settings that are in force after a change: of `waiting`, keys or sections that need a restart, those
/// of before.
pub(super) fn settle(before: &[Setting], next: &[Setting], waiting: &[&str]) -> Vec<Setting> {
    let waits = |setting: &&Setting| {
        let under = |key: &&str| {
            let rest = setting.key.strip_prefix(*key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        waiting.iter().any(under)
    };
    let taken = next.iter().filter(|setting| !waits(setting));
    let mut all: Vec<_> = taken.chain(before.iter().filter(waits)).cloned().collect();
    all.sort_by(|one, other| one.key.cmp(&other.key));
    all
}

fn walk(path: &mut Vec<String>, value: &Value, layers: &Layers, all: &mut Vec<Setting>) {
    if let Value::Object(members) = value {
        for (name, value) in members {
            path.push(name.clone());
            walk(path, value, layers, all);
            path.pop();
        }
        return;
    }
    let shown = shown(path, value);
    let (from, origin) = match layers.source(path) {
        Some((source, origin)) => (source, Some(origin)),
        None => (Source::Default, None),
    };
    all.push(Setting {
        key: dotted(path),
        hidden: shown.is_none(),
        value: shown.unwrap_or_default(),
        from,
        origin,
    });
}

/// The value as it may be shown; `None`: not at all.
fn shown(path: &[String], value: &Value) -> Option<Value> {
    let (last, above) = path.split_last()?;
    // Values of headers and of aliases have names of the user's own.
    if above.last().is_some_and(|above| above == "headers") {
        return None;
    }
    let is_alias = above.len() == 1 && above[0] == "aliases";
    let last = last.as_str();
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.clone()),
        Value::String(text) if ADDRESSES.contains(&last) => Some(address(text).into()),
        Value::String(text) if last.ends_with("_env") && is_variable(text) => Some(value.clone()),
        _ if is_alias || PLAIN.contains(&last) => Some(value.clone()),
        _ => None,
    }
}

/// Whether a text is written as names of environment variables are. Anything else may be the secret itself,
/// put in the place of its name.
fn is_variable(text: &str) -> bool {
    let named = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.chars().all(named) && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// An address, or several with commas, without what stands in it for credentials.
fn address(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    // A password may hold any character, so all ahead of the last @ goes; with several addresses also what
    // stands between them. After a query has begun, nothing tells a password from the query.
    let (user, rest) = match rest.rsplit_once('@') {
        Some((before, _)) if before.contains(['?', '#']) => return format!("{scheme}***"),
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let (place, query) = match rest.find(['?', '#']) {
        Some(end) => (&rest[..end], "?***"),
        None => (rest, ""),
    };
    format!("{scheme}{user}{place}{query}")
}

#[cfg(test)]
mod tests;
