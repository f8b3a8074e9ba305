//! A value that is never shown.

use std::fmt;

/// Hidden in `Debug` and `Display`; not `Serialize`, so that no config dump can leak it.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden<T>(T);

/// A text that is never shown.
pub type Secret = Hidden<String>;

/// 256 bits that are never shown.
pub type SecretKey = Hidden<[u8; 32]>;

impl<T> Hidden<T> {
    pub fn new(value: impl Into<T>) -> Self {
        Self(value.into())
    }
}

impl Secret {
    /// The value itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl SecretKey {
    /// The key itself, for the one place that uses it.
    pub const fn reveal(&self) -> &[u8; 32] {
        &self.0
    }
}

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl<T> fmt::Display for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}
