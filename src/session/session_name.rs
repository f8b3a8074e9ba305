//! What a list calls a session: the first words of its task, and its client's program.
//!
//! SECURITY: both are kept in memory only, as no text of an ordinary conversation is stored. The task is a text of the
//! conversation, shown only to readers that may see titles (`ReportReader::sees_titles`). The program is the client's own
//! word for itself, and proves nothing.

use std::num::NonZeroUsize;

use http::{HeaderMap, header::USER_AGENT};
use lru::LruCache;
use parking_lot::Mutex;

use crate::{
    conversation::{
        Author, Conversation,
        client_text::{self, Element, ElementOwner, TextPart, TextParts},
        texts::decode_chars,
    },
    store::SessionId,
};

/// Beyond this the least recently used session is called by its id.
const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::new(8_192).expect("not zero");
/// Longest task, in bytes, without the ellipsis.
const MAX_TASK_BYTES: usize = 64;
/// Largest name of a program, in bytes.
const MAX_PROGRAM_BYTES: usize = 32;
/// Characters that are read of one text.
const MAX_READ_CHARS: usize = 32 << 10;
/// Texts of the user that are read.
const MAX_READ_TEXTS: usize = 16;
/// A header in which agents name themselves to gateways.
const TITLE_HEADER: &str = "x-title";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionName {
    pub task: Option<Box<str>>,
    pub program: Option<Box<str>>,
}

/// The names of sessions, each from the first request of its session that this process saw.
#[derive(Debug)]
pub struct SessionNames(Mutex<LruCache<SessionId, SessionName>>);

impl Default for SessionNames {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_SESSIONS)))
    }
}

impl SessionNames {
    /// Notes the name of a session from its first request. The caller does not pass a request that stores no state, such as
    /// one for a title.
    pub fn note_request(&self, id: SessionId, headers: &HeaderMap, conversation: &Conversation) {
        if self.0.lock().get(&id).is_none() {
            let (task, program) = (find_task_words(conversation), find_program(headers));
            self.0.lock().put(id, SessionName { task, program });
        }
    }

    pub fn find_name(&self, id: SessionId) -> SessionName {
        self.0.lock().peek(&id).cloned().unwrap_or_default()
    }
}

/// The first words that the user said before the first answer, without what clients add.
fn find_task_words(conversation: &Conversation) -> Option<Box<str>> {
    let items = conversation.items.iter();
    let opening = items.take_while(|item| item.author != Author::Model);
    let said = opening.filter(|item| item.is_by_user());
    let texts = said.flat_map(|item| conversation.texts_of(item));
    texts.take(MAX_READ_TEXTS).find_map(|text| {
        let words = shorten_words(&read_task(conversation.raw_bytes(text)));
        let is_command = words.starts_with('/') && !words.contains(' ');
        let is_added = is_command || words.starts_with("# AGENTS.md");
        (!words.is_empty() && !is_added).then(|| words.into())
    })
}

/// The words after the elements at the start of a text, such as `<system-reminder>…</system-reminder>`, whatever the names
/// of these elements; or the words in an element that holds words of the user.
fn read_task(raw: &[u8]) -> String {
    let mut parts = TextParts::new(raw, false);
    let words = parts.find_map(|TextPart { words, element }| {
        let is_of_user = |it: &Element| it.owner == Some(ElementOwner::User);
        if client_text::is_blank(&raw[words.clone()]) {
            element.filter(is_of_user).map(|it| &raw[it.inner])
        } else {
            Some(&raw[words.start..])
        }
    });
    let words = client_text::list_user_words(words.unwrap_or_default());
    let chars = words.flat_map(|words| decode_chars(words).chain(['\n']));
    chars.take(MAX_READ_CHARS).collect()
}

/// A text in one line. A long text is cut after a word, or within a word that is long itself, as in a language without
/// spaces.
fn shorten_words(text: &str) -> String {
    let is_shown = |c: &char| c.is_whitespace() || !c.is_control();
    let text: String = text.chars().filter(is_shown).collect();
    let words: Vec<_> = text.split_whitespace().collect();
    let mut line: String = words.join(" ");
    if line.len() > MAX_TASK_BYTES {
        let places = line.char_indices().map(|(at, _)| at);
        let most = places.take_while(|at| *at <= MAX_TASK_BYTES).last();
        let start = &line[..most.unwrap_or(0)];
        let last_space = start.rfind(' ').filter(|at| *at > MAX_TASK_BYTES / 2);
        let end = last_space.unwrap_or(start.len());
        line.truncate(end);
        line.push('…');
    }
    line
}

