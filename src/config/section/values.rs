//! Values of settings: numbers within their bounds, times, patterns, and secrets by the name of a variable.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::Section;
use crate::config::{
    secret::{Secret, SecretKey},
    setting::{Visibility, is_variable},
};

/// A day: longer waits are a unit mistaken.
const MAX_WAIT_MS: u64 = 86_400_000;

impl Section<'_> {
    /// A value that can be no secret.
    pub(in crate::config) fn read_plain<T: DeserializeOwned + Serialize + Clone>(
        &mut self,
        key: &str,
        default: T,
    ) -> T {
        let read = self.read_value(key, Some(default.clone()), Visibility::Plain);
        read.unwrap_or(default)
    }

    /// A text that may have credentials in it.
    pub(in crate::config) fn read_address(&mut self, key: &str, default: &str) -> String {
        let read = self.read_value(key, Some(default.to_owned()), Visibility::Address);
        read.unwrap_or_default()
    }

    /// A value that may be unset.
    pub(in crate::config) fn read_option<T: DeserializeOwned + Serialize>(
        &mut self,
        key: &str,
        show: Visibility,
    ) -> Option<T> {
        self.read_value(key, None, show)
    }

    /// A number within its range; `why` says what it is and in which unit.
    pub(in crate::config) fn read_number<T: Number>(
        &mut self,
        key: &str,
        default: T,
        range: RangeInclusive<T>,
        why: &str,
    ) -> T {
        let value = self.read_plain(key, default);
        self.check_range(key, value, &range, why)
    }

    /// The same where it may be unset.
    pub(in crate::config) fn read_optional_number<T: Number>(
        &mut self,
        key: &str,
        range: RangeInclusive<T>,
        why: &str,
    ) -> Option<T> {
        let value = self.read_option(key, Visibility::Plain)?;
        Some(self.check_range(key, value, &range, why))
    }

    /// A number that was read, held to its range.
    pub(in crate::config) fn check_range<T: Number>(
        &mut self,
        key: &str,
        value: T,
        range: &RangeInclusive<T>,
        why: &str,
    ) -> T {
        if !range.contains(&value) {
            let bound = match value < *range.start() {
                true => format!("must be at least {}", range.start()),
                false => format!("must be at most {}", range.end()),
            };
            self.refuse_value(key, Some(value.to_string()), format!("{bound}; {why}"));
        }
        value
    }

    /// A time in milliseconds, a day at most.
    pub(in crate::config) fn read_millis(
        &mut self,
        key: &str,
        default: u64,
        least: u64,
    ) -> Duration {
        let why = "the unit is milliseconds";
        Duration::from_millis(self.read_number(key, default, least..=MAX_WAIT_MS, why))
    }

    /// Names, or beginnings of names with a `*` at their end; `what` says of what.
    pub(in crate::config) fn read_patterns(
        &mut self,
        key: &str,
        default: &[&str],
        what: &str,
    ) -> Vec<String> {
        let default = default.iter().copied().map(str::to_owned).collect();
        let patterns: Vec<String> = self.read_plain(key, default);
        for pattern in &patterns {
            self.check_pattern(key, pattern, what);
        }
        patterns
    }

    /// A pattern that was read.
    pub(in crate::config) fn check_pattern(&mut self, key: &str, pattern: &str, what: &str) {
        if !is_pattern(pattern) {
            let message = format!("must be {what}, or its beginning with one * at the end");
            self.refuse_text(key, pattern, message);
        }
    }

    /// A SHA-256 in hexadecimal. The value is never shown: it may be the key itself, put in the
    /// wrong place.
    pub(in crate::config) fn read_digest(&mut self, key: &str) -> Option<[u8; 32]> {
        let written: String = self.read_option(key, Visibility::Hidden)?;
        let mut digest = [0; 32];
        if hex::decode_to_slice(written.trim(), &mut digest).is_err() {
            let message = "must be 64 hexadecimal digits (the value is not shown, it may be a key); \
                           make them with: printf %s \"$KEY\" | sha256sum";
            self.refuse_value(key, None, message);
        }
        if digest == <[u8; 32]>::from(<sha2::Sha256 as sha2::Digest>::digest(b"")) {
            let message = "is the digest of nothing at all; the key was empty when it was made";
            self.refuse_value(key, None, message);
        }
        Some(digest)
    }

    /// What the environment variable holds that a setting names.
    pub(in crate::config) fn read_named_secret(&mut self, key: &str) -> Option<Secret> {
        let variable: String = self.read_option(key, Visibility::Variable)?;
        self.resolve_secret(key, &variable)
    }

    /// What an environment variable holds.
    pub(in crate::config) fn resolve_secret(
        &mut self,
        key: &str,
        variable: &str,
    ) -> Option<Secret> {
        let value = self.environment.get_variable(variable);
        if value.is_none_or(|value| value.trim().is_empty()) {
            // SECURITY: who mistakes this for the place of the secret itself must not find it in a log.
            let shown = is_variable(variable).then(|| format!("{variable:?}"));
            let hint = match shown {
                Some(_) => "",
                None => " (the value is not shown, it may be a secret)",
            };
            let message = format!(
                "names an environment variable that is not set{hint}; set it, or name another"
            );
            self.refuse_value(key, shown, message);
        }
        value.map(Secret::new)
    }

    /// The 256 bits in the environment variable that a setting names.
    pub(in crate::config) fn read_named_key(&mut self, key: &str) -> Option<SecretKey> {
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

/// Whether a text is a name, or its beginning with a `*` at the end.
pub(in crate::config) fn is_pattern(text: &str) -> bool {
    let name = text.strip_suffix('*').unwrap_or(text);
    !text.is_empty() && !name.contains('*')
}

/// What a range can bound.
pub(in crate::config) trait Number:
    PartialOrd + Display + Copy + Serialize + DeserializeOwned
{
}

impl<T: PartialOrd + Display + Copy + Serialize + DeserializeOwned> Number for T {}
