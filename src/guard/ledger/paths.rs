//! Names of files in the arguments of calls: read in raw bytes, newest first, once each.
//!
//! Arguments are JSON inside a JSON string. What stands between two quotes of the inner one is a
//! key or a text; only short texts can name a file, and only they are decoded.

use std::collections::HashSet;

use super::excerpt::excerpt_line;
use crate::conversation::{Conversation, texts::decode_chars};

/// Characters of an argument that may name a file. A longer one is a file's contents.
const MAX_NAMING_CHARS: usize = 400;
/// The same in bytes of the body: a character takes no more, unless its code is spelled out.
const MAX_NAMING_BYTES: usize = 4 * MAX_NAMING_CHARS;
const MAX_SPELLED_BYTES: usize = 14 * MAX_NAMING_CHARS;
/// Bytes of arguments that are passed over, and those that are read closely, all together.
const MAX_PASSED: usize = 1 << 20;
const MAX_READ: usize = 1 << 16;
/// Characters of a file's name.
const MAX_PATH_CHARS: usize = 120;

/// Names of files in the calls of these messages, the newest first.
pub(super) fn newest_paths(
    conversation: &Conversation,
    removed: &[usize],
    most: usize,
) -> Vec<String> {
    let mut found = PathCollector::default();
    for &at in removed.iter().rev() {
        let calls = conversation.calls_of(&conversation.items[at]);
        for text in calls.iter().rev().filter_map(|call| call.arguments) {
            if found.names.len() >= most || found.passed > MAX_PASSED || found.read > MAX_READ {
                found.names.truncate(most);
                return found.names;
            }
            let first = found.names.len();
            if !found.collect_from_json(conversation.raw_bytes(text)) {
                let line =
                    excerpt_line(decode_chars(conversation.raw_bytes(text)), MAX_NAMING_CHARS);
                found.read += line.len();
                found.collect_paths(&line);
            }
            // Of one call the last, too, comes first.
            found.names[first..].reverse();
        }
    }
    found.names.truncate(most);
    found.names
}

#[derive(Default)]
struct PathCollector {
    names: Vec<String>,
    known: HashSet<String>,
    /// Bytes.
    passed: usize,
    read: usize,
}

impl PathCollector {
    /// Reads the texts in arguments as they are spelled in the body; false where there are none.
    fn collect_from_json(&mut self, raw: &[u8]) -> bool {
        self.passed += raw.len();
        let mut open = None;
        let mut any = false;
        for quote in memchr::memchr_iter(b'"', raw) {
            let before = raw[..quote].iter().rev();
            // One that is escaped in the inner text is part of it.
            if before.take_while(|&&byte| byte == b'\\').count() != 1 {
                continue;
            }
            let Some(start) = open.take() else {
                open = Some(quote + 1);
                continue;
            };
            any = true;
            let next = raw[quote + 1..]
                .iter()
                .find(|byte| !byte.is_ascii_whitespace());
            if next != Some(&b':') && self.read <= MAX_READ {
                self.collect_from_string(&raw[start..quote - 1]);
            }
        }
        any
    }

    /// Reads one text, escaped twice.
    fn collect_from_string(&mut self, raw: &[u8]) {
        let escaped = memchr::memchr(b'\\', raw).is_some();
        let most = match escaped {
            false if raw.is_ascii() => MAX_NAMING_CHARS,
            true if memchr::memmem::find(raw, b"\\u").is_some() => MAX_SPELLED_BYTES,
            _ => MAX_NAMING_BYTES,
        };
        if raw.len() > most {
            return;
        }
        self.read += raw.len();
        let plain = std::str::from_utf8(raw).ok().filter(|_| !escaped);
        if let Some(text) = plain {
            return self.collect_if_short(text);
        }
        let outer: String = decode_chars(raw).collect();
        let inner: String = decode_chars(outer.as_bytes()).collect();
        self.collect_if_short(&inner);
    }

    fn collect_if_short(&mut self, text: &str) {
        if text.len() <= MAX_NAMING_CHARS || text.chars().count() <= MAX_NAMING_CHARS {
            self.collect_paths(text);
        }
    }

    fn collect_paths(&mut self, text: &str) {
        let inside =
            |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~' | '@' | '+');
        for word in text.split(|c| !inside(c)) {
            let at = word.as_ptr() as usize - text.as_ptr() as usize;
            let word = word.trim_end_matches(['.', '-']);
            // What closes a tag of a markup language names no file.
            let closes = text[..at].ends_with('<');
            if is_path(word) && !closes && self.known.insert(word.to_owned()) {
                self.names.push(word.to_owned());
            }
        }
    }
}

/// Whether a word looks like the name of a file: with a slash or an extension, and no address.
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
    fn names_of_files_are_found_in_arguments() {
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
