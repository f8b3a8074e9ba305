//! Options that a client sets in headers of its request, and the class of the request that it names there.

use http::{HeaderMap, HeaderName, HeaderValue};

const GUARD: HeaderName = HeaderName::from_static("x-plimsoll-guard");
const RECOVERY: HeaderName = HeaderName::from_static("x-plimsoll-recovery");
const AUTO_COMPACT: HeaderName = HeaderName::from_static("x-plimsoll-auto-compact");
const STREAM_HEALTH: HeaderName = HeaderName::from_static("x-plimsoll-stream-health");
/// The name of a task that an app gives a model outside of a conversation; empty or missing in requests of a conversation.
/// Any client can be configured to send this header; `{{TASK}}` in a header of Open WebUI's connection is such a name.
const TASK: HeaderName = HeaderName::from_static("x-plimsoll-task");
/// Sent by Claude Code 2.1.332 with `CLAUDE_CODE_GATEWAY_HINT_HEADERS=1`. No page of its vendor documents these headers: if
/// they are missing, or have another value, the request is judged by its content.
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

/// What the client says that a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestClass {
    /// A request of a conversation, or the client names no class.
    Conversation,
    /// It compacts the conversation, or is a side reply: recovery adds nothing new, and no cut is made that could wait.
    Side,
    /// It belongs to no conversation: the same holds, and no state is stored.
    Auxiliary,
    /// It repeats the last request to keep the cache warm: the same holds, and no state is stored.
    WarmsCache,
}

impl RequestClass {
    fn from_headers(headers: &HeaderMap) -> Self {
        let says = |name| headers.get(name).map(HeaderValue::as_bytes);
        let is_task = says(TASK).is_some_and(|name| !name.trim_ascii().is_empty());
        match (says(CLAUDE_CLASS), says(CLAUDE_AUXILIARY)) {
            (_, Some(b"resume_cache_warm")) => Self::WarmsCache,
            (Some(b"auxiliary"), _) => Self::Auxiliary,
            _ if is_task => Self::Auxiliary,
            (Some(b"compaction" | b"side_reply"), _) => Self::Side,
            _ => Self::Conversation,
        }
    }
}

/// Options of a request for the guard, recovery and compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOptions {
    pub mode: GuardMode,
    pub class: RequestClass,
    /// Recovery may add a new prompt, tools or a course. Earlier additions stay in either case, so that the prefix does not
    /// change.
    pub recovers: bool,
    /// Whether the conversation is summarised automatically; `None`: the session decides, else the settings.
    pub auto_compact: Option<bool>,
    /// A stream reports its level in a comment at its end.
    pub comment: bool,
}

impl RequestOptions {
    /// `recovers`: whether the client may have recovery.
    pub fn from_headers(headers: &HeaderMap, recovers: bool) -> Self {
        let asked = |name| headers.get(name).map(HeaderValue::as_bytes);
        let class = RequestClass::from_headers(headers);
        Self {
            class,
            mode: match asked(GUARD) {
                Some(b"off") => GuardMode::Off,
                Some(b"dry-run") => GuardMode::DryRun,
                _ => GuardMode::Guard,
            },
            recovers: recovers
                && class == RequestClass::Conversation
                && asked(RECOVERY) != Some(b"off"),
            auto_compact: match asked(AUTO_COMPACT) {
                Some(b"on") => Some(true),
                Some(b"off") => Some(false),
                _ => None,
            },
            comment: asked(STREAM_HEALTH) == Some(b"comment"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn a_request_is_of_the_class_that_its_headers_name() {
        use RequestClass::{Auxiliary, Conversation, Side, WarmsCache};
        let [task, class, kind] = [TASK, CLAUDE_CLASS, CLAUDE_AUXILIARY];
        for (name, headers, expected) in [
            ("no header", vec![], Conversation),
            ("a task", vec![(&task, "title")], Auxiliary),
            ("an empty task", vec![(&task, " ")], Conversation),
            ("an auxiliary request", vec![(&class, "auxiliary")], Auxiliary),
            ("a compaction", vec![(&class, "compaction")], Side),
            ("a side reply", vec![(&class, "side_reply")], Side),
            ("a task that compacts", vec![(&task, "title"), (&class, "compaction")], Auxiliary),
            ("a repeat", vec![(&class, "auxiliary"), (&kind, "resume_cache_warm")], WarmsCache),
            ("another kind", vec![(&class, "auxiliary"), (&kind, "title")], Auxiliary),
            ("an unknown class", vec![(&class, "main")], Conversation),
        ] {
            let headers = build_headers(&headers);
            assert_eq!(RequestClass::from_headers(&headers), expected, "{name}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn only_the_words_that_are_documented_switch_anything() {
        let plain = RequestOptions {
            mode: GuardMode::Guard,
            class: RequestClass::Conversation,
            recovers: true,
            auto_compact: None,
            comment: false,
        };
        for (name, value, expected) in [
            (GUARD, "off", RequestOptions { mode: GuardMode::Off, ..plain }),
            (GUARD, "dry-run", RequestOptions { mode: GuardMode::DryRun, ..plain }),
            (GUARD, "Off", plain),
            (GUARD, "", plain),
            (RECOVERY, "off", RequestOptions { recovers: false, ..plain }),
            (RECOVERY, "on", plain),
            (AUTO_COMPACT, "on", RequestOptions { auto_compact: Some(true), ..plain }),
            (AUTO_COMPACT, "off", RequestOptions { auto_compact: Some(false), ..plain }),
            (AUTO_COMPACT, "yes", plain),
            (STREAM_HEALTH, "comment", RequestOptions { comment: true, ..plain }),
            (STREAM_HEALTH, "on", plain),
        ] {
            let headers = build_headers(&[(&name, value)]);
            let found = RequestOptions::from_headers(&headers, true);
            assert_eq!(found, expected, "{name}: {value}");
        }
        let ordered = build_headers(&[(&RECOVERY, "on")]);
        assert!(!RequestOptions::from_headers(&ordered, false).recovers);
        let task = build_headers(&[(&TASK, "title")]);
        assert!(!RequestOptions::from_headers(&task, true).recovers);
    }

    fn build_headers(pairs: &[(&HeaderName, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        let pairs = pairs.map(|(name, value)| ((*name).clone(), HeaderValue::from_static(value)));
        pairs.collect()
    }
}
