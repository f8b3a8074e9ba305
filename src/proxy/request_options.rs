//! Options that a client sets in headers of its request.

use http::{HeaderMap, HeaderName, HeaderValue};

const GUARD: HeaderName = HeaderName::from_static("x-plimsoll-guard");
const RECOVERY: HeaderName = HeaderName::from_static("x-plimsoll-recovery");
const AUTO_COMPACT: HeaderName = HeaderName::from_static("x-plimsoll-auto-compact");
const STREAM_HEALTH: HeaderName = HeaderName::from_static("x-plimsoll-stream-health");

/// How the guard treats a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardMode {
    Guard,
    /// Forward untouched, report what would be done.
    DryRun,
    /// Forward untouched, still measure.
    Off,
}

/// Options of a request for the guard, recovery and compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOptions {
    pub mode: GuardMode,
    /// Recovery may add a new prompt, tools or a course. Earlier additions stay either way, so that the prefix does.
    pub recovers: bool,
    /// Whether the conversation is summarised automatically; `None`: as its session, or the settings, say.
    pub auto_compact: Option<bool>,
    /// A stream reports its level in a comment at its end.
    pub comment: bool,
}

impl RequestOptions {
    /// `recovers`: whether the client may have recovery.
    pub fn from_headers(headers: &HeaderMap, recovers: bool) -> Self {
        let asked = |name| headers.get(name).map(HeaderValue::as_bytes);
        Self {
            mode: match asked(GUARD) {
                Some(b"off") => GuardMode::Off,
                Some(b"dry-run") => GuardMode::DryRun,
                _ => GuardMode::Guard,
            },
            recovers: recovers && asked(RECOVERY) != Some(b"off"),
            auto_compact: match asked(AUTO_COMPACT) {
                Some(b"on") => Some(true),
                Some(b"off") => Some(false),
                _ => None,
            },
            comment: asked(STREAM_HEALTH) == Some(b"comment"),
        }
    }
}
