//! Short excerpts of messages: their beginnings, lines that tell of errors, names of files.
//!
//! Everything is bounded, and what is read of one message is, too.

use crate::wire::{
    chat::{Content, Conversation, Message, PartKind},
    scan::Text,
    text::Walk,
};

/// Characters of a message that are looked at.
const MAX_READ: usize = 200_000;
/// Characters of an argument that may name a file. A longer one is a file's contents.
const MAX_NAMING_CHARS: usize = 400;
/// Arguments of a call that are looked at, and bytes of all of them.
const MAX_ARGUMENTS: usize = 50;
const MAX_ARGUMENTS_BYTES: usize = 1 << 18;
/// Characters of a file's name.
const MAX_PATH_CHARS: usize = 120;

/// Words that tell of an error, in lower case.
const ERRORS: [&str; 6] = ["error", "failed", "exception", "panic", "错误", "失败"];
/// Words before one of them by which it tells of none.
const NONE: [&str; 4] = ["0 ", "no ", "without ", "zero "];

/// The text of a message: a string, or its text parts, a line each.
pub(super) fn content<'a>(
    conversation: &'a Conversation,
    message: &'a Message,
) -> impl Iterator<Item = char> + 'a {
    let string = match message.content {
        Content::Text(text) => Some(text),
        _ => None,
    };
    let parts = conversation.parts(message).iter();
    let parts = parts.filter_map(|part| match part.kind {
        PartKind::Text(text) => Some(text),
        _ => None,
    });
    let texts = string.into_iter().chain(parts);
    texts
        .flat_map(|text| decoded(conversation, text).chain(['\n']))
        .take(MAX_READ)
}

/// The characters of a text; what has no decoded form is shown as such.
pub(super) fn decoded(conversation: &Conversation, text: Text) -> impl Iterator<Item = char> + '_ {
    let walk = Walk::new(conversation.raw(text));
    walk.map(|c| char::from_u32(c.code).unwrap_or(char::REPLACEMENT_CHARACTER))
}

/// A text as one line, where that is shorter than `most` characters; else its beginning, with an
/// ellipsis.
pub(super) fn head(text: impl IntoIterator<Item = char>, most: usize) -> String {
    let (mut line, mut chars, mut gap) = (String::new(), 0, false);
    for c in text {
        if c.is_whitespace() || c.is_control() {
            gap = chars > 0;
            continue;
        }
        if chars + 1 + usize::from(gap) >= most {
            line.push('…');
            break;
        }
        if std::mem::take(&mut gap) {
            line.push(' ');
            chars += 1;
        }
        line.push(c);
        chars += 1;
    }
    line
}

/// The last lines of a text that tell of an error, at most two, in their order.
pub(super) fn error_lines(text: impl IntoIterator<Item = char>, most: usize) -> Vec<String> {
    let text: String = text.into_iter().collect();
    let mut lines: Vec<_> = text
        .lines()
        .rev()
        .filter(|line| tells_of_error(line))
        .take(2)
        .map(|line| head(line.chars(), most))
        .collect();
    lines.reverse();
    lines
}

fn tells_of_error(line: &str) -> bool {
    let line = line.to_lowercase();
    let told = |word: &str| {
        line.match_indices(word).any(|(at, _)| {
            let before = &line[..at];
            !NONE.iter().any(|none| {
                let rest = before.strip_suffix(none);
                // "10 failed" is no "0 failed".
                rest.is_some_and(|rest| !rest.ends_with(|c: char| c.is_ascii_alphanumeric()))
            })
        })
    };
    ERRORS.iter().any(|word| told(word))
}

/// What looks like a file's name in the arguments of a call, in order, once each.
pub(super) fn paths(arguments: &str) -> Vec<String> {
    let mut found = Vec::new();
    if arguments.len() > MAX_ARGUMENTS_BYTES {
        return found;
    }
    let Ok(value) = serde_json::from_str::<serde_json::Value>(arguments) else {
        named_in(&head(arguments.chars(), MAX_NAMING_CHARS), &mut found);
        return found;
    };
    let members = match &value {
        serde_json::Value::Object(members) => members.values().collect(),
        other => vec![other],
    };
    for value in members.into_iter().take(MAX_ARGUMENTS) {
        match value {
            serde_json::Value::String(text) => whole_or_named(text, &mut found),
            serde_json::Value::Array(values) => {
                for text in values.iter().take(MAX_ARGUMENTS).filter_map(|v| v.as_str()) {
                    whole_or_named(text, &mut found);
                }
            }
            _ => {}
        }
    }
    found
}

fn whole_or_named(text: &str, found: &mut Vec<String>) {
    // Nothing longer in bytes can be short enough in characters.
    if text.len() <= 4 * MAX_NAMING_CHARS && text.chars().count() <= MAX_NAMING_CHARS {
        named_in(text, found);
    }
}

fn named_in(text: &str, found: &mut Vec<String>) {
    let inside =
        |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~' | '@' | '+');
    for word in text.split(|c| !inside(c)) {
        let word = word.trim_end_matches(['.', '-']);
        if is_path(word) && !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
}

/// Whether a word looks like the name of a file: with a slash or an extension, and no address.
fn is_path(word: &str) -> bool {
    let letters = word.contains(char::is_alphabetic);
    let extension = word.rsplit_once('.').is_some_and(|(stem, end)| {
        !stem.is_empty()
            && (1..=5).contains(&end.len())
            && end.starts_with(|c: char| c.is_ascii_alphabetic())
            && end.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    let slash = word.contains('/') && !word.starts_with("//");
    letters && (slash || extension) && word.chars().count() <= MAX_PATH_CHARS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_one_line_within_their_length() {
        assert_eq!(head(" a\n\n b\u{0}c ".chars(), 10), "a b c");
        assert_eq!(head("abcdef".chars(), 5), "abcd…");
        assert_eq!(head("abc def".chars(), 5), "abc…");
        assert_eq!(head("字字字字".chars(), 3), "字字…");
        assert_eq!(head("".chars(), 3), "");
        let long = head("x ".repeat(500).chars(), 200);
        assert!(long.chars().count() <= 200);
    }

    #[test]
    fn lines_that_tell_of_errors_are_found() {
        let lines = |text: &str| error_lines(text.chars(), 200);
        assert_eq!(
            lines("start\nValueError: x\nok\n  thread panicked at y\n编译失败：z\nend"),
            ["thread panicked at y", "编译失败：z"]
        );
        assert_eq!(lines("3 passed, 0 failed, no errors"), [""; 0]);
        assert_eq!(lines("10 failed"), ["10 failed"]);
        assert_eq!(lines("0 errors but 1 failed"), ["0 errors but 1 failed"]);
    }

    #[test]
    fn names_of_files_are_found_in_arguments() {
        let check = |arguments: &str, expected: &[&str]| {
            assert_eq!(paths(arguments), expected, "{arguments}");
        };
        check(
            r#"{"path":"src/main.rs","text":"a.b"}"#,
            &["src/main.rs", "a.b"],
        );
        check(
            r#"{"command":"cd /work && cat 'notes.md' ../x https://example.com/a 1.5 2>/dev/null"}"#,
            &["/work", "notes.md", "../x", "/dev/null"],
        );
        check(
            r#"{"files":["a/b.py","a/b.py","文档/说明.md"],"n":3}"#,
            &["a/b.py", "文档/说明.md"],
        );
        check(r#"{"path":"x.rs","content":"#, &["x.rs"]);
        check("", &[]);
        let written = format!(r#"{{"text":"{}"}}"#, "use a/b.rs ".repeat(100));
        check(&written, &[]);
    }
}
