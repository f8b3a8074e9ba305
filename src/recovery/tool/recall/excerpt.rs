//! Chooses the lines of an answer, within its bound, and writes what is not shown.

use std::{collections::BTreeSet, ops::Range};

use super::{document::Document, query::RecallQuery, stored::Piece};
use crate::guard::recall_id::EARLIER;

/// Characters of an answer that are reserved for titles, headings, and the sentence on what is not shown.
const FRAME_CHARS: usize = 300;
/// Characters of the smallest answer.
pub(super) const LEAST_CHARS: usize = 2 * FRAME_CHARS;
/// Most matches that are shown.
const MAX_MATCHES: usize = 20;
/// Most matches that are not shown, but whose lines are named.
const MAX_NAMED_LINES: usize = 10;
/// Lines on each side of a match.
const CONTEXT: usize = 2;

/// The answer to a query, of at most about `max_chars`.
///
/// # Errors
/// If there are no such lines; the message is for the model.
pub(super) fn answer_query(
    document: &Document,
    query: &RecallQuery,
    max_chars: usize,
) -> Result<Vec<Piece>, String> {
    let (title, total) = (document.title(), document.lines.len());
    let range = match query.lines {
        Some(_) if document.is_earlier => {
            return Err(format!(
                "lines count within one message: give its id, or look for a pattern in {EARLIER}."
            ));
        }
        Some((first, _)) if first > total => {
            return Err(format!("{title} has only {total} lines."));
        }
        Some((first, last)) => first - 1..last.min(total),
        None => 0..total,
    };
    let mut excerpt = Excerpt {
        document,
        room: max_chars.saturating_sub(FRAME_CHARS),
        chosen: BTreeSet::new(),
    };
    let more = match &query.pattern {
        Some(pattern) => {
            let matches = range.filter(|&line| document.matches(line, pattern));
            excerpt.choose_matches(&matches.collect::<Vec<_>>())
        }
        None if query.lines.is_some() => excerpt.choose_range(range),
        None => excerpt.choose_ends(),
    };
    let mut pieces = vec![Piece::Text(format!(
        "{title}, {total} lines in all. {more}\n"
    ))];
    for lines in excerpt.list_groups() {
        let (first, last) = (&document.lines[lines.start], &document.lines[lines.end - 1]);
        let place = document.messages[first.message].place;
        pieces.push(Piece::Text(document.heading(&lines)));
        pieces.push(Piece::Slice(place, first.bytes.start, last.bytes.end));
        pieces.push(Piece::Text("\n".to_owned()));
    }
    Ok(pieces)
}

struct Excerpt<'a> {
    document: &'a Document,
    /// Characters that may still be shown.
    room: usize,
    chosen: BTreeSet<usize>,
}

impl Excerpt<'_> {
    /// Chooses a line if there is room; returns whether it was chosen now.
    fn choose(&mut self, line: usize) -> bool {
        // The line end counts too. If several messages are shown, then the heading of each message also counts.
        let first = line.checked_sub(1).is_none_or(|before| {
            self.document.lines[before].message != self.document.lines[line].message
        });
        let has_heading = first && self.document.is_earlier;
        let heading = if has_heading { 40 } else { 1 };
        let chars = self.document.line_text(line).chars().count() + heading;
        let fits = chars <= self.room && !self.chosen.contains(&line);
        if fits {
            self.room -= chars;
            self.chosen.insert(line);
        }
        fits
    }

    fn choose_range(&mut self, range: Range<usize>) -> String {
        let end = range.end;
        let shown = range.take_while(|&line| self.choose(line)).last();
        match shown.map_or(0, |line| line + 1) {
            shown if shown == end => String::new(),
            shown => format!("Not shown: lines {}-{end}.", shown + 1),
        }
    }

    /// As much of the beginning as of the end.
    fn choose_ends(&mut self) -> String {
        let total = self.document.lines.len();
        let half = self.room / 2;
        self.room -= half;
        let begun = (0..total).take_while(|&line| self.choose(line)).count();
        self.room += half;
        let ended = (begun..total).rev();
        let ended = ended.take_while(|&line| self.choose(line)).count();
        let (end, document) = (total - ended, self.document);
        match end - begun {
            0 => String::new(),
            hidden if document.is_earlier => format!(
                "Not shown: {hidden} lines from {} to {}; ask for them with a pattern, or with the id of a message.",
                document.name_line(begun),
                document.name_line(end - 1)
            ),
            _ => format!(
                "Not shown: lines {}-{end}; ask for them with lines, or with a pattern.",
                begun + 1
            ),
        }
    }

    fn choose_matches(&mut self, matches: &[usize]) -> String {
        if matches.is_empty() {
            return "Nothing in it matches the pattern.".to_owned();
        }
        // Matches are chosen before the lines around them, since these may be matches too.
        let shown = matches.iter().take(MAX_MATCHES);
        let shown = shown.take_while(|&&line| self.choose(line)).count();
        for distance in 1..=CONTEXT {
            for &line in &matches[..shown] {
                let message = self.document.lines[line].message;
                let around = [line.checked_sub(distance), line.checked_add(distance)];
                for near in around.into_iter().flatten() {
                    let lines = &self.document.lines;
                    if lines.get(near).is_some_and(|it| it.message == message) {
                        self.choose(near);
                    }
                }
            }
        }
        let left = &matches[shown..];
        let hidden: Vec<_> = left.iter().filter(|it| !self.chosen.contains(it)).collect();
        let all = matches.len();
        let mut more = match all {
            1 => "1 line matches.".to_owned(),
            _ => format!("{all} lines match."),
        };
        if !hidden.is_empty() {
            let named = hidden.iter().take(MAX_NAMED_LINES);
            let named: Vec<_> = named.map(|line| self.document.name_line(**line)).collect();
            let (named, count) = (named.join(", "), hidden.len());
            let lines = if self.document.is_earlier {
                ""
            } else {
                "lines "
            };
            let dots = if count > MAX_NAMED_LINES { ", …" } else { "" };
            more += &format!(" Not shown: {count} of them, in {lines}{named}{dots}.");
        }
        more
    }

    /// The chosen lines in runs, each within one message.
    fn list_groups(&self) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for &line in &self.chosen {
            let message = |line: usize| self.document.lines[line].message;
            match groups.last_mut() {
                Some(last) if last.end == line && message(last.start) == message(line) => {
                    last.end += 1;
                }
                _ => groups.push(line..line + 1),
            }
        }
        groups
    }
}
