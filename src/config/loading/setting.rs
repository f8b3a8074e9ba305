//! The settings in force as an administrator sees them: each with its value and its source.
//!
//! SECURITY: a value that may be a secret never leaves this file. Each setting is read with a [`Visibility`], so
//! the code of each new setting states how much of it is shown.

use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The dotted path, as in `providers.openai.base_url`.
    pub key: String,
    /// `null` where the setting has no value, and where it is hidden.
    pub value: Value,
    pub hidden: bool,
    /// What applies where the setting has no value.
    #[serde(skip)]
    pub unset: &'static str,
    pub from: SettingSource,
    /// The file, variable or flag; `None` for a default.
    pub origin: Option<String>,
}

/// The kind of source that sets a value; the later ones override the earlier.
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
pub(crate) enum Visibility {
    /// The whole value: it is never a secret.
    Plain,
    /// An address without user, password and query.
    Address,
    /// The scheme, the host and the port of an address, whose path may have a key in it.
    Origin,
    /// The name of an environment variable. A text that does not look like one is hidden: it may be the secret.
    Variable,
    Hidden,
}

impl Visibility {
    /// The value as it may be shown; `None` hides it.
    pub(crate) fn redact_value(self, value: Value) -> Option<Value> {
        match (value, self) {
            (value @ Value::Null, _) | (value, Self::Plain) => Some(value),
            (Value::String(text), Self::Address) => Some(redact_address(&text).into()),
            (Value::String(text), Self::Origin) if !text.is_empty() => {
                let url = reqwest::Url::parse(&text).ok()?;
                Some(url.origin().ascii_serialization().into())
            }
            (value @ Value::String(_), Self::Origin) => Some(value),
            (Value::String(text), Self::Variable) if is_variable(&text) => Some(text.into()),
            _ => None,
        }
    }
}

/// The settings in force after a reload: `next`, with the old values of the keys and sections in `waiting`, which
/// need a restart.
pub(crate) fn keep_until_restart(
    before: &[Setting],
    next: &[Setting],
    waiting: &[&str],
) -> Vec<Setting> {
    // The sections that need a restart always have the same keys.
    let in_force = |setting: &Setting| {
        let waits = waiting.iter().any(|key| is_under(&setting.key, key));
        let mut old = before.iter().filter(|old| waits && old.key == setting.key);
        old.next().unwrap_or(setting).clone()
    };
    next.iter().map(in_force).collect()
}

/// Whether a key is `section` itself or lies in it.
pub(crate) fn is_under(key: &str, section: &str) -> bool {
    let rest = key.strip_prefix(section);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a text looks like the name of an environment variable: capitals, digits and underscores.
pub(crate) fn is_variable(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.chars().all(allowed) && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// An address, or several separated by commas, without user, password and query.
pub(crate) fn redact_address(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    // A password may contain any character, so everything up to the last @ is removed, and of several addresses
    // all but the last. Where a ? or # stands before the @, the password may continue to the end.
    let (user, rest) = match rest.rsplit_once('@') {
        Some((before, _)) if before.contains(['?', '#']) => return format!("{scheme}***"),
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let (host_and_path, query) = match rest.find(['?', '#']) {
        Some(end) => (&rest[..end], "?***"),
        None => (rest, ""),
    };
    format!("{scheme}{user}{host_and_path}{query}")
}

#[cfg(test)]
mod tests;
