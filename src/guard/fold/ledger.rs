//! The ledger: facts that are picked mechanically from the messages left out.
//!
//! User messages come first, with a line each. If room is short, the lines get shorter before any is dropped; then the first
//! line and the newest ones stay. Of calls, errors and files, only the newest are listed, in their order. A fact is one
//! line, so that no fact can imitate another, and no fact contains anything that looks like a fence.
//!
//! Every request after a fold makes its ledger again. So the code reads little: newest first, in raw bytes, and it decodes
//! only what the ledger shows. The same messages and the same room give the same bytes.

mod errors;
mod excerpt;
mod ledger_budget;
mod paths;
mod user_lines;

use self::{excerpt::excerpt_line, ledger_budget::LedgerBudget};
use crate::{
    conversation::{Arguments, Call, Conversation, texts::decode_chars},
    guard::request::estimate::Weights,
    json::scan::Span,
};

/// Most characters of the line for a user message, for an error, and for a call's arguments.
const LINE_CHARS: usize = 200;
const NAME_CHARS: usize = 64;

/// Most lines of each section in the ledger of a course.
const MAX_CALLS: usize = 10;
const MAX_FILES: usize = 20;
const MAX_ERRORS: usize = 6;
/// One part in so many of the room is reserved for each of errors, files and calls. Calls also get the rest.
const PART: f64 = 6.0;

/// Most characters of facts, fences included.
pub const MAX_FACTS_CHARS: usize = 6_000;
/// Fewer characters hold hardly one fact.
const LEAST_FACTS_CHARS: usize = 100;

const WORDS_TITLE: &str = "also mentioned";

/// Facts from the messages `removed`, between fences, with `head` before them, within `room` raw tokens; empty without
/// facts.
pub(in crate::guard) fn pick_facts(
    conversation: &Conversation,
    removed: &[usize],
    words: &[Span],
    head: &str,
    room: u32,
    weights: Weights,
) -> String {
    let mut budget = LedgerBudget::from_tokens(room, weights);
    budget.spend(budget.text_cost(head));
    let removed = within_conversation(conversation, removed);
    let most = budget.remaining_room();
    let words = words.iter();
    let words = words.map(|&word| String::from_utf8_lossy(conversation.span_bytes(word)));
    let words: Vec<_> = words.collect();
    let words = Some(words.join(" ")).filter(|words| !words.is_empty());
    let words = budget.write_section(WORDS_TITLE, words, most);
    let said = user_lines::write_user_section(conversation, removed, &mut budget, 0.0);
    match [said, words].concat().trim_end() {
        "" => String::new(),
        facts => format!("{head}{facts}"),
    }
}

/// The most raw tokens that the line about a user message takes.
pub(in crate::guard) fn weigh_user_line(
    conversation: &Conversation,
    at: usize,
    weights: &Weights,
) -> u32 {
    let line = user_lines::excerpt_message(conversation, at, LINE_CHARS);
    let budget = LedgerBudget::from_tokens(0, *weights);
    budget.line_cost(&line).ceil() as u32
}

/// Raw tokens of what frames a ledger: `head` before it, and its fences.
pub(in crate::guard) fn weigh_frame(head: &str, weights: &Weights) -> u32 {
    let budget = LedgerBudget::from_tokens(0, *weights);
    let fences = [user_lines::TITLE, WORDS_TITLE].map(|title| budget.fence_cost(title));
    let frame = budget.text_cost(head) + fences.iter().sum::<f64>() + budget.line_frame_cost();
    frame.ceil() as u32 + 1
}

/// Facts for the beginning of a course, between fences, within `max_chars` characters; empty without facts.
pub fn gather(conversation: &Conversation, removed: &[usize], max_chars: usize) -> String {
    let mut budget = LedgerBudget::from_chars(max_chars);
    let removed = within_conversation(conversation, removed);
    let part = budget.remaining_room() / PART;
    let newest = errors::newest_error_lines(conversation, removed, MAX_ERRORS);
    let errors = budget.write_section("errors", newest, part);
    let newest = paths::newest_paths(conversation, removed, MAX_FILES);
    let files = budget.write_section("files named", newest, part);
    let messages = removed.iter().rev().map(|&at| &conversation.items[at]);
    let has_calls = messages.clone().any(|message| !message.calls.is_empty());
    let reserved = if has_calls { part } else { 0.0 };
    let user = user_lines::write_user_section(conversation, removed, &mut budget, reserved);
    let newest = messages
        .flat_map(|message| conversation.calls_of(message).iter().rev())
        .take(MAX_CALLS)
        .map(|call| excerpt_call(conversation, call));
    let left = budget.remaining_room();
    let calls = budget.write_section("last tool calls", newest, left);
    [user, calls, errors, files].concat().trim_end().to_owned()
}

/// Gathers as [`gather`] does, and again with half of `max_chars`, a quarter and so on until the facts fit; empty if they
/// never fit.
pub fn gather_fitting(
    conversation: &Conversation,
    removed: &[usize],
    max_chars: usize,
    fits: impl Fn(&str) -> bool,
) -> String {
    let lengths = std::iter::successors(Some(max_chars), |most| Some(most / 2));
    lengths
        .take_while(|&most| most >= LEAST_FACTS_CHARS)
        .map(|most| gather(conversation, removed, most))
        .find(|facts| fits(facts))
        .unwrap_or_default()
}

/// Drops indices beyond the end: the caller's may be of a longer conversation.
fn within_conversation<'r>(conversation: &Conversation, removed: &'r [usize]) -> &'r [usize] {
    &removed[..removed.partition_point(|&at| at < conversation.items.len())]
}

fn excerpt_call(conversation: &Conversation, call: &Call) -> String {
    let part = |raw: Option<&[u8]>, max_chars| {
        excerpt_line(decode_chars(raw.unwrap_or_default()), max_chars)
    };
    let name = part(
        call.name.map(|name| conversation.raw_bytes(name)),
        NAME_CHARS,
    );
    let arguments = match call.arguments {
        Some(Arguments::Json(span)) => {
            let text = String::from_utf8_lossy(conversation.span_bytes(span));
            excerpt_line(text.chars(), LINE_CHARS)
        }
        Some(Arguments::Text(text)) => part(Some(conversation.raw_bytes(text)), LINE_CHARS),
        None => String::new(),
    };
    format!("{name} {arguments}").trim().to_owned()
}

#[cfg(test)]
mod tests;
