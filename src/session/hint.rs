//! Session headers of known clients. A hint names a session and does nothing else.
//!
//! A hint never makes a conversation inherit a state. `x-parent-session-id`, `prompt_cache_key` and `user` are not hints:
//! sub-agents send their parent's id, forks reuse cache keys, and a user is a person. A value with a control character or
//! over `MAX_BYTES` is ignored.

use http::{HeaderMap, header::USER_AGENT};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::{conversation::Conversation, store::SessionId};

/// Response header with the session's id. A client may send it with its next request.
const SESSION_HEADER: &str = "x-plimsoll-session";

/// Largest id, in bytes.
const MAX_BYTES: usize = 256;
/// Largest `metadata` that is parsed, in bytes.
const MAX_METADATA_BYTES: usize = 16 << 10;

/// How the user agents of Codex and pi begin.
const CODEX_AGENTS: [&[u8]; 2] = [b"codex", b"pi"];
/// Headers of Codex, of which pi sends `session-id`. The thread comes first: a sub-agent sends its parent's session and its
/// own thread.
const CODEX_HEADERS: [&str; 4] = ["thread-id", "session-id", "session_id", "conversation_id"];
const OTHER_HEADERS: [&str; 5] = [
    "x-session-id",
    "x-session-affinity",
    "x-openwebui-chat-id",
    "x-task-id",
    "x-qwen-code-session-id",
];

/// A client's id of its session. It is unique within a tenant only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHint {
    /// The header or field with the id. Equal ids from different sources name different sessions.
    pub source: &'static str,
    pub value: Vec<u8>,
    pub(super) trusted: TrustedIds,
}

/// Digests of ids that certainly name one session; 0 if there is no such id. `proxy` is the digest of `x-plimsoll-session`,
/// `client` that of the client's own id (of Claude Code with its agent's id, of Codex the thread).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedIds {
    proxy: u32,
    client: u32,
}

impl TrustedIds {
    /// Whether these ids of a request name another session than those with which a state of `session` was made.
    pub(super) fn differ_from(self, made: Self, session: SessionId) -> bool {
        let own = digest_id(session.to_string().as_bytes());
        let is_other = self.client != 0 && made.client != 0 && self.client != made.client;
        is_other || (self.proxy != 0 && self.proxy != made.proxy && self.proxy != own)
    }

    /// These ids; an id that is missing is taken from `before`.
    #[must_use]
    pub(super) fn or(self, before: Self) -> Self {
        let pick = |now, before| if now == 0 { before } else { now };
        Self {
            proxy: pick(self.proxy, before.proxy),
            client: pick(self.client, before.client),
        }
    }
}

fn digest_id(id: &[u8]) -> u32 {
    (xxh3_64(id) as u32).max(1)
}

impl SessionHint {
    /// `None` if the value cannot be an id.
    fn new(source: &'static str, value: &[u8]) -> Option<Self> {
        let value = check_value(value)?.to_vec();
        let trusted = TrustedIds::default();
        Some(Self {
            source,
            value,
            trusted,
        })
    }

    /// The most trustworthy hint of a request: the proxy's header, then the headers and fields of known clients.
    pub fn from_request(headers: &HeaderMap, conversation: Option<&Conversation>) -> Option<Self> {
        let own = hint_from_any(headers, &[SESSION_HEADER]);
        let known = || hint_from_claude_code(headers).or_else(|| hint_from_codex(headers));
        let in_body = || {
            let metadata = conversation.and_then(hint_from_metadata);
            metadata.or_else(|| conversation.and_then(hint_from_thread))
        };
        let client = known().or_else(in_body);
        let digest = |hint: &Option<Self>| hint.as_ref().map_or(0, |it| digest_id(&it.value));
        let trusted = TrustedIds {
            proxy: digest(&own),
            client: digest(&client),
        };
        let hint = own
            .or_else(known)
            .or_else(|| hint_from_any(headers, &OTHER_HEADERS))
            .or(client);
        hint.map(|hint| Self { trusted, ..hint })
    }

