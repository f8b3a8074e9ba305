//! Options that a client sets in headers of its request, and what Claude Code says of it there.

use http::{HeaderMap, HeaderName, HeaderValue};

const GUARD: HeaderName = HeaderName::from_static("x-plimsoll-guard");
const RECOVERY: HeaderName = HeaderName::from_static("x-plimsoll-recovery");
const AUTO_COMPACT: HeaderName = HeaderName::from_static("x-plimsoll-auto-compact");
const STREAM_HEALTH: HeaderName = HeaderName::from_static("x-plimsoll-stream-health");
/// Sent with `CLAUDE_CODE_GATEWAY_HINT_HEADERS=1`, by Claude Code 2.1.332. No page of its vendor names them: where they are
/// missing, or have another value, the request is taken for what it looks like.
const CLAUDE_CLASS: HeaderName = HeaderName::from_static("x-claude-code-request-class");
const CLAUDE_AUXILIARY: HeaderName = HeaderName::from_static("x-claude-code-auxiliary-type");

/// How the guard treats a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardMode {
    Guard,
    /// Forward untouched, report what would be done.
    DryRun,
    /// Forward untouched, still measure.
    Off,
}

/// What Claude Code says that a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaudeClass {
    /// A turn, or nothing is said.
    Turn,
    /// It compacts the conversation, or answers beside it: nothing new of recovery, and no cut that could wait.
    Beside,
    /// It belongs to no conversation: the same, and no state.
    Auxiliary,
    /// It repeats the last request, so that the cache stays warm: the same.
    WarmsCache,
}

impl ClaudeClass {
    fn from_headers(headers: &HeaderMap) -> Self {
        let says = |name| headers.get(name).map(HeaderValue::as_bytes);
        match (says(CLAUDE_CLASS), says(CLAUDE_AUXILIARY)) {
            (_, Some(b"resume_cache_warm")) => Self::WarmsCache,
            (Some(b"auxiliary"), _) => Self::Auxiliary,
            (Some(b"compaction" | b"side_reply"), _) => Self::Beside,
            _ => Self::Turn,
        }
    }
}

/// Options of a request for the guard, recovery and compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOptions {
    pub mode: GuardMode,
    pub class: ClaudeClass,
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
        let class = ClaudeClass::from_headers(headers);
        Self {
            class,
            mode: match asked(GUARD) {
                Some(b"off") => GuardMode::Off,
                Some(b"dry-run") => GuardMode::DryRun,
                _ => GuardMode::Guard,
            },
            recovers: recovers && class == ClaudeClass::Turn && asked(RECOVERY) != Some(b"off"),
            auto_compact: match asked(AUTO_COMPACT) {
                Some(b"on") => Some(true),
                Some(b"off") => Some(false),
                _ => None,
            },
            comment: asked(STREAM_HEALTH) == Some(b"comment"),
        }
    }
}
