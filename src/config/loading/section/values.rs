//! Readers for kinds of values: numbers in a range, durations, patterns, and secrets by the name of a variable.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use crate::config::{
    loading::{
        section::Section,
        setting::{Visibility, is_variable},
    },
    secret::{Secret, SecretKey},
};

/// A day. A longer duration is written in the wrong unit.
const MAX_DURATION_MS: u64 = 86_400_000;

/// What a setting can hold.
pub(crate) trait SettingValue: Serialize + DeserializeOwned {}
impl<T: Serialize + DeserializeOwned> SettingValue for T {}

pub(crate) trait Number: SettingValue + PartialOrd + Display + Copy {}
impl<T: SettingValue + PartialOrd + Display + Copy> Number for T {}

impl Section<'_> {
    /// A value that is never a secret.
    pub(crate) fn read_plain<T: SettingValue + Clone>(&mut self, key: &str, default: T) -> T {
        let value = self.read_value(key, Some(default.clone()), Visibility::Plain);
        value.unwrap_or(default)
    }

    /// An address that may contain credentials.
    pub(crate) fn read_address(&mut self, key: &str, default: &str) -> String {
        let value = self.read_value(key, Some(default.to_owned()), Visibility::Address);
        value.unwrap_or_default()
    }

    /// An address whose path may be a credential.
    pub(crate) fn read_secret_address(&mut self, key: &str) -> String {
        let value = self.read_value(key, Some(String::new()), Visibility::Origin);
        value.unwrap_or_default()
    }

    /// A value without a default.
    pub(crate) fn read_option<T: SettingValue>(
        &mut self,
        key: &str,
        show: Visibility,
    ) -> Option<T> {
        self.read_value(key, None, show)
    }

    /// A number within `range`. `why` ends the message about a number outside of it: meaning and unit.
    pub(crate) fn read_number<T: Number>(
        &mut self,
        key: &str,
        default: T,
        range: RangeInclusive<T>,
        why: &str,
    ) -> T {
        let value = self.read_plain(key, default);
        self.note_range(key, &range);
        self.check_range(key, value, &range, why)
    }

    /// [`Self::read_number`] without a default.
    pub(crate) fn read_optional_number<T: Number>(
        &mut self,
        key: &str,
        range: RangeInclusive<T>,
        why: &str,
    ) -> Option<T> {
        let value = self.read_option(key, Visibility::Plain);
        self.note_range(key, &range);
        Some(self.check_range(key, value?, &range, why))
    }

    /// Notes the bounds of a number for the schema, unless they follow from other settings.
    fn note_range<T: Number>(&mut self, key: &str, range: &RangeInclusive<T>) {
        let follow = std::mem::take(&mut self.bounds_follow);
        let path = self.key_path(key);
        if let Some(schema) = self.schema.as_mut().filter(|_| !follow) {
            let [least, most] = [range.start(), range.end()].map(serde_json::to_value);
            schema.note_range(&path, least.unwrap_or_default(), most.unwrap_or_default());
        }
    }

    /// Refuses a number outside of `range`; returns it unchanged.
    pub(crate) fn check_range<T: Number>(
        &mut self,
        key: &str,
        value: T,
        range: &RangeInclusive<T>,
        why: &str,
    ) -> T {
        if !range.contains(&value) {
            let bound = if value < *range.start() {
                format!("must be at least {}", range.start())
            } else {
                format!("must be at most {}", range.end())
            };
            self.refuse_value(key, Some(value.to_string()), format!("{bound}; {why}"));
        }
        value
    }

    /// A duration in milliseconds, from `least` to a day.
    pub(crate) fn read_millis(&mut self, key: &str, default: u64, least: u64) -> Duration {
        let why = "the unit is milliseconds";
        Duration::from_millis(self.read_number(key, default, least..=MAX_DURATION_MS, why))
    }

    /// Patterns as [`is_pattern`] accepts them. `what` names their kind in messages.
    pub(crate) fn read_patterns(&mut self, key: &str, default: &[&str], what: &str) -> Vec<String> {
        let default = default.iter().copied().map(str::to_owned).collect();
        let patterns: Vec<String> = self.read_plain(key, default);
        for pattern in &patterns {
            self.check_pattern(key, pattern, what);
        }
        patterns
    }

    /// Refuses a text that is not a pattern. `what` names the kind of pattern in the message.
    pub(crate) fn check_pattern(&mut self, key: &str, pattern: &str, what: &str) {
        if !is_pattern(pattern) {
            let message = format!("must be {what}, or its beginning with one * at the end");
            self.refuse_text(key, pattern, message);
        }
    }

    /// A SHA-256 in hexadecimal. No message shows the value: it may be the key itself, written here by mistake.
    pub(crate) fn read_digest(&mut self, key: &str) -> Option<[u8; 32]> {
        let written: String = self.read_option(key, Visibility::Hidden)?;
        let mut digest = [0; 32];
        if hex::decode_to_slice(written.trim(), &mut digest).is_err() {
            let message = "must be 64 hexadecimal digits (the value is not shown, it may be a key); \
                           make them with: printf %s \"$KEY\" | sha256sum";
            self.refuse_value(key, None, message);
        }
        if digest == <[u8; 32]>::from(<sha2::Sha256 as sha2::Digest>::digest(b"")) {
            let message = "is the digest of an empty key; set KEY, and make the digest again with: \
                           printf %s \"$KEY\" | sha256sum";
            self.refuse_value(key, None, message);
        }
        Some(digest)
    }

    /// The secret in the environment variable that a setting names.
    pub(crate) fn read_named_secret(&mut self, key: &str) -> Option<Secret> {
        let variable: String = self.read_option(key, Visibility::Variable)?;
        self.resolve_secret(key, &variable)
    }

    /// The secret in an environment variable. `None` if the variable is empty or not set: the proxy does not start
    /// then, and other commands warn.
    pub(crate) fn resolve_secret(&mut self, key: &str, variable: &str) -> Option<Secret> {
        let value = self.environment.get_variable(variable);
        let value = value.filter(|value| !value.trim().is_empty());
        if value.is_none() {
            if is_variable(variable) {
                self.note_missing_variable(key, variable)
            } else {
                // SECURITY: a user may have written the secret itself here; no log may show it.
                let message = "names an environment variable that is not set (the value is not shown, it \
                                   may be a secret); set it, or name another";
                self.refuse_value(key, None, message);
            }
        }
        value.map(Secret::new)
    }

    /// The 256 bits, in hexadecimal, in the environment variable that a setting names.
    pub(crate) fn read_named_key(&mut self, key: &str) -> Option<SecretKey> {
        let variable: String = self.read_option(key, Visibility::Variable)?;
        let text = self.resolve_secret(key, &variable)?;
        let mut bits = [0; 32];
        if hex::decode_to_slice(text.reveal().trim(), &mut bits).is_err() {
            let message = "must name a variable of 64 hexadecimal digits; make them with: openssl \
                           rand -hex 32";
            self.refuse_text(key, &variable, message);
        }
        Some(SecretKey::new(bits))
    }
}

/// Whether a text is a name, or the beginning of a name with a `*` at the end.
pub(crate) fn is_pattern(text: &str) -> bool {
    let name = text.strip_suffix('*').unwrap_or(text);
    !text.is_empty() && !name.contains('*')
}
