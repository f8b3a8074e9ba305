//! Finds enclosed text: text between fences, and text between the tags of a file.

use std::{
    collections::{HashMap, VecDeque},
    ops::{Range, RangeInclusive},
};

use crate::{guard::text::truncate::find_byte_offset, json::text::TextWalk};

/// A tag encloses a file where the last word of its name is one of these, in the singular or the plural.
const FILE_WORDS: [&str; 6] = [
    "file",
    "document",
    "doc",
    "attachment",
    "snippet",
    "selection",
];
/// Such a word may be followed by one of these.
const CONTENT_WORDS: [&str; 4] = ["content", "contents", "text", "data"];
/// A tag with such an attribute encloses a file, whatever its name.
const FILE_ATTRIBUTES: [&str; 6] = ["path", "filepath", "file_path", "file", "filename", "uri"];
/// How many marks make a fence.
const FENCE: RangeInclusive<usize> = 3..=16;
const MAX_INDENT: usize = 3;

/// Finds the bytes enclosed in a text as spelled in JSON, without fences and tags, in order. Of nested enclosures, the outer
/// one counts. A fence or tag that is not closed encloses nothing. `None` if the text cannot be decoded.
pub(super) fn find_enclosed_text(raw: &[u8]) -> Option<Vec<Range<usize>>> {
    let lines = split_lines(raw)?;
    let mut closing_tags = find_closing_tags(&lines);
    let mut fences = FenceSearch::default();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let inner = match Opening::read(&lines[at].text) {
            Some(Opening::Fence(fence)) => {
                fences.find_end(&lines, at, fence).map(|end| Enclosure {
                    first: lines[at].end,
                    end: lines[end].start,
                    last_line: end,
                })
            }
            Some(Opening::Tag { name, chars }) => {
                let first = Position { line: at, chars };
                let closing = closing_tags.get_mut(name);
                closing
                    .and_then(|it| take_next(it, first))
                    .map(|end| Enclosure {
                        first: lines[at].offset(raw, chars),
                        end: lines[end.line].offset(raw, end.chars),
                        last_line: end.line,
                    })
            }
            None => None,
        };
        at += 1;
        if let Some(inner) = inner {
            at = inner.last_line + 1;
            found.push(inner.first..inner.end);
        }
    }
    Some(found)
}

struct Enclosure {
    first: usize,
    end: usize,
    last_line: usize,
}

struct Line {
    /// Its first byte, and the one behind its line end.
    start: usize,
    end: usize,
    text: String,
}

impl Line {
    /// The byte of its character `chars`.
    fn offset(&self, raw: &[u8], chars: usize) -> usize {
        self.start + find_byte_offset(&raw[self.start..self.end], chars)
    }
}

/// Line, and characters before it there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    line: usize,
    chars: usize,
}

fn split_lines(raw: &[u8]) -> Option<Vec<Line>> {
    let mut walk = TextWalk::new(raw);
    let mut lines = Vec::new();
    let (mut start, mut text, mut ended) = (0, String::new(), false);
    for character in walk.by_ref() {
        if std::mem::take(&mut ended) {
            let text = std::mem::take(&mut text);
            lines.push(Line {
                start,
                end: character.at,
                text,
            });
            start = character.at;
        }
        match char::from_u32(character.code)? {
            '\n' => ended = true,
            other => text.push(other),
        }
    }
    let end = raw.len();
    lines.push(Line { start, end, text });
    walk.is_sound().then_some(lines)
}

enum Opening<'a> {
    Fence(Fence),
    /// `chars`: characters of the line up to the end of the tag.
    Tag {
        name: &'a str,
        chars: usize,
    },
}

#[derive(Clone, Copy)]
struct Fence {
    mark: char,
    length: usize,
    /// Nothing follows its marks in the line, so that it may close another fence.
    is_bare: bool,
}

