//! Finds error lines in tool results: searched in raw bytes, newest first.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::{LINE_CHARS, excerpt::excerpt_line};
use crate::{
    conversation::{Conversation, texts::decode_chars},
    guard::text::error_line::indicates_error,
};

/// Bytes that are searched in all results together, and at the end of each text.
const MAX_SEARCHED: usize = 1 << 18;
const MAX_SEARCHED_OF_TEXT: usize = 1 << 15;
/// Lines of one result that are shown, and words of one text that are checked.
const LINES: usize = 2;
const MAX_CHECKED: usize = 40;
/// Bytes of a line before and after the word found in it.
const BEFORE_BYTES: usize = 1_000;
const AFTER_BYTES: usize = 1_200;

/// The words that mark an error line, as a JSON body may spell them.
static SPELLINGS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let latin =
        "error Error ERROR failed Failed FAILED exception Exception EXCEPTION panic Panic PANIC";
    let chinese = r"错误 失败 \u9519\u8bef \u9519\u8BEF \u5931\u8d25 \u5931\u8D25";
    AhoCorasick::new(latin.split(' ').chain(chinese.split(' '))).ok()
});

/// Different error lines of the newest results, the newest first.
pub(super) fn newest_error_lines(
    conversation: &Conversation,
    removed: &[usize],
    max_lines: usize,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut searched = 0;
    let messages = removed.iter().rev().map(|&at| &conversation.items[at]);
    for message in messages.filter(|message| message.author.is_tool()) {
        let texts: Vec<_> = conversation.texts_of(message).collect();
        let ends = texts.into_iter().rev().map(|text| {
            let raw = conversation.raw_bytes(text);
            let raw = &raw[raw.len().saturating_sub(MAX_SEARCHED_OF_TEXT)..];
            searched += raw.len();
            raw
        });
        for line in ends
            .flat_map(|raw| last_error_lines(raw, LINES))
            .take(LINES)
        {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        if lines.len() >= max_lines || searched >= MAX_SEARCHED {
            break;
        }
    }
    lines.truncate(max_lines);
    lines
}

/// The last error lines of a text, the last first; `max_lines` is at least 1.
fn last_error_lines(raw: &[u8], max_lines: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(spellings) = &*SPELLINGS else {
        return lines;
    };
    let words: Vec<usize> = spellings.find_iter(raw).map(|it| it.start()).collect();
    let mut checked_from = raw.len();
    for &word in words.iter().rev().take(MAX_CHECKED) {
        // Another word of a line that was checked.
        if word >= checked_from {
            continue;
        }
        let (start, end) = line_around(raw, word);
        checked_from = start;
        let line: String = decode_chars(&raw[start..end]).collect();
        if indicates_error(&line) {
            lines.push(excerpt_line(line.chars(), LINE_CHARS));
            if lines.len() == max_lines {
                break;
            }
        }
    }
    lines
}

/// The line around a byte, or the part of it that is near.
fn line_around(raw: &[u8], at: usize) -> (usize, usize) {
    let first = at.saturating_sub(BEFORE_BYTES);
    let ends = memchr::memmem::rfind_iter(&raw[first..at], b"\\n");
    let start = ends
        .map(|end| first + end)
        .find(|&end| is_escape(raw, end))
        .map_or_else(|| next_char_start(raw, first), |end| end + 2);
    let last = (at + AFTER_BYTES).min(raw.len());
    let ends = memchr::memmem::find_iter(&raw[at..last], b"\\n");
    let end = ends.map(|end| at + end).find(|&end| is_escape(raw, end));
    (start, end.unwrap_or(last))
}

/// The first byte from `first` on at which a UTF-8 character begins.
fn next_char_start(raw: &[u8], first: usize) -> usize {
    let inside = raw[first..].iter().take(4);
    first + inside.take_while(|&&byte| byte & 0xC0 == 0x80).count()
}

/// Whether the backslash at `at` begins an escape, and is not escaped itself.
fn is_escape(raw: &[u8], at: usize) -> bool {
    let before = raw[..at].iter().rev();
    before.take_while(|&&byte| byte == b'\\').count() % 2 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::text::escape_text;

    #[test]
    fn error_lines_are_found() {
        let lines = |text: &str| {
            let mut lines = last_error_lines(escape_text(text).as_bytes(), 2);
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
        let spelled = last_error_lines(br"x\n\u7f16\u8bd1\u9519\u8bef: y\nz", 2);
        assert_eq!(spelled, ["编译错误: y"]);
    }

    #[test]
    fn a_very_long_line_is_shown_in_part() {
        let text = format!("{}error here{}", "字".repeat(5_000), "x".repeat(5_000));
        let lines = last_error_lines(text.as_bytes(), 2);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with('字') && lines[0].chars().count() <= LINE_CHARS);
    }
}
