//! Finds the names of files in the arguments of calls: read in raw bytes, newest first, once each.
//!
//! Arguments are JSON, in most formats inside a JSON string. The bytes between two quotes of the inner JSON are a key or a
//! text. Only short texts can name a file, and only they are decoded.

use std::{borrow::Cow, collections::HashSet};

use super::excerpt::excerpt_line;
use crate::conversation::{Arguments, Conversation, texts::decode_chars};

/// The longest text that may name a file; characters. A longer text is the contents of a file.
const MAX_NAMING_CHARS: usize = 400;
/// The same in bytes of the body, without and with `\u` escapes.
const MAX_NAMING_BYTES: usize = 4 * MAX_NAMING_CHARS;
const MAX_ESCAPED_BYTES: usize = 14 * MAX_NAMING_CHARS;
/// Bytes of all arguments that are scanned for quotes, and bytes of texts that are decoded.
const MAX_SCANNED: usize = 1 << 20;
const MAX_READ: usize = 1 << 16;
/// The longest name of a file; characters.
const MAX_PATH_CHARS: usize = 120;

/// Names of files in the calls of these messages, the newest first.
pub(super) fn newest_paths(
    conversation: &Conversation,
    removed: &[usize],
    max_paths: usize,
) -> Vec<String> {
    let mut paths = PathCollector::default();
    let messages = removed.iter().rev().map(|&at| &conversation.items[at]);
    let calls = messages.flat_map(|message| conversation.calls_of(message).iter().rev());
    for arguments in calls.filter_map(|call| call.arguments) {
        if paths.names.len() >= max_paths || paths.scanned > MAX_SCANNED || paths.read > MAX_READ {
            break;
        }
        let first = paths.names.len();
        let raw = conversation.span_bytes(arguments.span());
        let spelling = match arguments {
            Arguments::Text(_) => Spelling::InString,
            Arguments::Json(_) => Spelling::Plain,
        };
        if !paths.collect_from_json(raw, spelling) {
            let line = excerpt_line(decode_chars(raw), MAX_NAMING_CHARS);
            paths.read += line.len();
            paths.collect_paths(&line);
        }
        // The names of one call are in reverse order, too: the last one comes first.
        paths.names[first..].reverse();
    }
    paths.names.truncate(max_paths);
    paths.names
}

/// How the body spells the JSON of arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Plain,
    /// Inside a JSON string: a backslash precedes each of its quotes.
    InString,
}

#[derive(Default)]
struct PathCollector {
    names: Vec<String>,
    known: HashSet<String>,
    /// Bytes so far, for `MAX_SCANNED` and `MAX_READ`.
    scanned: usize,
    read: usize,
}

impl PathCollector {
    /// Collects from the texts in arguments as the body spells them. Returns false where there are no texts.
    fn collect_from_json(&mut self, raw: &[u8], spelling: Spelling) -> bool {
        self.scanned += raw.len();
        let before_quote = usize::from(spelling == Spelling::InString);
        let mut open = None;
        let mut has_texts = false;
        for quote in memchr::memchr_iter(b'"', raw) {
            let before = raw[..quote].iter().rev();
            let backslashes = before.take_while(|&&byte| byte == b'\\').count();
            // A quote after more backslashes is part of the inner text.
            let is_bound = match spelling {
                Spelling::InString => backslashes == 1,
                Spelling::Plain => backslashes % 2 == 0,
            };
            if !is_bound {
                continue;
            }
            let Some(start) = open.take() else {
                open = Some(quote + 1);
                continue;
            };
            has_texts = true;
            let mut rest = raw[quote + 1..].iter();
            let is_key = rest.find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
            if !is_key && self.read <= MAX_READ {
                self.collect_from_string(&raw[start..quote - before_quote], spelling);
            }
        }
        has_texts
    }

