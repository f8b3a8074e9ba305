//! The lines of a long result that look like what its call asked for: errors, lines with its pattern, or its range of lines.
//!
//! They depend on the result and its call alone, so they are the same in every request. The time is linear in the text: a
//! pattern is searched for by its words, since a regular expression would be compiled for each long result of each request.

use std::{collections::BTreeMap, ops::Range};

use aho_corasick::AhoCorasick;
use serde_json::{Map, Value};

use super::{
    error_line::{self, indicates_error},
    line_range::parse_lines,
};

/// Characters of all lines that are shown, the markers between their stretches included.
const MAX_CHARS: usize = 4_000;
/// Characters of one line that are shown, and how many of them may precede the first match.
const MAX_LINE_CHARS: usize = 400;
const BEFORE_CHARS: usize = 100;
/// The most indented lines that are shown after a line with an error: they mostly name places in the code.
const MAX_INDENTED: usize = 6;
/// Longer arguments are not read.
const MAX_ARGUMENT_BYTES: usize = 16 << 10;
/// Words of all patterns of a call that are looked for, and bytes of the shortest word.
const MAX_WORDS: usize = 16;
const MIN_WORD_BYTES: usize = 3;

/// Arguments that hold what a tool looks for.
const PATTERNS: [&str; 8] = [
    "pattern",
    "query",
    "regex",
    "search",
    "search_term",
    "keyword",
    "keywords",
    "q",
];
/// Arguments that hold a first and a last line, in one value or in two.
const RANGES: [&str; 3] = ["lines", "line_range", "view_range"];
const ENDS: [[&str; 2]; 4] = [
    ["start_line", "end_line"],
    ["startLine", "endLine"],
    ["line_start", "line_end"],
    ["start", "end"],
];

/// What a call asked for.
#[derive(Debug, Default)]
pub(in crate::guard) struct AskedLines {
    /// A line matches if it has all words of one of these.
    alternatives: Vec<Vec<String>>,
    /// The first and the last line, counted from 1.
    range: Option<(usize, usize)>,
}

/// The lines of one kind, in characters, and how long all of them are. Lines beyond [`MAX_CHARS`] are counted only.
#[derive(Default)]
struct FoundLines {
    lines: Vec<Range<usize>>,
    chars: usize,
}

impl AskedLines {
    /// Reads what a call asked for. Finds no pattern and no range if the arguments are not a JSON object, or are too long.
    pub(in crate::guard) fn from_arguments(json: &str) -> Self {
        let members = Some(json).filter(|json| json.len() <= MAX_ARGUMENT_BYTES);
        let members =
            members.and_then(|json| serde_json::from_str::<Map<String, Value>>(json).ok());
        let members = members.unwrap_or_default();
        let patterns = PATTERNS
            .iter()
            .filter_map(|name| members.get(*name)?.as_str());
        let mut left = MAX_WORDS;
        let alternatives = patterns.flat_map(|it| it.split('|')).map(split_words);
        let alternatives = alternatives.filter(|words| !words.is_empty());
        let alternatives = alternatives.map_while(|words| {
            left = left.checked_sub(words.len())?;
            Some(words)
        });
        Self {
            alternatives: alternatives.collect(),
            range: find_range(&members),
        }
    }

    /// Chooses the stretches of `text` that are shown of the characters in `gap`, in order, within `room` characters. A
    /// stretch takes `marker` characters more, unless it follows another one directly.
    pub(super) fn choose_stretches(
        &self,
        text: &str,
        gap: &Range<usize>,
        room: usize,
        marker: usize,
    ) -> Vec<Range<usize>> {
        let mut kinds = self.find_lines(text, gap);
        // The kind with the fewest characters comes first: what most lines match says least about what was asked for.
        kinds.sort_by_key(|kind| kind.chars);
        let mut room = room.min(MAX_CHARS);
        let mut chosen: BTreeMap<usize, usize> = BTreeMap::new();
        for line in kinds.into_iter().flat_map(|kind| kind.lines) {
            let before = chosen.range(..=line.start).next_back();
            let before = before.map(|(_, &end)| end);
            let follows = before.is_some_and(|end| end + 1 == line.start);
            let chars = line.len() + if follows { 1 } else { marker };
            if before.is_none_or(|end| end < line.start) && chars <= room {
                room -= chars;
                chosen.insert(line.start, line.end);
            }
        }
        chosen.into_iter().map(|(start, end)| start..end).collect()
    }

