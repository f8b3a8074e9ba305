//! Secret values, which no log line and no dump of the settings shows.

use std::fmt;

/// Prints as `[hidden]` in `Debug` and `Display`. It is not `Serialize`, so that no dump of the settings can
/// leak it.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden<T>(T);

pub type Secret = Hidden<String>;

pub type SecretKey = Hidden<[u8; 32]>;

impl<T> Hidden<T> {
    pub fn new(value: impl Into<T>) -> Self {
        Self(value.into())
    }
}

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl SecretKey {
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
        fmt::Debug::fmt(self, f)
    }
}
