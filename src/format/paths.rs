//! The paths of the wire formats.

use crate::conversation::{FORMATS, Format};

impl Format {
    /// The path of a request, behind `/v1`.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Messages => "/messages",
            #[cfg(test)]
            Self::Toy => "/toy",
        }
    }

    /// The format whose requests have this path behind `/v1`.
    pub fn from_path(path: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.path() == path)
    }

    /// The format of a whole path, also of one below a format's own: its clients read errors in that shape.
    pub fn of_whole_path(path: &str) -> Self {
        let is_below = |format: &Self| {
            let (_, rest) = path.split_once("/v1").unwrap_or_default();
            let rest = rest.strip_prefix(format.path());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        FORMATS.into_iter().find(is_below).unwrap_or(Self::Chat)
    }
}