    /// The value, if the proxy's session header held it.
    pub fn proxy_session_id(&self) -> Option<&str> {
        let value = std::str::from_utf8(&self.value).ok();
        value.filter(|_| self.source == SESSION_HEADER)
    }
}

/// The first of these headers with a valid id.
fn hint_from_any(headers: &HeaderMap, names: &[&'static str]) -> Option<SessionHint> {
    let read = |name: &&'static str| SessionHint::new(name, headers.get(*name)?.as_bytes());
    names.iter().find_map(read)
}

/// Sub-agents of Claude Code send their parent's session id and a separate agent id.
fn hint_from_claude_code(headers: &HeaderMap) -> Option<SessionHint> {
    let mut hint = hint_from_any(headers, &["x-claude-code-session-id"])?;
    if let Some(agent) = headers.get("x-claude-code-agent-id") {
        // A control character separates the ids, since no id can hold one.
        hint.value.push(0);
        hint.value.extend_from_slice(check_value(agent.as_bytes())?);
    }
    Some(hint)
}

/// Only for Codex and pi, since other clients may use such plain header names for something else.
fn hint_from_codex(headers: &HeaderMap) -> Option<SessionHint> {
    let agent = headers.get(USER_AGENT)?.as_bytes();
    let is_client = |name: &&[u8]| {
        let (begin, rest) = agent.split_at_checked(name.len()).unwrap_or_default();
        begin.eq_ignore_ascii_case(name) && matches!(rest.first(), Some(b'-' | b'_' | b' ' | b'/'))
    };
    CODEX_AGENTS.iter().find(|name| is_client(name))?;
    hint_from_any(headers, &CODEX_HEADERS)
}

fn check_value(value: &[u8]) -> Option<&[u8]> {
    let fits = !value.is_empty() && value.len() <= MAX_BYTES;
    (fits && !value.iter().any(u8::is_ascii_control)).then_some(value)
}

/// `metadata.user_id` as Anthropic clients send it: JSON with a `session_id`, or the older
/// `user_…_account_…_session_<uuid>`. A value without a session names a person and is no hint.
fn hint_from_metadata(conversation: &Conversation) -> Option<SessionHint> {
    let field = conversation.find_field("metadata")?;
    if field.value.len() > MAX_METADATA_BYTES {
        return None;
    }
    let metadata: Value = serde_json::from_slice(conversation.span_bytes(field.value)).ok()?;
    let user = metadata["user_id"].as_str()?;
    let parsed: Value = serde_json::from_str(user).unwrap_or_default();
    let session = match parsed["session_id"].as_str() {
        Some(session) => session,
        None => user.rsplit_once("_session_")?.1,
    };
    SessionHint::new("metadata.user_id", session.as_bytes())
}

/// The thread id in a body of Codex, for requests that arrive without Codex's headers.
fn hint_from_thread(conversation: &Conversation) -> Option<SessionHint> {
    let thread = conversation.client_thread()?;
    SessionHint::new("client_metadata", thread.as_bytes())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::{conversation::Format, session::tests::fixture};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn check(pairs: &[(&'static str, &str)], expected: Option<(&str, &str)>) {
        let hint = SessionHint::from_request(&headers(pairs), None);
        let found = hint
            .as_ref()
            .map(|hint| (hint.source, str::from_utf8(&hint.value).unwrap()));
        assert_eq!(found, expected, "{pairs:?}");
    }

    #[test]
    fn the_most_trustworthy_hint_wins() {
        let mut pairs = vec![
            ("x-plimsoll-session", "a"),
            ("x-claude-code-session-id", "b"),
            ("thread-id", "c"),
            ("session-id", "c"),
            ("x-session-id", "d"),
            ("x-session-affinity", "e"),
            ("x-openwebui-chat-id", "f"),
            ("x-task-id", "g"),
            ("x-qwen-code-session-id", "h"),
            ("user-agent", "codex_cli_rs/0.40"),
        ];
        while pairs.len() > 1 {
            let (source, value) = pairs[0];
            check(&pairs, Some((source, value)));
            pairs.remove(0);
        }
    }

    #[test]
    fn plain_header_names_are_read_from_codex_only() {
        for agent in ["codex_cli_rs/1", "codex-tui", "Codex Desktop/1", "codex/2"] {
            check(
                &[("user-agent", agent), ("conversation_id", "1")],
                Some(("conversation_id", "1")),
            );
        }
        for agent in ["pi (linux 6.8; x64)", "pi/1.6.0 (linux; node/22; x64)"] {
            check(
                &[("user-agent", agent), ("session-id", "1")],
                Some(("session-id", "1")),
            );
        }
        for agent in [
            "curl/8",
            "codexer/1",
            "codex",
            "my codex/1",
            "pip/24",
            "pi",
            "",
        ] {
            check(&[("user-agent", agent), ("session_id", "1")], None);
        }
        check(&[("session-id", "1")], None);
    }

    #[test]
    fn parent_ids_cache_keys_and_users_are_no_hints() {
        check(&[("x-parent-session-id", "1")], None);
        let body = fixture::with_fields(&[("prompt_cache_key", "\"k\""), ("user", "\"u\"")]);
        let hint = SessionHint::from_request(&HeaderMap::new(), Some(&body));
        assert_eq!(hint, None);
    }

    #[test]
    fn a_sub_agent_gets_a_separate_session() {
        let parent = headers(&[("x-claude-code-session-id", "s")]);
        let child = headers(&[
            ("x-claude-code-session-id", "s"),
            ("x-claude-code-agent-id", "1"),
        ]);
        let joined = headers(&[("x-claude-code-session-id", "s1")]);
        let [parent, child, joined] =
            [parent, child, joined].map(|headers| SessionHint::from_request(&headers, None));
        assert!(parent.is_some() && parent != child && child != joined && parent != joined);
    }

    #[test]
    fn a_thread_of_codex_is_a_hint_without_its_headers() {
        let hint = |turn: &str| {
            let body = json!({"input": "u", "client_metadata": {"x-codex-turn-metadata": turn}});
            let body = Bytes::from(body.to_string());
            let body = Format::Responses.index_body(body).unwrap();
            SessionHint::from_request(&HeaderMap::new(), Some(&body))
        };
        let child = hint(r#"{"session_id":"s","thread_id":"t","parent_thread_id":"s"}"#);
        let child = child.unwrap();
        assert_eq!(
            (child.source, &child.value[..]),
            ("client_metadata", &b"t"[..])
        );
        for none in [
            r#"{"session_id":"s"}"#,
            r#"{"thread_id":5}"#,
            r#"{"thread_id":""}"#,
            "[",
            "",
        ] {
            assert_eq!(hint(none), None, "{none}");
        }
    }

    #[test]
    fn long_empty_and_control_character_values_are_ignored() {
        check(&[("x-session-id", "")], None);
        check(&[("x-session-id", "a\tb")], None);
        check(&[("x-session-id", &"x".repeat(257))], None);
        let longest = "x".repeat(256);
        check(
            &[("x-session-id", &longest)],
            Some(("x-session-id", &longest)),
        );
    }

    #[test]
    fn metadata_is_a_hint_where_it_names_a_session() {
        let hint_value = |metadata: &str| {
            let body = fixture::with_fields(&[("metadata", metadata)]);
            SessionHint::from_request(&HeaderMap::new(), Some(&body)).map(|hint| hint.value)
        };
        let json = r#"{"user_id":"{\"device_id\":\"d\",\"session_id\":\"s-1\"}"}"#;
        assert_eq!(hint_value(json), Some(b"s-1".to_vec()));
        let older = r#"{"user_id":"user_1_account__session_0f-9"}"#;
        assert_eq!(hint_value(older), Some(b"0f-9".to_vec()));
        for none in [
            r#"{"user_id":"someone"}"#,
            r#"{"user_id":5}"#,
            r#"{"user_id":"a_session_"}"#,
            r#"{"user_id":"a_session_b\n"}"#,
            "[]",
            "null",
        ] {
            assert_eq!(hint_value(none), None, "{none}");
        }
    }
}
