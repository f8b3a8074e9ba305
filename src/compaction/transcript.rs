//! Transcript of a conversation, for a summary model that did not answer it or cannot hold it.
//!
//! Each message begins with a line that carries the key of the request. The key is younger than the conversation, so no
//! tool result can fake a user message. Fence tags are neutralised; media are replaced by a note.
//!
//! The transcript takes at most [`MAX_CHUNKS`] requests, each with the summary of the parts before.
//! Long entries are shortened to fit, never left out.

use super::prompt::SummaryPrompt;
use crate::{
    conversation::{Author, BlockKind, Content, Conversation, Item},
    guard::{self, estimate::Weights, fence, truncate::shorten_to_tokens},
};

/// Most requests of one summary.
const MAX_CHUNKS: usize = 12;
/// Limits of one message or call in raw tokens, tried in this order until the transcript fits.
const ENTRY_LIMITS: [u32; 5] = [u32::MAX, 2_000, 500, 120, 40];

/// Parts of the transcript that each fit into `room` raw tokens, oldest first. `None` if the transcript is empty, or
/// too long even with the smallest entry limit.
pub(super) fn split_record(
    part: &Conversation,
    prompt: &SummaryPrompt,
    room: u32,
    weights: &Weights,
) -> Option<Vec<String>> {
    let entries = list_entries(part, &prompt.key);
    ENTRY_LIMITS
        .iter()
        .find_map(|&limit| pack_entries(&entries, limit.min(room), room, weights))
}

/// Shortens entries to `limit` raw tokens and packs them into parts of `room` raw tokens.
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
        // 2 for the line ends after the head and before the next entry.
        let left = limit.saturating_sub(weights.count_plain_tokens(head) + 2);
        push_line(&mut entry, &shorten_to_tokens(text, left, weights));
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

/// A message or a call: the line with the key, and its text.
struct TranscriptEntry {
    head: String,
    text: String,
}

/// Lists all messages and calls of the conversation, except system messages; of these, only the note of an earlier
/// compaction is listed.
fn list_entries(part: &Conversation, key: &str) -> Vec<TranscriptEntry> {
    let mut entries = Vec::new();
    let messages = part.items.iter();
    for message in messages {
        let text = show_content(part, message);
        if message.author.is_system() && !guard::is_compaction_note(&text) {
            continue;
        }
        let author = match message.author {
            Author::System => "note of what came before",
            Author::User if message.by_client => "note of the client",
            Author::User => "user",
            Author::Model => "assistant",
            Author::Tool => "tool result",
            _ => "other",
        };
        entries.push(TranscriptEntry {
            head: format!("[{key} {author}]"),
            text,
        });
        entries.extend(part.calls_of(message).iter().map(|call| {
            let (name, arguments) = part.decode_call(call);
            let text = format!("{name} {arguments}");
            TranscriptEntry {
                head: format!("[{key} calls]"),
                text: fence::neutralize_tags(&text).into_owned(),
            }
        }));
    }
    entries
}

fn show_content(part: &Conversation, message: &Item) -> String {
    let mut shown = String::new();
    let neutral = |text| fence::neutralize_tags(&part.decode_text(text)).into_owned();
    if let Content::Text(text) = message.content {
        push_line(&mut shown, &neutral(text));
    }
    for block in part.blocks_of(message) {
        match block.kind {
            BlockKind::Text(text) => push_line(&mut shown, &neutral(text)),
            BlockKind::Image { .. } => push_line(&mut shown, "(an image, left out)"),
            BlockKind::Media => push_line(&mut shown, "(a file or a recording, left out)"),
            BlockKind::Opaque if message.is_history_summary => {
                let block = String::from_utf8_lossy(part.span_bytes(block.span));
                let text = part.format.read_summary_text(&block).unwrap_or_default();
                push_line(&mut shown, &fence::neutralize_tags(&text));
            }
            BlockKind::Call | BlockKind::Reasoning(_) | BlockKind::Opaque => {}
        }
    }
    shown
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

/// The entry before a further part of the transcript.
pub(super) fn show_earlier_summary(summary: &str, key: &str) -> String {
    format!(
        "[{key} summary of all before]\n{}\n",
        fence::neutralize_tags(summary)
    )
}

#[cfg(test)]
mod tests;
