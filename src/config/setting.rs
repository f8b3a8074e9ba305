//! The settings in force as an administrator sees them: each with its value and where that comes from.
//!
//! SECURITY: what may be a key never leaves this file. Each setting is read with a [`Show`], so that a new
//! one is shown only after somebody decided how.

use serde::Serialize;
use serde_json::Value;

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// With its section, as in `providers.openai.base_url`.
    pub key: String,
    /// `null` where nothing is set, and where it is hidden.
    pub value: Value,
    pub hidden: bool,
    pub from: SettingSource,
    /// The file, variable or flag; `None` for a default.
    pub origin: Option<String>,
}

/// Who has the last word on a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingSource {
    Default,
    File,
    Environment,
    Flag,
}

/// How much of a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    /// All: it can be no secret.
    Plain,
    /// An address without user, password and query.
    Address,
    /// The name of an environment variable, unless it may be the secret itself.
    Variable,
    Hidden,
}

impl Visibility {
    /// The value as it may be shown; `None`: not at all.
    pub(super) fn redact_value(self, value: Value) -> Option<Value> {
        match (value, self) {
            (value @ Value::Null, _) | (value, Self::Plain) => Some(value),
            (Value::String(text), Self::Address) => Some(redact_address(&text).into()),
            (Value::String(text), Self::Variable) if is_variable(&text) => Some(text.into()),
            _ => None,
        }
    }
}

/// The settings that are in force after a change: of `waiting`, keys or sections that need a restart, those
/// of before.
pub(super) fn keep_until_restart(
    before: &[Setting],
    next: &[Setting],
    waiting: &[&str],
) -> Vec<Setting> {
    let in_force = |setting: &Setting| {
        let waits = waiting.iter().any(|key| is_under(&setting.key, key));
        let before = || before.iter().find(|before| before.key == setting.key);
        let before = waits.then(before).flatten();
        before.unwrap_or(setting).clone()
    };
    // Sections that wait have the same keys always.
    next.iter().map(in_force).collect()
}

/// Whether a key is that of a section or of something in it.
pub(super) fn is_under(key: &str, section: &str) -> bool {
    let rest = key.strip_prefix(section);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a text is written as names of environment variables are. Anything else may be the secret itself,
/// put in the place of its name.
pub(super) fn is_variable(text: &str) -> bool {
    let named = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.chars().all(named) && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// An address, or several with commas, without what stands in it for credentials.
fn redact_address(text: &str) -> String {
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