impl Fence {
    fn read(line: &str) -> Option<Self> {
        let text = line.trim_start_matches(' ');
        let mark = text.chars().next().filter(|it| matches!(it, '`' | '~'))?;
        let length = text.chars().take_while(|&it| it == mark).count();
        let rest = text[length..].trim();
        let is_fence = FENCE.contains(&length)
            && line.len() - text.len() <= MAX_INDENT
            && !(mark == '`' && rest.contains('`'));
        is_fence.then_some(Self {
            mark,
            length,
            is_bare: rest.is_empty(),
        })
    }
}

impl<'a> Opening<'a> {
    fn read(line: &'a str) -> Option<Self> {
        if let Some(fence) = Fence::read(line) {
            return Some(Self::Fence(fence));
        }
        let inside = line.trim_start().strip_prefix('<')?;
        let tag = &inside[..inside.find('>')?];
        let (name, attributes) = tag.split_at(find_name_end(tag));
        let is_file = names_file(name) || {
            let attributes = attributes.to_ascii_lowercase();
            let mut names = attributes
                .split_whitespace()
                .filter_map(|it| it.split_once('='));
            names.any(|(name, _)| FILE_ATTRIBUTES.contains(&name))
        };
        let is_open = !tag.ends_with('/') && name.starts_with(|it: char| it.is_ascii_alphabetic());
        let before = line.len() - inside.len() + tag.len() + 1;
        (is_open && is_file).then(|| Self::Tag {
            name,
            chars: line[..before].chars().count(),
        })
    }
}

fn find_name_end(tag: &str) -> usize {
    let is_of_name = |it: char| it.is_alphanumeric() || matches!(it, '-' | '_' | '.' | ':');
    tag.find(|it| !is_of_name(it)).unwrap_or(tag.len())
}

fn names_file(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.rsplit(|it: char| !it.is_alphanumeric());
    let last = words.find(|word| !CONTENT_WORDS.contains(word));
    let is_word = |last: &str| {
        FILE_WORDS
            .iter()
            .any(|&word| last == word || last.strip_suffix('s') == Some(word))
    };
    last.is_some_and(is_word)
}

/// Where the closing tags of each name begin, in order.
fn find_closing_tags(lines: &[Line]) -> HashMap<&str, VecDeque<Position>> {
    let mut found: HashMap<&str, VecDeque<Position>> = HashMap::new();
    for (line, Line { text, .. }) in lines.iter().enumerate() {
        let (mut bytes, mut chars) = (0, 0);
        while let Some(next) = text[bytes..].find("</") {
            chars += text[bytes..bytes + next].chars().count();
            bytes += next;
            let inside = &text[bytes + 2..];
            let name = &inside[..find_name_end(inside)];
            if inside[name.len()..].starts_with('>') {
                found
                    .entry(name)
                    .or_default()
                    .push_back(Position { line, chars });
            }
            (bytes, chars) = (bytes + 2, chars + 2);
        }
    }
    found
}

/// The first of the positions from `first` on. Those before it are dropped: no later search asks for them.
fn take_next(positions: &mut VecDeque<Position>, first: Position) -> Option<Position> {
    while positions.front().is_some_and(|it| *it < first) {
        positions.pop_front();
    }
    positions.front().copied()
}

/// Remembers failed searches, so that no text is searched again and again.
#[derive(Default)]
struct FenceSearch {
    /// The fences of this text are not all closed. From then on, the first bare fence closes the open one.
    is_uneven: bool,
    /// By mark, the least length of a fence for which no closing fence follows any more.
    unclosed: HashMap<char, usize>,
}

