//! Parses and checks the answer of the summary model.
//!
//! The model has just read all tool results, so its answer is not trusted. Only the block with the key of this request
//! counts, with every section once and in order. Weak models forget the key: a block without a key counts if the
//! conversation holds nothing like such a block, so that nobody can have planted it. Any other answer is rejected.
//!
//! The contents of the block cannot be checked. They are sent between fences, as data.

use thiserror::Error;

use super::SECTIONS;
use crate::{
    conversation::Format,
    format::{AnswerEvent, AnswerEvents, FinishKind},
    guard::{estimate::Weights, fence},
    json::text,
};

/// Longest summary in bytes.
const MAX_BYTES: usize = 24_000;
/// Least number of sections with contents.
const LEAST_FILLED: usize = 3;
/// Written into an empty section.
const NOTHING: &str = "none";
/// End of a shortened section.
const ELLIPSIS: &str = " …";

/// Why an answer is no summary. Never holds any of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SummaryRejection {
    #[error("the answer is no message of a model")]
    NotAnAnswer,
    #[error("the answer has no text")]
    Empty,
    #[error("the answer was cut off")]
    CutOff,
    #[error("the answer calls tools")]
    CallsTools,
    #[error("the answer does not hold the requested summary block")]
    NoBlock,
    #[error("a section of the summary is missing, repeated or out of order")]
    NoSections,
    #[error("most sections of the summary are empty")]
    Hollow,
    #[error("the summary is larger than half of what it replaces")]
    TooLittleSaved,
}

/// The requested block.
#[derive(Clone, Copy)]
pub(super) struct SummaryBlock<'a> {
    pub(super) key: &'a str,
    /// A block without a key counts too, since the conversation holds none.
    pub(super) accept_unkeyed: bool,
}

/// Parses the answer. The summary is `<summary>`, its sections, `</summary>`: never empty, at most
/// [`MAX_BYTES`] and `most` raw tokens, and without any other fence tag.
pub(super) fn parse_summary(
    format: Format,
    answer: &[u8],
    block: SummaryBlock<'_>,
    most: u32,
    weights: &Weights,
) -> Result<String, SummaryRejection> {
    let text = read_text(format, answer)?;
    let block = find_block(&text, block).ok_or(SummaryRejection::NoBlock)?;
    let mut sections = read_sections(block).ok_or(SummaryRejection::NoSections)?;
    let filled = sections.iter().filter(|text| !text.is_empty()).count();
    if filled < LEAST_FILLED {
        return Err(SummaryRejection::Hollow);
    }
    loop {
        let summary = write_summary(&sections);
        if summary.len() <= MAX_BYTES && weights.count_plain_tokens(&summary) <= most {
            return Ok(summary);
        }
        let longest = sections.iter_mut().max_by_key(|text| text.len());
        let longest = longest.filter(|text| !text.is_empty());
        let longest = longest.ok_or(SummaryRejection::Hollow)?;
        *longest = cut_end(longest, longest.len() / 8 * 7);
    }
}

/// The text of an answer that ended regularly.
fn read_text(format: Format, json: &[u8]) -> Result<String, SummaryRejection> {
    let answer = format
        .read_answer(json)
        .map_err(|_| SummaryRejection::NotAnAnswer)?;
    if answer.has_error() || !answer.has_message() {
        return Err(SummaryRejection::NotAnAnswer);
    }
    let mut text = String::new();
    for event in answer.events() {
        match event {
            AnswerEvent::Call(_) => return Err(SummaryRejection::CallsTools),
            AnswerEvent::Text(part) => text.extend(text::decode_text(&json[part.span.range()])),
            _ => {}
        }
    }
    match answer.find_finish().map(|finish| finish.kind) {
        Some(FinishKind::Calls) => Err(SummaryRejection::CallsTools),
        Some(kind) if kind.is_cut_off() => Err(SummaryRejection::CutOff),
        _ => match without_thoughts(&text) {
            "" => Err(SummaryRejection::Empty),
            text => Ok(text.to_owned()),
        },
    }
}

