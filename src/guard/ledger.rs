//! Facts that are picked mechanically from the messages that are left out.
//!
//! Newest first where there is room for a few only, and shown in their order. A fact is one line,
//! so that none can look like another, and nothing in it looks like a fence.

mod excerpt;

use self::excerpt::{content, decoded, error_lines, head, paths};
use super::{estimate::Weights, fence, rounds};
use crate::wire::{
    chat::{Call, Conversation, Role},
    text,
};

/// Characters of what the user said, of an error, and of a call's arguments.
const LINE_CHARS: usize = 200;
const NAME_CHARS: usize = 64;
const SAID: usize = 8;
const CALLS: usize = 10;
const PATHS: usize = 20;
const ERRORS: usize = 6;
/// Characters of tool results that are searched for errors, all together.
const MAX_SEARCHED: usize = 500_000;

/// What a ledger may take; raw tokens.
pub struct Room {
    pub tokens: u32,
    pub weights: Weights,
}

impl Room {
    /// What is left beside a text and the line ends around it.
    pub(super) fn beside(&self, text: &str) -> Self {
        let taken = rounds::tokens(&text::escape(text), &self.weights);
        Self {
            tokens: self.tokens.saturating_sub(taken.saturating_add(4)),
            weights: self.weights,
        }
    }

    fn holds(&self, text: &str) -> bool {
        text::escape(text).len() as u64 <= u64::from(self.tokens)
            || rounds::tokens(&text::escape(text), &self.weights) <= self.tokens
    }
}

/// Less is hardly one fact; characters.
const LEAST_CHARS: usize = 100;
/// The longest ledger; characters.
const MOST_CHARS: usize = 12_000;

/// Facts from the messages `removed`, between fences, as many as there is room for.
pub(super) fn within(conversation: &Conversation, removed: &[usize], room: &Room) -> String {
    let most = (room.tokens as usize).saturating_mul(3).min(MOST_CHARS);
    std::iter::successors(Some(most), |most| Some(most / 2))
        .take_while(|&most| most >= LEAST_CHARS)
        .map(|most| gather(conversation, removed, most))
        .find(|facts| room.holds(facts))
        .unwrap_or_default()
}

/// All facts, between fences, in `most` characters at most; empty where there are none.
pub fn gather(conversation: &Conversation, removed: &[usize], most: usize) -> String {
    let (calls, named) = calls(conversation, removed);
    let mut written = Written {
        text: String::new(),
        left: most,
    };
    written.section("what the user said", &said(conversation, removed));
    written.section("last tool calls", &calls);
    written.section("errors", &errors(conversation, removed));
    written.section("files named", &named);
    written.text.trim_end().to_owned()
}

/// The newest user messages, but for the first of the conversation, which is never left out.
fn said(conversation: &Conversation, removed: &[usize]) -> Vec<String> {
    let messages = &conversation.messages;
    let first = messages.iter().position(|m| m.role == Role::User);
    let by_user = |&at: &usize| {
        let user = messages.get(at).is_some_and(|m| m.role == Role::User);
        user && Some(at) != first
    };
    let newest = removed.iter().copied().rev().filter(by_user);
    let heads = newest.map(|at| head(content(conversation, &messages[at]), LINE_CHARS));
    in_order(heads.filter(|line| !line.is_empty()).take(SAID))
}

/// The last calls, and the files named in them.
fn calls(conversation: &Conversation, removed: &[usize]) -> (Vec<String>, Vec<String>) {
    let messages = removed.iter().rev();
    let messages = messages.filter_map(|&at| conversation.messages.get(at));
    let newest = messages.flat_map(|message| conversation.calls(message).iter().rev());
    let (mut shown, mut named) = (Vec::new(), Vec::new());
    for call in newest.take(CALLS) {
        shown.push(show(conversation, call));
        let arguments = call.arguments.map(|text| conversation.raw(text));
        for path in paths(&arguments.and_then(text::decode).unwrap_or_default()) {
            if named.len() < PATHS && !named.contains(&path) {
                named.push(path);
            }
        }
    }
    (in_order(shown), in_order(named))
}

fn show(conversation: &Conversation, call: &Call) -> String {
    let part = |text, most| match text {
        Some(text) => head(decoded(conversation, text), most),
        None => String::new(),
    };
    let name = part(call.name, NAME_CHARS);
    let arguments = part(call.arguments, LINE_CHARS);
    format!("{name} {arguments}").trim().to_owned()
}

/// Lines of the newest results that tell of errors.
fn errors(conversation: &Conversation, removed: &[usize]) -> Vec<String> {
    let mut found = Vec::new();
    let mut searched = 0;
    for &at in removed.iter().rev() {
        let Some(message) = conversation.messages.get(at) else {
            continue;
        };
        if !message.role.answers() {
            continue;
        }
        searched += message.sizes.chars();
        if found.len() >= ERRORS || searched > MAX_SEARCHED {
            break;
        }
        let lines = error_lines(content(conversation, message), LINE_CHARS);
        for line in lines.into_iter().rev() {
            if found.len() < ERRORS && !found.contains(&line) {
                found.push(line);
            }
        }
    }
    in_order(found)
}

/// What was found newest first, oldest first.
fn in_order(newest: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<_> = newest.into_iter().collect();
    lines.reverse();
    lines
}

/// Sections as far as there is room for them.
struct Written {
    text: String,
    /// Characters.
    left: usize,
}

impl Written {
    /// Adds the newest of these lines that there is room for, between fences.
    fn section(&mut self, of: &str, lines: &[String]) {
        let tag = fence::FACTS;
        let (open, close) = (format!("<{tag} of=\"{of}\">\n"), format!("</{tag}>\n"));
        let mut taken = open.chars().count() + close.chars().count();
        let mut kept = 0;
        for line in lines.iter().rev() {
            // A dash, a blank and a line end.
            let more = line.chars().count() + 3;
            if taken + more > self.left {
                break;
            }
            taken += more;
            kept += 1;
        }
        if kept == 0 {
            return;
        }
        self.left -= taken;
        self.text.push_str(&open);
        for line in &lines[lines.len() - kept..] {
            self.text.push_str("- ");
            self.text.push_str(&fence::neutral(line));
            self.text.push('\n');
        }
        self.text.push_str(&close);
    }
}
