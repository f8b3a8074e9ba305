//! What the headers of a request ask of us.

use http::{HeaderMap, HeaderName, HeaderValue};

const GUARD: HeaderName = HeaderName::from_static("x-plimsoll-guard");
const RECOVERY: HeaderName = HeaderName::from_static("x-plimsoll-recovery");
const AUTO_COMPACT: HeaderName = HeaderName::from_static("x-plimsoll-auto-compact");
const STREAM_HEALTH: HeaderName = HeaderName::from_static("x-plimsoll-stream-health");

/// What a request wants of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardMode {
    Guard,
    /// Forward untouched, report what would be done.
    DryRun,
    /// Forward untouched, still measure.
    Off,
}

/// What a client and its request ask of the guard, of recovery and of compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOptions {
    pub mode: GuardMode,
    /// Recovery may begin something new: a prompt, tools, a course. What its session has already stays either
    /// way, so that its prefix does.
    pub recovers: bool,
    /// Whether the conversation is summarised by itself; `None`: as its session, or the settings, say.
    pub auto_compact: Option<bool>,
    /// The level of a stream comes as a comment at its end.
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
