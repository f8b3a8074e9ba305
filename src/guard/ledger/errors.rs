//! Lines of tool results that tell of errors: searched in raw bytes, newest first.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::{LINE_CHARS, excerpt::excerpt_line};
use crate::conversation::{Conversation, texts::decode_chars};

/// Bytes of results that are searched, all together, and at the end of each.
const MAX_SEARCHED: usize = 1 << 18;
const MAX_OF_ONE: usize = 1 << 15;
/// Lines of one result that are shown, and those that are looked at.
const LINES: usize = 2;
const MAX_LOOKED_AT: usize = 40;
/// Bytes of a line before and after what was found in it.
const BEFORE_BYTES: usize = 1_000;
const AFTER_BYTES: usize = 1_200;

/// Words that tell of an error, in lower case.
const WORDS: [&str; 6] = ["error", "failed", "exception", "panic", "错误", "失败"];
/// Words before one of them by which it tells of none.
const NONE: [&str; 4] = ["0 ", "no ", "without ", "zero "];

/// The words as they are spelled in a body.
static SPELLED: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let spelled = [
        "error",
        "Error",
        "ERROR",
        "failed",
        "Failed",
        "FAILED",
        "exception",
        "Exception",
        "EXCEPTION",
        "panic",
        "Panic",
        "PANIC",
        "错误",
        "失败",
        r"\u9519\u8bef",
        r"\u9519\u8BEF",
        r"\u5931\u8d25",
        r"\u5931\u8D25",
    ];
    AhoCorasick::new(spelled).ok()
});

/// Different lines of the newest results, the newest first.
pub(super) fn newest_error_lines(
    conversation: &Conversation,
    removed: &[usize],
    most: usize,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut searched = 0;
    for &at in removed.iter().rev() {
        let message = &conversation.items[at];
        if !message.author.is_tool() {
            continue;
        }
        let mut of_one = 0;
        let texts: Vec<_> = conversation.texts_of(message).collect();
        for text in texts.into_iter().rev() {
            let raw = conversation.raw_bytes(text);
            let raw = &raw[raw.len() - raw.len().min(MAX_OF_ONE)..];
            searched += raw.len();
            for line in last_lines(raw, LINES - of_one) {
                of_one += 1;
                if !found.contains(&line) {
                    found.push(line);
                }
            }
            if of_one == LINES {
                break;
            }
        }
        if found.len() >= most || searched >= MAX_SEARCHED {
            break;
        }
    }
    found.truncate(most);
    found
}

/// The last lines of a text that tell of an error, the last first.
fn last_lines(raw: &[u8], most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(spelled) = &*SPELLED else {
        return lines;
    };
    let places: Vec<usize> = spelled.find_iter(raw).map(|it| it.start()).collect();
    let mut before = raw.len() + 1;
    for &place in places.iter().rev().filter(|_| most > 0).take(MAX_LOOKED_AT) {
        // Another word of a line that was looked at.
        if place >= before {
            continue;
        }
        let (start, end) = line_around(raw, place);
        before = start;
        let line: String = decode_chars(&raw[start..end]).collect();
        if tells_of_error(&line) {
            lines.push(excerpt_line(line.chars(), LINE_CHARS));
            if lines.len() == most {
                break;
            }
        }
    }
    lines
}

/// The line that a byte lies in, as far as it is near.
fn line_around(raw: &[u8], at: usize) -> (usize, usize) {
    let first = at.saturating_sub(BEFORE_BYTES);
    let ends = memchr::memmem::rfind_iter(&raw[first..at], b"\\n");
    let start = ends
        .map(|end| first + end)
        .find(|&end| is_escape(raw, end))
        .map_or_else(|| whole_from(raw, first), |end| end + 2);
    let last = (at + AFTER_BYTES).min(raw.len());
    let ends = memchr::memmem::find_iter(&raw[at..last], b"\\n");
    let end = ends.map(|end| at + end).find(|&end| is_escape(raw, end));
    (start, end.unwrap_or(last))
}

/// Where a character begins, in the middle of a line.
fn whole_from(raw: &[u8], first: usize) -> usize {
    let inside = raw[first..].iter().take(4);
    first + inside.take_while(|&&byte| byte & 0xC0 == 0x80).count()
}

/// Whether the backslash at a place begins an escape, and is not one that is escaped itself.
fn is_escape(raw: &[u8], at: usize) -> bool {
    let before = raw[..at].iter().rev();
    before.take_while(|&&byte| byte == b'\\').count() % 2 == 0
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
    WORDS.iter().any(|word| told(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::text::escape_text;

    #[test]
    fn lines_that_tell_of_errors_are_found() {
        let lines = |text: &str| {
            let mut lines = last_lines(escape_text(text).as_bytes(), 2);
            lines.reverse();
            lines
        };
        assert_eq!(
            lines("start\nValueError: x\nok\n  thread panicked at y\n编译失败：z\nend"),
            ["thread panicked at y", "编译失败：z"]
        );
        assert_eq!(lines("3 passed, 0 failed, no errors"), [""; 0]);
        assert_eq!(lines("10 failed"), ["10 failed"]);
        assert_eq!(lines("0 errors but 1 failed"), ["0 errors but 1 failed"]);
        assert_eq!(lines("a\\nb error\\n\nc"), [r"a\nb error\n"]);
        assert_eq!(lines("FAILED failed Error\nok"), ["FAILED failed Error"]);
        let spelled = last_lines(br"x\n\u7f16\u8bd1\u9519\u8bef: y\nz", 2);
        assert_eq!(spelled, ["编译错误: y"]);
    }

    #[test]
    fn a_line_without_an_end_is_shown_as_far_as_it_is_near() {
        let text = format!("{}error here{}", "字".repeat(5_000), "x".repeat(5_000));
        let lines = last_lines(text.as_bytes(), 2);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with('字') && lines[0].chars().count() <= LINE_CHARS);
    }
}
