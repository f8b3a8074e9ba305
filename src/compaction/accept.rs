//! What is accepted as a summary.
//!
//! The answer comes from a model that has just read everything that tools gave out, so nothing in
//! it is trusted: it counts only inside the block with the key of this request, with every section
//! once and in order. Weak models forget the key. A block without one counts where the conversation
//! holds nothing that looks like such a block, so that it cannot be one that was planted there. What
//! does not look like that is refused, whatever it says instead.

use thiserror::Error;

use super::{
    SECTIONS,
    measure::{Measure, head},
};
use crate::{guard::fence, json::text::Walk, wire::chat::answer};

/// Bytes of the longest summary.
const MAX_BYTES: usize = 24_000;
/// Sections that must hold something.
const LEAST_FILLED: usize = 3;
/// What stands in a section that holds nothing.
const NOTHING: &str = "none";

/// Why an answer is no summary. Never holds any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Rejected {
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
pub(super) struct Block<'a> {
    pub(super) key: &'a str,
    /// One without a key counts too: there is none in the conversation.
    pub(super) unkeyed: bool,
}

/// Reads the answer to a request for a summary in this block. The summary is `<summary>`, its sections, `</summary>`: never empty, at most 24,000 bytes and `most` raw
/// tokens, and without any other tag of ours.
///
/// # Errors
/// It is no summary.
pub(super) fn accept(
    answer: &[u8],
    wanted: Block<'_>,
    most: u32,
    measure: &Measure,
) -> Result<String, Rejected> {
    let text = said(answer)?;
    let block = block(&text, wanted).ok_or(Rejected::NoBlock)?;
    let mut sections = sections(block).ok_or(Rejected::NoSections)?;
    let filled = sections.iter().filter(|text| !text.is_empty()).count();
    if filled < LEAST_FILLED {
        return Err(Rejected::Hollow);
    }
    while let Some(excess) = excess(&sections, most, measure) {
        let longest = sections.iter_mut().max_by_key(|text| text.len());
        let Some(longest) = longest.filter(|text| !text.is_empty()) else {
            return Err(Rejected::Hollow);
        };
        // At least an eighth of it goes, so that this ends soon.
        let least = longest.len() / 8 + 4;
        let left = longest.len().saturating_sub(excess.max(least));
        *longest = head(longest, left);
    }
    Ok(write(&sections))
}

/// The text of an answer that ended by itself.
fn said(json: &[u8]) -> Result<String, Rejected> {
    let read = answer::read(json).map_err(|_| Rejected::NotAnAnswer)?;
    let choice = read.first.filter(|_| !read.error);
    let choice = choice.ok_or(Rejected::NotAnAnswer)?;
    let said = choice.said.ok_or(Rejected::NotAnAnswer)?;
    let finish = choice.finish.map(|text| &json[text.span.range()]);
    match finish {
        _ if !said.calls.is_empty() => return Err(Rejected::CallsTools),
        Some(b"tool_calls" | b"function_call" | b"tool_use") => return Err(Rejected::CallsTools),
        Some(b"length" | b"max_tokens" | b"model_length" | b"content_filter" | b"error") => {
            return Err(Rejected::CutOff);
        }
        _ => {}
    }
    let characters = said
        .texts
        .iter()
        .flat_map(|text| Walk::new(&json[text.span.range()]));
    let text: String = characters
        .map(|it| char::from_u32(it.code).unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    let text = without_thoughts(&text);
    if text.is_empty() {
        return Err(Rejected::Empty);
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
fn block<'a>(text: &'a str, wanted: Block<'_>) -> Option<&'a str> {
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
fn sections(block: &str) -> Option<[String; SECTIONS.len()]> {
    let mut found: [String; SECTIONS.len()] = Default::default();
    let mut at = 0;
    for (tag, content) in SECTIONS.iter().zip(&mut found) {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let start = once(block, &open)?;
        let end = once(block, &close)?;
        if start < at || end < start + open.len() {
            return None;
        }
        at = end + close.len();
        *content = tidy(&block[start + open.len()..end]);
    }
    Some(found)
}

/// Where a text stands, if only once.
fn once(text: &str, wanted: &str) -> Option<usize> {
    let mut found = text.match_indices(wanted);
    let first = found.next()?.0;
    found.next().is_none().then_some(first)
}

/// A section's contents without anything that looks like a tag of ours, or that cannot be seen;
/// empty for what stands for nothing.
fn tidy(content: &str) -> String {
    let seen = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let content: String = content.chars().filter(seen).collect();
    let content = content.trim();
    let bare = content.trim_matches(|c: char| !c.is_alphanumeric());
    let nothing = ["", "none", "nothing", "n/a", "无", "没有", "暂无"];
    if nothing.contains(&bare.to_lowercase().as_str()) {
        return String::new();
    }
    fence::neutral(content).into_owned()
}

/// Bytes that have to go, if any.
fn excess(sections: &[String; SECTIONS.len()], most: u32, measure: &Measure) -> Option<usize> {
    let whole = write(sections);
    let tokens = measure.tokens(&whole);
    let over_bytes = whole.len().saturating_sub(MAX_BYTES);
    let over_tokens = tokens.saturating_sub(most);
    if over_bytes == 0 && over_tokens == 0 {
        return None;
    }
    let per_token = (whole.len() / tokens.max(1) as usize).max(1);
    Some(over_bytes.max(over_tokens as usize * per_token).max(1))
}

fn write(sections: &[String; SECTIONS.len()]) -> String {
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