/// The text without the reasoning before it.
fn without_thoughts(text: &str) -> &str {
    let mut text = text.trim();
    for (open, close) in [("<think>", "</think>"), ("<thinking>", "</thinking>")] {
        if let Some(thought) = text.strip_prefix(open) {
            let answer = thought.split_once(close).map(|(_, answer)| answer);
            text = answer.unwrap_or_default().trim();
        } else if let Some((thought, answer)) = text.split_once(close)
            && !thought.contains(open)
            && answer.contains(fence::SUMMARY)
        {
            // Some chat templates write the opening tag themselves.
            text = answer.trim();
        }
    }
    text
}

/// The contents between the last opening tag with the key and the last closing tag. Without a tag
/// with the key, a single opening tag without attributes counts if the block accepts it.
fn find_block<'a>(text: &'a str, block: SummaryBlock<'_>) -> Option<&'a str> {
    let open = format!("<{}", fence::SUMMARY);
    let close = format!("</{}>", fence::SUMMARY);
    // The attributes of each opening tag, and the start of its contents.
    let opening = text.match_indices(&open).filter_map(|(at, _)| {
        let (attributes, _) = text[at + open.len()..].split_once('>')?;
        Some((attributes, at + open.len() + attributes.len() + 1))
    });
    let opening: Vec<_> = opening.collect();
    let keyed = opening.iter().rfind(|(attributes, _)| {
        attributes.starts_with(char::is_whitespace) && attributes.contains(block.key)
    });
    let start = match (keyed, &opening[..]) {
        (Some((_, start)), _) => *start,
        (None, [("", start)]) if block.accept_unkeyed => *start,
        _ => return None,
    };
    let inside = &text[start..];
    inside.rfind(&close).map(|end| &inside[..end])
}

/// The contents of the sections, which must be there once and in order.
fn read_sections(block: &str) -> Option<[String; SECTIONS.len()]> {
    let mut found: [String; SECTIONS.len()] = Default::default();
    let mut at = 0;
    for (tag, content) in SECTIONS.iter().zip(&mut found) {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let start = find_once(block, &open)?;
        let end = find_once(block, &close)?;
        if start < at || end < start + open.len() {
            return None;
        }
        at = end + close.len();
        *content = tidy_section(&block[start + open.len()..end]);
    }
    Some(found)
}

/// Position of `needle` if it occurs once.
fn find_once(text: &str, needle: &str) -> Option<usize> {
    let mut found = text.match_indices(needle);
    let first = found.next()?.0;
    found.next().is_none().then_some(first)
}

/// A section's contents without fence tags and control characters; empty for words like "none".
fn tidy_section(content: &str) -> String {
    let visible = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let content: String = content.chars().filter(visible).collect();
    let content = content.trim();
    let bare = content.trim_matches(|c: char| !c.is_alphanumeric());
    let nothing = ["", "none", "nothing", "n/a", "无", "没有", "暂无"];
    if nothing.contains(&bare.to_lowercase().as_str()) {
        return String::new();
    }
    fence::neutralize_tags(content).into_owned()
}

/// The beginning of a text in at most `bytes`, up to a line end if one is near; empty if nothing fits.
fn cut_end(text: &str, bytes: usize) -> String {
    let Some(room) = bytes.checked_sub(ELLIPSIS.len()) else {
        return String::new();
    };
    let mut ends = (0..=room.min(text.len())).rev();
    let end = ends.find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let line = text[..end].rfind('\n').filter(|at| at * 4 > end * 3);
    let head = text[..line.unwrap_or(end)].trim_end();
    let ellipsis = if head.is_empty() { "" } else { ELLIPSIS };
    format!("{head}{ellipsis}")
}

fn write_summary(sections: &[String; SECTIONS.len()]) -> String {
    let tag = fence::SUMMARY;
    let mut text = String::new();
    for (section, content) in SECTIONS.iter().zip(sections) {
        let content = if content.is_empty() { NOTHING } else { content };
        text.push_str(&format!("<{section}>{content}</{section}>\n"));
    }
    format!("<{tag}>\n{text}</{tag}>")
}

#[cfg(test)]
mod tests;