    /// Finds the lines that report an error, those with the words of a pattern, and those of the range.
    fn find_lines(&self, text: &str, gap: &Range<usize>) -> [FoundLines; 3] {
        let mut found: [FoundLines; 3] = Default::default();
        let words = self.alternatives.iter().flatten().map(String::as_str);
        let words = error_line::WORDS.into_iter().chain(words);
        let mut matcher = AhoCorasick::builder();
        let Ok(matcher) = matcher.ascii_case_insensitive(true).build(words) else {
            return found;
        };
        let mut bit = error_line::WORDS.len();
        let alternatives = self.alternatives.iter().map(|words| {
            let bits = ((1u32 << words.len()) - 1) << bit;
            bit += words.len();
            bits
        });
        let alternatives: Vec<u32> = alternatives.collect();
        let errors = (1u32 << error_line::WORDS.len()) - 1;
        let mut matches = matcher.find_overlapping_iter(text).peekable();
        let (mut byte, mut start, mut indented) = (0, 0, 0);
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            let (mut bits, mut first) = (0u32, None);
            while let Some(word) = matches.next_if(|word| word.end() <= byte + line.len()) {
                bits |= 1 << word.pattern().as_u32();
                first = first.or(Some(word.start() - byte));
            }
            let body = line.trim_end_matches(['\r', '\n']);
            indented = match bits & errors != 0 && indicates_error(body) {
                true => MAX_INDENTED + 1,
                false if body.starts_with([' ', '\t']) => indented.saturating_sub(1),
                false => 0,
            };
            let matches_pattern = alternatives.iter().any(|words| bits & words == *words);
            let number = read_line_number(body).unwrap_or(number);
            let range = self
                .range
                .filter(|(from, to)| (*from..=*to).contains(&number));
            let is_asked = [indented > 0, matches_pattern, range.is_some()];
            let skipped = body[..first.unwrap_or(0)].chars().count();
            let skipped = skipped.saturating_sub(BEFORE_CHARS);
            let shown = body.chars().skip(skipped).take(MAX_LINE_CHARS).count();
            let shown = start + skipped..start + skipped + shown;
            let is_inside = gap.start <= shown.start && shown.end <= gap.end;
            if is_inside && !shown.is_empty() {
                for kind in found.iter_mut().zip(is_asked).filter(|it| it.1) {
                    kind.0.chars += shown.len() + 1;
                    if kind.0.chars <= MAX_CHARS {
                        kind.0.lines.push(shown.clone());
                    }
                }
            }
            byte += line.len();
            start += line.chars().count();
        }
        found
    }
}

/// Splits one alternative of a regular expression, or a search, into words. A character that a match may lack (before `?` or
/// `*`) is part of no word.
fn split_words(pattern: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_alphanumeric() || c == '_' => {
                word.push(c);
                continue;
            }
            '\\' => drop(chars.next()),
            '[' => drop(chars.find(|c| *c == ']')),
            '?' | '*' => drop(word.pop()),
            _ => {}
        }
        words.push(std::mem::take(&mut word));
    }
    words.push(word);
    words.retain(|word| word.len() >= MIN_WORD_BYTES);
    words
}

fn find_range(arguments: &Map<String, Value>) -> Option<(usize, usize)> {
    let number = |name: &str| Some(arguments.get(name)?.as_u64()? as usize);
    let lists = RANGES.iter().filter_map(|name| arguments.get(*name));
    let list = lists.map(Value::to_string).find_map(|it| parse_lines(&it));
    let mut ends = ENDS
        .iter()
        .filter_map(|[first, last]| Some((number(first)?, number(last)?)));
    list.or_else(|| ends.next()).or_else(|| {
        let first = number("offset")?;
        Some((first, first.saturating_add(number("limit")?)))
    })
}

/// The line number that a tool for reading files writes before a line.
fn read_line_number(line: &str) -> Option<usize> {
    let line = line.trim_start();
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered =
        rest.trim_start_matches(' ').starts_with(['→', '|']) || rest.starts_with('\t');
    let digits = &line[..line.len() - rest.len()];
    digits.parse().ok().filter(|_| is_numbered)
}

#[cfg(test)]
mod tests;
