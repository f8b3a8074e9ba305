//! Facts that are picked mechanically from the messages that are left out.
//!
//! What the user said comes first: every message has a line, and where room is short the lines get
//! shorter before any is dropped; then the very first and the newest stay. Of calls, errors and
//! files the newest are shown, in their order. A fact is one line, so that none can look like
//! another, and nothing in it looks like a fence.
//!
//! It is made anew for every request after a fold, so it reads little: newest first, in raw bytes,
//! and only what is shown is decoded. The same messages and the same room give the same bytes.

mod errors;
mod excerpt;
mod ledger_budget;
mod paths;
mod user_lines;

use self::{excerpt::excerpt_line, ledger_budget::LedgerBudget};
use super::estimate::Weights;
use crate::conversation::texts::decode_chars;
use crate::conversation::{Call, Conversation};

/// Characters of what the user said, of an error, and of a call's arguments.
const LINE_CHARS: usize = 200;
const NAME_CHARS: usize = 64;
/// The most that are shown of calls, files and errors.
struct Most {
    calls: usize,
    files: usize,
    errors: usize,
}

const MOST: Most = Most {
    calls: 30,
    files: 60,
    errors: 8,
};
/// Beside a course, which is to begin with room.
const MOST_OF_COURSE: Most = Most {
    calls: 10,
    files: 20,
    errors: 6,
};
/// Errors, files and calls may each take this part of the room whatever the user said. What is left
/// of the rest is for calls.
const PART: f64 = 6.0;

/// What a ledger may take; raw tokens.
pub struct LedgerRoom {
    pub tokens: u32,
    pub weights: Weights,
}

/// Facts from the messages `removed`, between fences, as many as there is room for, with `head`
/// before them; empty where there are none.
pub(super) fn pick_facts_within(
    conversation: &Conversation,
    removed: &[usize],
    head: &str,
    room: &LedgerRoom,
) -> String {
    let mut purse = LedgerBudget::from_tokens(room.tokens, room.weights);
    purse.pay(purse.text_cost(head));
    let facts = pick(conversation, removed, &MOST, purse);
    if facts.is_empty() {
        return facts;
    }
    format!("{head}{facts}")
}

/// Facts for the beginning of a course, between fences, in `most` characters at most; empty where
/// there are none.
pub fn gather(conversation: &Conversation, removed: &[usize], most: usize) -> String {
    let purse = LedgerBudget::from_chars(most);
    pick(conversation, removed, &MOST_OF_COURSE, purse)
}

fn pick(
    conversation: &Conversation,
    removed: &[usize],
    most: &Most,
    mut purse: LedgerBudget,
) -> String {
    // Indices may come from outside.
    let end = removed.partition_point(|&at| at < conversation.items.len());
    let removed = &removed[..end];
    let part = purse.remaining_room() / PART;
    let newest = errors::newest_error_lines(conversation, removed, most.errors);
    let errors = purse.write_section("errors", newest, part);
    let newest = paths::newest_paths(conversation, removed, most.files);
    let files = purse.write_section("files named", newest, part);
    let messages = removed.iter().rev().map(|&at| &conversation.items[at]);
    let calls = messages.clone().any(|message| !message.calls.is_empty());
    let kept = if calls { part } else { 0.0 };
    let said = user_lines::write_user_section(conversation, removed, &mut purse, kept);
    let newest = messages
        .flat_map(|message| conversation.calls_of(message).iter().rev())
        .take(most.calls)
        .map(|call| show(conversation, call));
    let left = purse.remaining_room();
    let calls = purse.write_section("last tool calls", newest, left);
    [said, calls, errors, files].concat().trim_end().to_owned()
}

fn show(conversation: &Conversation, call: &Call) -> String {
    let part = |text, most| match text {
        Some(text) => excerpt_line(decode_chars(conversation.raw_bytes(text)), most),
        None => String::new(),
    };
    let name = part(call.name, NAME_CHARS);
    let arguments = part(call.arguments, LINE_CHARS);
    format!("{name} {arguments}").trim().to_owned()
}

#[cfg(test)]
mod tests;