/// The program of a client without its version: `claude-cli` of `claude-cli/2.0 (external)`.
fn find_program(headers: &HeaderMap) -> Option<Box<str>> {
    let text = |header| headers.get(header)?.to_str().ok().map(str::trim);
    let named = |name: &&str| !name.is_empty();
    let agent = text(USER_AGENT.as_str());
    let name = text(TITLE_HEADER).filter(named).or(agent)?;
    let begins_version = |at: &usize| {
        let next = name[at + 1..].trim_start_matches('v').chars().next();
        next.is_some_and(|c| c == '(' || c.is_ascii_digit())
    };
    let mut ends = name.match_indices([' ', '/']).map(|(at, _)| at);
    let name = &name[..ends.find(begins_version).unwrap_or(name.len())];
    // A header that is readable as text is ASCII, so any byte is a character boundary.
    let name = &name[..name.len().min(MAX_PROGRAM_BYTES)];
    Some(name).filter(named).map(Into::into)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;
    use crate::conversation::Format;

    fn name(headers: &[(&'static str, &str)], messages: Value) -> SessionName {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let body = Bytes::from(json!({"model": "m", "messages": messages}).to_string());
        let (names, id) = (SessionNames::default(), SessionId::from_bytes([1; 16]));
        let conversation = Format::Chat.index_body(body).unwrap();
        names.note_request(id, &headers.collect(), &conversation);
        names.find_name(id)
    }

    fn check_task(texts: &[&str], expected: Option<&str>) {
        let blocks = texts
            .iter()
            .map(|text| json!({"type": "text", "text": text}));
        let whole = json!([{"role": "system", "content": "Be brief."},
            {"role": "user", "content": blocks.collect::<Vec<_>>()},
            {"role": "assistant", "content": "Aye."}, {"role": "user", "content": "Later words"}]);
        assert_eq!(name(&[], whole).task.as_deref(), expected, "{texts:?}");
    }

    #[test]
    fn the_task_is_what_the_user_said_first_without_what_clients_add() {
        check_task(&["Mend  the\n mast"], Some("Mend the mast"));
        check_task(
            &["<system-reminder>Today</system-reminder>\n", "Mend it"],
            Some("Mend it"),
        );
        check_task(
            &["<context a=\"b\">x</context> <env>y</env> Mend it"],
            Some("Mend it"),
        );
        check_task(&["<task>\nMend it\n</task>\n<env>y</env>"], Some("Mend it"));
        check_task(
            &["# AGENTS.md instructions for /a", "/clear", "Mend it"],
            Some("Mend it"),
        );
        check_task(
            &[
                "<system-reminder>Today</system-reminder>\nMend it\n<system-reminder>now</system-reminder>",
            ],
            Some("Mend it"),
        );
        check_task(
            &[
                "<command-message>x</command-message>\n<command-name>/x</command-name>\n<command-args>the mast</command-args>",
            ],
            Some("the mast"),
        );
        check_task(
            &["Use <b>oak</b>, mend it"],
            Some("Use <b>oak</b>, mend it"),
        );
        check_task(&["<div> is broken"], Some("<div> is broken"));
        check_task(&["a < b > c"], Some("a < b > c"));
        check_task(&["bell\u{7}, \u{0}nul"], Some("bell, nul"));
        check_task(&["\u{1} hi"], Some("hi"));
        for none in ["", " \n", "<env>only this</env>", "/init"] {
            check_task(&[none], None);
        }
        assert_eq!(
            name(&[], json!([{"role": "assistant", "content": "a"}])).task,
            None
        );
    }

    #[test]
    fn the_task_is_short_and_ends_after_a_word() {
        let words = "keel mast sail ".repeat(500);
        let found = shorten_words(&words);
        assert_eq!(
            found,
            "keel mast sail keel mast sail keel mast sail keel mast sail…"
        );
        check_task(
            &["龙骨".repeat(90).as_str()],
            Some(&format!("{}龙…", "龙骨".repeat(10))),
        );
        let exact = "x".repeat(MAX_TASK_BYTES);
        assert_eq!(shorten_words(&exact), exact);
        assert_eq!(shorten_words(&format!("{exact} y")), format!("{exact}…"));
    }

    #[test]
    fn a_program_is_named_without_its_version() {
        let check = |headers: &[(&'static str, &str)], expected: Option<&str>| {
            let found = name(headers, json!([{"role": "user", "content": "a"}])).program;
            assert_eq!(found.as_deref(), expected, "{headers:?}");
        };
        check(&[], None);
        for (agent, expected) in [
            ("claude-cli/2.0.31 (external, cli)", "claude-cli"),
            (
                "codex_cli_rs/0.46.0 (Debian 13; x86_64) xterm",
                "codex_cli_rs",
            ),
            ("Codex Desktop/1", "Codex Desktop"),
            ("OpenAI/Python 1.99.1", "OpenAI/Python"),
            ("Zed/v0.9", "Zed"),
            ("node", "node"),
            ("my agent (of mine)", "my agent"),
        ] {
            check(&[("user-agent", agent)], Some(expected));
        }
        check(
            &[("user-agent", "ai-sdk/5"), ("x-title", "Cline")],
            Some("Cline"),
        );
        check(&[("user-agent", "node"), ("x-title", " ")], Some("node"));
        let long = "x".repeat(4_000);
        check(&[("user-agent", &long)], Some(&long[..MAX_PROGRAM_BYTES]));
        for none in ["", "/1.0", "é"] {
            check(&[("user-agent", none)], None);
        }
    }

    #[test]
    fn the_first_request_names_a_session() {
        let names = SessionNames::default();
        let id = SessionId::from_bytes([1; 16]);
        for text in ["first", "second"] {
            let body = json!({"model": "m", "messages": [{"role": "user", "content": text}]});
            let body = Format::Chat.index_body(body.to_string().into()).unwrap();
            names.note_request(id, &HeaderMap::new(), &body);
        }
        assert_eq!(names.find_name(id).task.as_deref(), Some("first"));
        assert_eq!(
            names.find_name(SessionId::from_bytes([2; 16])),
            SessionName::default()
        );
    }
}