    /// Collects from one text. If the arguments are inside a JSON string, the text is escaped twice.
    fn collect_from_string(&mut self, raw: &[u8], spelling: Spelling) {
        let escaped = memchr::memchr(b'\\', raw).is_some();
        let max_bytes = match escaped {
            false if raw.is_ascii() => MAX_NAMING_CHARS,
            true if memchr::memmem::find(raw, b"\\u").is_some() => MAX_ESCAPED_BYTES,
            _ => MAX_NAMING_BYTES,
        };
        if raw.len() > max_bytes {
            return;
        }
        self.read += raw.len();
        let text = match std::str::from_utf8(raw) {
            Ok(text) if !escaped => Cow::Borrowed(text),
            _ if spelling == Spelling::Plain => Cow::Owned(decode_chars(raw).collect()),
            _ => {
                let outer: String = decode_chars(raw).collect();
                Cow::Owned(decode_chars(outer.as_bytes()).collect())
            }
        };
        if text.len() <= MAX_NAMING_CHARS || text.chars().count() <= MAX_NAMING_CHARS {
            self.collect_paths(&text);
        }
    }

    fn collect_paths(&mut self, text: &str) {
        let inside =
            |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~' | '@' | '+');
        for word in text.split(|c| !inside(c)) {
            let at = word.as_ptr() as usize - text.as_ptr() as usize;
            let word = word.trim_end_matches(['.', '-']);
            // The closing tag of a markup language names no file.
            let closes = text[..at].ends_with('<');
            if is_path(word) && !closes && self.known.insert(word.to_owned()) {
                self.names.push(word.to_owned());
            }
        }
    }
}

/// Whether a word looks like the name of a file: it has a slash or an extension, and is no address.
fn is_path(word: &str) -> bool {
    let extension = word.rsplit_once('.').is_some_and(|(stem, end)| {
        !stem.is_empty()
            && (1..=5).contains(&end.len())
            && end.starts_with(|c: char| c.is_ascii_alphabetic())
            && end.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    let slash = word.contains('/') && !word.starts_with("//");
    (slash || extension)
        && word.contains(char::is_alphabetic)
        && word.chars().count() <= MAX_PATH_CHARS
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::format::chat::index_body;

    fn check(calls: &[&str], expected: &[&str]) {
        let calls: Vec<_> = calls
            .iter()
            .map(|arguments| json!({"id": "c", "function": {"name": "f", "arguments": arguments}}))
            .collect();
        let body = json!({"messages": [{"role": "assistant", "tool_calls": calls}]});
        let conversation = index_body(Bytes::from(body.to_string())).unwrap();
        let mut found = newest_paths(&conversation, &[0], 9);
        found.reverse();
        assert_eq!(found, expected, "{calls:?}");
    }

    #[test]
    fn file_names_are_found_in_arguments() {
        check(
            &[r#"{"path":"src/main.rs","text":"a.b"}"#],
            &["src/main.rs", "a.b"],
        );
        check(
            &[
                r#"{"command":"cd /work && cat 'notes.md' ../x https://example.com/a 1.5 2>/dev/null"}"#,
            ],
            &["/work", "notes.md", "../x", "/dev/null"],
        );
        check(
            &[r#"{"files":["a/b.py","a/b.py","文档/说明.md"],"n":3,"in":{"key/no.rs":"z.c"}}"#],
            &["a/b.py", "文档/说明.md", "z.c"],
        );
        check(&[r#"{"path":"x.rs","content":"#], &["x.rs"]);
        check(&["apply a/b.c"], &["a/b.c"]);
        check(&["", "{}", r#"{"old":"<b>x</b></div>"}"#], &[]);
        check(
            &[r#"{"text":"say \"in/side.md\"\nnext.rs \u6587/\u4e2d.md"}"#],
            &["in/side.md", "next.rs", "文/中.md"],
        );
        let written = format!(r#"{{"text":"{}"}}"#, "use a/b.rs ".repeat(100));
        check(&[&written], &[]);
        check(
            &[r#"{"p":"one.rs"}"#, r#"{"p":"two.rs"}"#],
            &["one.rs", "two.rs"],
        );
    }
}