impl FenceSearch {
    /// Finds the line that closes the fence of line `at`. A fence with text behind its marks opens a fence inside the outer
    /// one: in files that people attach, such as a README, fences of equal length are nested.
    fn find_end(&mut self, lines: &[Line], at: usize, opening: Fence) -> Option<usize> {
        if self
            .unclosed
            .get(&opening.mark)
            .is_some_and(|&length| opening.length >= length)
        {
            return None;
        }
        let (mut depth, mut first_bare) = (1usize, None);
        for (line, text) in lines.iter().enumerate().skip(at + 1) {
            let fence = Fence::read(&text.text);
            let Some(fence) =
                fence.filter(|it| it.mark == opening.mark && it.length >= opening.length)
            else {
                continue;
            };
            match fence.is_bare {
                true if self.is_uneven => return Some(line),
                true => depth -= 1,
                false => depth += 1,
            }
            if depth == 0 {
                return Some(line);
            }
            first_bare = first_bare.or(fence.is_bare.then_some(line));
        }
        match first_bare {
            Some(_) => self.is_uneven = true,
            None => drop(self.unclosed.insert(opening.mark, opening.length)),
        }
        first_bare
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::text::{decode_text, escape_text};

    fn find(text: &str) -> Vec<String> {
        let raw = escape_text(text);
        let found = find_enclosed_text(raw.as_bytes()).unwrap();
        let inner = found
            .into_iter()
            .map(|it| decode_text(&raw.as_bytes()[it]).unwrap());
        inner.collect()
    }

    #[test]
    fn fences_and_tags_of_files_enclose_what_is_between_them() {
        for (text, enclosed) in [
            ("See:\n```py\na = 1\nb\n```\nWhy?", &["a = 1\nb\n"][..]),
            ("~~~\n```\nx\n~~~\n  ```\ny\n  ```", &["```\nx\n", "y\n"]),
            ("````md\n```\nx\n````", &["```\nx\n"]),
            (
                "```md\n```sh\nls\n```\nend\n```\nDo it.\n```\nx\n```",
                &["```sh\nls\n```\nend\n", "x\n"],
            ),
            ("```a\n```b\nx\n```\nDo it.", &["```b\nx\n"]),
            ("```\nnot closed", &[]),
            ("`one` and ``` in a line ```\nx\n", &[]),
            (
                "<file path=\"a.rs\">\nfn é() {}\n</file> Fix it.",
                &["\nfn é() {}\n"],
            ),
            (
                "<documents>\n<document index=\"1\">\nx\n</document>\n</documents>",
                &["\n<document index=\"1\">\nx\n</document>\n"],
            ),
            ("<code_snippet>é</code_snippet>", &["é"]),
            (
                "<code filePath='a'>\n```\nx\n```\n</code>",
                &["\n```\nx\n```\n"],
            ),
            (
                "<task>\nDo it.\n</task>\n<user_profile>\nme\n</user_profile>",
                &[],
            ),
            (
                "<agent profile=\"careful\" classpath=\"x\">\nGo on.\n</agent>\n<file_rules>\nNone.\n</file_rules>",
                &[],
            ),
            (
                "<attached_files>\nx\n</attached_files>\n<file_content>\ny\n</file_content>",
                &["\nx\n", "\ny\n"],
            ),
            ("<file/>\nx\n</file>\n<file>\nno end", &[]),
        ] {
            assert_eq!(find(text), enclosed, "{text}");
        }
    }

    #[test]
    fn fences_of_every_length_take_linear_time() {
        let lines = (4..4_000)
            .rev()
            .map(|length| format!("{}a\n", "`".repeat(length)));
        find(&lines.collect::<String>());
    }

    #[test]
    fn a_long_row_of_what_is_not_closed_takes_linear_time() {
        for line in [
            "```a\n",
            "```a\n```b\n```\n",
            "<file>\n",
            "<file></file\n",
            "<file>x</files>\n",
        ] {
            find(&line.repeat(200_000));
        }
    }

    proptest! {
        #[test]
        fn what_is_enclosed_is_in_order_and_between_characters(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "```", "```py", "~~~", "\n", "<file>", "</file>", "<file path=\"é\">", "x", "é", "😀", "</", ">",
                ]),
                0..60,
            ),
        ) {
            let raw = escape_text(&pieces.concat());
            let mut end = 0;
            for range in find_enclosed_text(raw.as_bytes()).unwrap() {
                prop_assert!(end <= range.start && range.start <= range.end && range.end <= raw.len());
                prop_assert!(decode_text(&raw.as_bytes()[range.clone()]).is_some());
                end = range.end;
            }
        }
    }
}
