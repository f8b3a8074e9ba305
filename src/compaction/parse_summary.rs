//! What is accepted as a summary.
//!
//! The answer comes from a model that has just read everything that tools gave out, so nothing in
//! it is trusted: it counts only inside the block with the key of this request, with every section
//! once and in order. Weak models forget the key. A block without one counts where the conversation
//! holds nothing that looks like such a block, so that it cannot be one that was planted there. What
//! does not look like that is refused, whatever it says instead.
//!
//! What a model writes into its own block cannot be checked: it goes between fences, as data.

use thiserror::Error;

use super::SECTIONS;
use crate::{
    format::{AnswerEvent, FinishKind, chat::answer},
    guard::{estimate::Weights, fence},
    json::text,
};

/// Bytes of the longest summary.
const MAX_BYTES: usize = 24_000;
/// Sections that must hold something.
const LEAST_FILLED: usize = 3;
/// What stands in a section that holds nothing.
const NOTHING: &str = "none";
/// What stands at the end of a section that was cut.
const ELLIPSIS: &str = " …";

/// Why an answer is no summary. Never holds any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SummaryRejection {
    #[error("the answer is no completion")]
    NotAnAnswer,
    #[error("the answer holds no text")]
    Empty,
    #[error("the answer was cut off")]
    CutOff,
    #[error("the answer calls tools")]
    CallsTools,
    #[error("the answer does not hold the block that was asked for")]
    NoBlock,
    #[error("a section is missing, or there twice, or at another place")]
    NoSections,
    #[error("the sections hold next to nothing")]
    Hollow,
    #[error("the summary is more than half of what it replaces")]
    TooLittleSaved,
}

/// The block that was asked for.
#[derive(Clone, Copy)]
pub(super) struct SummaryBlock<'a> {
    pub(super) key: &'a str,
    /// One without a key counts too: there is none in the conversation.
    pub(super) unkeyed: bool,
}

/// Reads the answer to a request for a summary in this block. The summary is `<summary>`, its sections, `</summary>`: never empty, at most 24,000 bytes and `most` raw
/// tokens, and without any other tag of ours.
///
/// # Errors
/// It is no summary.
pub(super) fn parse_summary(
    answer: &[u8],
    wanted: SummaryBlock<'_>,
    most: u32,
    weights: &Weights,
) -> Result<String, SummaryRejection> {
    let text = read_text(answer)?;
    let block = find_block(&text, wanted).ok_or(SummaryRejection::NoBlock)?;
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

/// The text of an answer that ended by itself.
fn read_text(json: &[u8]) -> Result<String, SummaryRejection> {
    let answer = answer::read_answer(json).map_err(|_| SummaryRejection::NotAnAnswer)?;
    if answer.has_error() || !answer.has_message() {
        return Err(SummaryRejection::NotAnAnswer);
    }
    let mut text = String::new();
    for event in &answer.events {
        match event {
            AnswerEvent::Call(_) => return Err(SummaryRejection::CallsTools),
            AnswerEvent::Text(part) => {
                text.extend(text::decode_text(&json[part.span.range()]));
            }
            _ => {}
        }
    }
    match answer.find_finish().map(|finish| finish.kind) {
        Some(FinishKind::Calls) => return Err(SummaryRejection::CallsTools),
        Some(FinishKind::CutOff) => return Err(SummaryRejection::CutOff),
        _ => {}
    }
    let text = without_thoughts(&text);
    if text.is_empty() {
        return Err(SummaryRejection::Empty);
    }
    Ok(text.to_owned())
}

/// Without what a model thinks aloud before it speaks.
fn without_thoughts(text: &str) -> &str {
    let mut text = text.trim();
    for (open, close) in [("<think>", "</think>"), ("<thinking>", "</thinking>")] {
        if let Some(thought) = text.strip_prefix(open) {
            let spoken = thought.split_once(close).map(|(_, spoken)| spoken);
            text = spoken.unwrap_or_default().trim();
        } else if let Some((thought, spoken)) = text.split_once(close)
            && !thought.contains(open)
            && spoken.contains(fence::SUMMARY)
        {
            // Some templates begin the thought themselves.
            text = spoken.trim();
        }
    }
    text
}

/// What stands between the last tag that opens the block of this key and the last one that
/// closes it; where none has a key, between the only one and that.
fn find_block<'a>(text: &'a str, wanted: SummaryBlock<'_>) -> Option<&'a str> {
    let open = format!("<{}", fence::SUMMARY);
    let close = format!("</{}>", fence::SUMMARY);
    // The attributes of each tag, and where its contents begin.
    let opened: Vec<_> = text
        .match_indices(&open)
        .filter_map(|(at, _)| {
            let tag = &text[at + open.len()..];
            let end = tag.find('>')?;
            Some((&tag[..end], at + open.len() + end + 1))
        })
        .collect();
    let keyed = opened.iter().rfind(|(attributes, _)| {
        attributes.starts_with(char::is_whitespace) && attributes.contains(wanted.key)
    });
    let start = match (keyed, &opened[..]) {
        (Some((_, start)), _) => *start,
        (None, [("", start)]) if wanted.unkeyed => *start,
        _ => return None,
    };
    let inside = &text[start..];
    inside.rfind(&close).map(|end| &inside[..end])
}

/// The contents of the sections, each there once and in order; empty where one holds nothing.
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

/// Where a text stands, if only once.
fn find_once(text: &str, wanted: &str) -> Option<usize> {
    let mut found = text.match_indices(wanted);
    let first = found.next()?.0;
    found.next().is_none().then_some(first)
}

/// A section's contents without anything that looks like a tag of ours, or that cannot be seen;
/// empty for what stands for nothing.
fn tidy_section(content: &str) -> String {
    let seen = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let content: String = content.chars().filter(seen).collect();
    let content = content.trim();
    let bare = content.trim_matches(|c: char| !c.is_alphanumeric());
    let nothing = ["", "none", "nothing", "n/a", "无", "没有", "暂无"];
    if nothing.contains(&bare.to_lowercase().as_str()) {
        return String::new();
    }
    fence::neutralize_tags(content).into_owned()
}

/// The beginning of a text, in at most so many bytes, to the end of a line where one is near.
/// Empty where there is no room for anything.
fn cut_end(text: &str, bytes: usize) -> String {
    let Some(room) = bytes.checked_sub(ELLIPSIS.len()) else {
        return String::new();
    };
    let mut ends = (0..=room.min(text.len())).rev();
    let end = ends.find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let line = text[..end].rfind('\n').filter(|at| at * 4 > end * 3);
    let head = text[..line.unwrap_or(end)].trim_end();
    match head.is_empty() {
        true => String::new(),
        false => format!("{head}{ELLIPSIS}"),
    }
}

fn write_summary(sections: &[String; SECTIONS.len()]) -> String {
    let tag = fence::SUMMARY;
    let mut text = format!("<{tag}>\n");
    for (section, content) in SECTIONS.iter().zip(sections) {
        let content = match content.is_empty() {
            true => NOTHING,
            false => content,
        };
        text.push_str(&format!("<{section}>{content}</{section}>\n"));
    }
    text.push_str(&format!("</{tag}>"));
    text
}

#[cfg(test)]
mod tests;
