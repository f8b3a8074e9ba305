//! Results that clients write as texts in the user's place, for models without native tool calls.
//!
//! The beginnings of such results are taken from the clients' sources. In doubt, a text is the user's.

use super::{Element, ElementOwner, Name, TextPart, TextParts, is_blank, is_in, normalize_name};
use crate::{
    conversation::{Conversation, Item},
    json::text::TextWalk,
};

/// The beginning of a result of SWE-agent, and of the text by which Cline and its forks ask for a call if an answer has
/// none.
const HEADS: [&str; 2] = ["OBSERVATION:\n", "[ERROR] You did not use a tool"];
/// The texts before and after the name of a tool at the beginning of a result of OpenHands.
const NAMED: [&str; 2] = ["EXECUTION RESULT of [", "]:"];
/// The end of the line before a result of Cline.
const NAMED_END: &str = "] Result:";
/// The texts of which one may follow the name of a tool in that line.
const JOINTS: [&str; 3] = [" for ", " to ", " in "];
/// Elements in which results are given to models that have no format for results.
const RESULT_ELEMENTS: &str =
    "function_response function_result function_results tool_response tool_result tool_results";
/// Elements with the user's answer next to such results. Other elements are part of a result.
const SPOKEN_ELEMENTS: &str = "answer feedback user_feedback user_message";
/// Characters in which the beginning of a result is looked for: it names what was called with its arguments.
const MAX_HEAD: usize = 4 << 10;

/// Finds the beginning by which a text is recognised as a written result. Returns its length in bytes, as spelled in JSON;
/// `None` if the text begins otherwise.
pub(crate) fn find_result_head(raw: &[u8]) -> Option<usize> {
    let mut chars = TextWalk::new(raw).peekable();
    while chars.next_if(|it| it.to_char().is_whitespace()).is_some() {}
    // Most texts begin with other letters.
    let first = chars.peek()?.to_char();
    if !matches!(first, '[' | 'E' | 'O') {
        return None;
    }
    let (text, ends): (String, Vec<usize>) = chars
        .take(MAX_HEAD)
        .map(|it| (it.to_char(), it.at + it.len))
        .unzip();
    let begun = HEADS.iter().find(|head| text.starts_with(**head));
    let bytes = begun
        .map(|head| head.len())
        .or_else(|| find_openhands_result(&text))
        .or_else(|| find_cline_result(&text))?;
    let last = text[..bytes].chars().count().checked_sub(1)?;
    ends.get(last).copied()
}

/// Bytes of `EXECUTION RESULT of [execute_bash]:`.
fn find_openhands_result(text: &str) -> Option<usize> {
    let [before, after] = NAMED;
    let rest = text.strip_prefix(before)?;
    Some(before.len() + rest.find(after)? + after.len())
}

/// Bytes of `[list_files] Result:` or `[read_file for 'a.rs'] Result:`.
fn find_cline_result(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let is_of_name = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_';
    let rest = inner.trim_start_matches(is_of_name);
    let name = &inner[..inner.len() - rest.len()];
    let is_name = name.starts_with(|it: char| it.is_ascii_lowercase());
    let at = match rest.starts_with(']') {
        // A user may well write `[test] Result:`.
        true => (name.contains('_') && rest.starts_with(NAMED_END)).then_some(0),
        false if JOINTS.iter().any(|joint| rest.starts_with(joint)) => rest.find(NAMED_END),
        false => None,
    };
    let at = at.filter(|_| is_name)?;
    Some(text.len() - rest.len() + at + NAMED_END.len())
}

fn is_result_element(name: &Name) -> bool {
    is_in(&normalize_name(name), RESULT_ELEMENTS)
}

impl Conversation {
    /// Whether an item of the client's own holds a result that is written as a text.
    pub(crate) fn holds_written_result(&self, item: &Item) -> bool {
        item.by_client && (self.has_result_head(item) || self.begins_with_result_element(item))
    }

    /// Whether an item in the user's place after an answer without calls is nothing but results that the client writes as
    /// texts.
    pub(super) fn is_written_result(&self, item: &Item) -> bool {
        let texts = || self.texts_of(item).map(|text| self.raw_bytes(text));
        let parts = |raw| TextParts::new(raw, false);
        if self.has_result_head(item) {
            let is_spoken = |it: Element| is_in(&normalize_name(&it.name), SPOKEN_ELEMENTS);
            let mut elements = texts().flat_map(parts).filter_map(|part| part.element);
            return !elements.any(is_spoken);
        }
        let is_known =
            |it: &Element| is_result_element(&it.name) || it.owner == Some(ElementOwner::Client);
        let is_closed = |raw: &[u8], part: &TextPart| {
            is_blank(&raw[part.words.clone()]) && part.element.as_ref().is_none_or(is_known)
        };
        self.begins_with_result_element(item)
            && texts().all(|raw| parts(raw).all(|part| is_closed(raw, &part)))
    }

    fn has_result_head(&self, item: &Item) -> bool {
        let first = self.texts_of(item).next();
        first.is_some_and(|text| find_result_head(self.raw_bytes(text)).is_some())
    }

    fn begins_with_result_element(&self, item: &Item) -> bool {
        let tag = self.find_first_tag(item);
        tag.is_some_and(|tag| is_result_element(&tag.name))
    }
}
