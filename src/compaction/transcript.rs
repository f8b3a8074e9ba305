//! A conversation as a record to be read: for a model that is not its own, or that cannot hold it.
//!
//! Each message begins with a line that carries the key of the request, which nobody knew who
//! wrote the conversation: no tool's output can put words into the user's mouth. Fences are
//! neutralised, media named and left out.
//!
//! It is read in at most twelve requests, each with the summary of the parts before. What is too long for that is
//! held shorter, never left out.

use super::{prompt::SummaryPrompt, shorten::keep_head_and_tail};
use crate::{
    conversation::{Author, BlockKind, Content, Conversation, Item},
    guard::{estimate::Weights, fence},
    json::scan::JsonString,
};

/// Requests that one summary may take.
const MAX_CHUNKS: usize = 12;
/// What a message or a call may weigh where the whole would be too much; raw tokens, tried in this
/// order.
const ENTRY_LIMITS: [u32; 5] = [u32::MAX, 2_000, 500, 120, 40];

/// Parts of the record that each fit into `room` raw tokens, oldest first. `None` where there are
/// too many however short the messages are cut.
pub(super) fn split_record(
    part: &Conversation,
    wanted: &SummaryPrompt,
    room: u32,
    weights: &Weights,
) -> Option<Vec<String>> {
    let entries = list_entries(part, &wanted.key);
    let limits = ENTRY_LIMITS.iter().map(|&limit| limit.min(room));
    let mut tried = limits.map(|limit| pack_entries(&entries, limit, room, weights));
    tried.find_map(|chunks| chunks)
}

/// With no entry that weighs more than `limit`.
fn pack_entries(
    entries: &[TranscriptEntry],
    limit: u32,
    room: u32,
    weights: &Weights,
) -> Option<Vec<String>> {
    let mut chunks: Vec<String> = Vec::new();
    let mut taken = 0;
    for TranscriptEntry { head, text } in entries {
        let mut entry = head.clone();
        // A line end after the head, and one before the next entry.
        let left = limit.saturating_sub(weights.count_plain_tokens(head) + 2);
        push_line(&mut entry, &keep_head_and_tail(text.clone(), left, weights));
        let tokens = weights.count_plain_tokens(&entry) + 1;
        let last = chunks.last_mut().filter(|_| taken + tokens <= room);
        if let Some(chunk) = last {
            taken += tokens;
            push_line(chunk, &entry);
        } else if chunks.len() == MAX_CHUNKS {
            return None;
        } else {
            taken = tokens;
            chunks.push(entry);
        }
    }
    (!chunks.is_empty()).then_some(chunks)
}

/// A line of ours, and the text of a message or a call.
struct TranscriptEntry {
    head: String,
    text: String,
}

/// The conversation, message by message and call by call, without system messages.
fn list_entries(part: &Conversation, key: &str) -> Vec<TranscriptEntry> {
    let shown =
        |text: Option<JsonString>| text.map(|text| part.decode_text(text)).unwrap_or_default();
    let mut entries = Vec::new();
    for message in part.items.iter().filter(|it| !it.author.is_system()) {
        let who = match message.author {
            Author::User => "user",
            Author::Model => "assistant",
            Author::Tool => "tool result",
            _ => "other",
        };
        entries.push(TranscriptEntry {
            head: format!("[{key} {who}]"),
            text: show_content(part, message),
        });
        entries.extend(part.calls_of(message).iter().map(|call| {
            let said = format!("{} {}", shown(call.name), shown(call.arguments));
            TranscriptEntry {
                head: format!("[{key} calls]"),
                text: fence::neutralize_tags(&said).into_owned(),
            }
        }));
    }
    entries
}

fn show_content(part: &Conversation, message: &Item) -> String {
    let mut text = String::new();
    if let Content::Text(said) = message.content {
        push_line(&mut text, &fence::neutralize_tags(&part.decode_text(said)));
    }
    for piece in part.blocks_of(message) {
        match piece.kind {
            BlockKind::Text(said) => {
                push_line(&mut text, &fence::neutralize_tags(&part.decode_text(said)))
            }
            BlockKind::Image { .. } => push_line(&mut text, "(an image, left out)"),
            BlockKind::Media => push_line(&mut text, "(a file or a recording, left out)"),
            BlockKind::Opaque => {}
        }
    }
    text
}

fn push_line(text: &mut String, line: &str) {
    if line.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

/// What goes before a further part of the record.
pub(super) fn show_earlier_summary(summary: &str, key: &str) -> String {
    format!(
        "[{key} summary of all before]\n{}\n",
        fence::neutralize_tags(summary)
    )
}

#[cfg(test)]
mod tests;
