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

impl GuardMode {
    pub fn of(headers: &HeaderMap) -> Self {
        match headers.get(GUARD).map(HeaderValue::as_bytes) {
            Some(b"off") => Self::Off,
            Some(b"dry-run") => Self::DryRun,
            _ => Self::Guard,
        }
    }
}

/// What a client and its request ask of the guard, of recovery and of compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOptions {
    pub mode: GuardMode,
    /// Recovery may begin something new.
    pub recovers: bool,
    /// Whether the conversation is summarised by itself; `None`: as its session, or the settings, say.
    pub auto_compact: Option<bool>,
}

impl RequestOptions {
    /// `recovers`: whether the client may have recovery.
    pub fn of(headers: &HeaderMap, recovers: bool) -> Self {
        Self {
            mode: GuardMode::of(headers),
            recovers: recovers && !without_recovery(headers),
            auto_compact: match headers.get(AUTO_COMPACT).map(HeaderValue::as_bytes) {
                Some(b"on") => Some(true),
                Some(b"off") => Some(false),
                _ => None,
            },
        }
    }
}

/// Whether the request wants nothing new of recovery: no prompt, no tools, no new course. What its
/// session has already stays, so that its prefix does.
fn without_recovery(headers: &HeaderMap) -> bool {
    headers.get(RECOVERY).is_some_and(|value| value == "off")
}

/// Whether the client wants the level of a stream as a comment at its end.
pub fn wants_comment(headers: &HeaderMap) -> bool {
    headers
        .get(STREAM_HEALTH)
        .is_some_and(|value| value == "comment")
}
