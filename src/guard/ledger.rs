//! The ledger: facts that are picked mechanically from the messages left out.
//!
//! User messages come first, with a line each. Where room is short, the lines get shorter before any is dropped; then
//! the first and the newest stay. Of calls, errors and files the newest are shown, in their order. A fact is one
//! line, so that none can imitate another, and nothing in it looks like a fence.
//!
//! Every request after a fold makes its ledger again. So it reads little: newest first, in raw bytes, and it decodes
//! only what it shows. The same messages and the same room give the same bytes.

mod errors;
mod excerpt;
mod ledger_budget;
mod paths;
mod user_lines;

use self::{excerpt::excerpt_line, ledger_budget::LedgerBudget};
use super::estimate::Weights;
use crate::conversation::{Call, Conversation, texts::decode_chars};

/// Characters of a user message, of an error, and of a call's arguments.
const LINE_CHARS: usize = 200;
const NAME_CHARS: usize = 64;

/// The most lines of each section.
struct MaxLines {
    calls: usize,
    files: usize,
    errors: usize,
}

const MAX_LINES: MaxLines = MaxLines {
    calls: 30,
    files: 60,
    errors: 8,
};
/// A course begins with more room for its work.
const MAX_LINES_OF_COURSE: MaxLines = MaxLines {
    calls: 10,
    files: 20,
    errors: 6,
};
/// One part in so many of the room is reserved for each of errors, files and calls. Calls also get the rest.
const PART: f64 = 6.0;

/// The room for a ledger; raw tokens.
pub struct LedgerRoom {
    pub tokens: u32,
    pub weights: Weights,
}

/// Facts from the messages `removed`, between fences, as many as there is room for, with `head` before them; empty
/// without facts.
pub(super) fn pick_facts_within(
    conversation: &Conversation,
    removed: &[usize],
    head: &str,
    room: &LedgerRoom,
) -> String {
    let mut budget = LedgerBudget::from_tokens(room.tokens, room.weights);
    budget.spend(budget.text_cost(head));
    match pick_facts(conversation, removed, &MAX_LINES, budget) {
        facts if facts.is_empty() => facts,
        facts => format!("{head}{facts}"),
    }
}

/// Facts for the beginning of a course, between fences, within `max_chars` characters; empty without facts.
pub fn gather(conversation: &Conversation, removed: &[usize], max_chars: usize) -> String {
    let budget = LedgerBudget::from_chars(max_chars);
    pick_facts(conversation, removed, &MAX_LINES_OF_COURSE, budget)
}

fn pick_facts(
    conversation: &Conversation,
    removed: &[usize],
    max_lines: &MaxLines,
    mut budget: LedgerBudget,
) -> String {
    // The caller's indices may belong to another conversation.
    let end = removed.partition_point(|&at| at < conversation.items.len());
    let removed = &removed[..end];
    let part = budget.remaining_room() / PART;
    let newest = errors::newest_error_lines(conversation, removed, max_lines.errors);
    let errors = budget.write_section("errors", newest, part);
    let newest = paths::newest_paths(conversation, removed, max_lines.files);
    let files = budget.write_section("files named", newest, part);
    let messages = removed.iter().rev().map(|&at| &conversation.items[at]);
    let has_calls = messages.clone().any(|message| !message.calls.is_empty());
    let reserved = if has_calls { part } else { 0.0 };
    let user = user_lines::write_user_section(conversation, removed, &mut budget, reserved);
    let newest = messages
        .flat_map(|message| conversation.calls_of(message).iter().rev())
        .take(max_lines.calls)
        .map(|call| excerpt_call(conversation, call));
    let left = budget.remaining_room();
    let calls = budget.write_section("last tool calls", newest, left);
    [user, calls, errors, files].concat().trim_end().to_owned()
}

fn excerpt_call(conversation: &Conversation, call: &Call) -> String {
    let part = |text: Option<_>, max_chars| {
        let raw = text.map_or(&[][..], |text| conversation.raw_bytes(text));
        excerpt_line(decode_chars(raw), max_chars)
    };
    let name = part(call.name, NAME_CHARS);
    let arguments = part(call.arguments, LINE_CHARS);
    format!("{name} {arguments}").trim().to_owned()
}

#[cfg(test)]
mod tests;
