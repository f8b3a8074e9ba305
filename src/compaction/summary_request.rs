//! The request to the conversation's model: the request that was just sent, up to the boundary, and a final user
//! message.
//!
//! The bytes of the kept messages are those that were just sent, so that the provider's prompt cache serves them. Media
//! stay too, since the model accepted them. Fields that ask for anything but a text answer are removed. If the grammar
//! allows no user message at the end, an assistant message precedes the user message.

use bytes::Bytes;

use super::{Summariser, prompt::SummaryPrompt};
use crate::{
    conversation::{Author, Conversation, edit::Edits},
    guard::{self, profile::Profile},
    json::text,
};

/// The conversation as it was sent, up to the boundary. `None` if nothing of it is left, or if what is left cannot be
/// indexed.
pub(super) fn cut_at_boundary(
    conversation: &Conversation,
    edits: &Edits,
    boundary: u32,
) -> Option<Conversation> {
    let messages = conversation.items.iter().enumerate();
    let mut counted = messages.filter(|(_, message)| !message.author.is_system());
    let (first_removed, _) = counted.nth(boundary as usize)?;
    let mut edits = edits.clone();
    if !conversation.truncate_list(first_removed, &mut edits) {
        return None;
    }
    let format = conversation.format;
    let index = |edits: Edits, body: &Bytes| format.index_body(edits.apply(body).to_bytes()).ok();
    let part = index(edits, &conversation.body)?;
    // A sent request has no annotations, but the edits do not remove them.
    let mut edits = Edits::default();
    part.take_out_annotations(&mut edits);
    // A bound system entry is not valid before the user message that is appended.
    let bound = part.items.iter().rev().take_while(|item| item.is_bound);
    let first_bound = part.items.len() - bound.count();
    if first_bound < part.items.len() && !part.truncate_list(first_bound, &mut edits) {
        return None;
    }
    if edits.is_empty() {
        return Some(part);
    }
    index(edits, &part.body)
}

/// The request with the cut conversation; `None` if nothing may be appended to it.
pub(super) fn build_summary_request(
    part: &Conversation,
    prompt: &SummaryPrompt,
    summariser: &Summariser,
) -> Option<Bytes> {
    let appended = write_appended_messages(part, prompt, summariser.profile)?;
    let mut edits = Edits::default();
    edits.insert(part.list.end - 1, appended);
    part.ask_for_text(&summariser.model, summariser.answer_limit(), &mut edits);
    let body = edits.apply(&part.body);
    let filled = part.add_required_members(&body, summariser.profile, summariser.filling);
    Some(filled.unwrap_or(body).to_bytes())
}

/// The messages that are appended to the conversation.
///
/// The assistant message also separates the final user message from a user message that holds data.
fn write_appended_messages(
    part: &Conversation,
    prompt: &SummaryPrompt,
    profile: &Profile,
) -> Option<String> {
    let mut authors = part.items.iter().rev().map(|message| message.author);
    let last = authors.find(|author| !author.is_system())?;
    if last == Author::Unknown {
        return None;
    }
    let mut added = String::new();
    let profile = guard::resolve_profile_for_request(part, profile);
    let mut add = |author, text: &str| {
        added.push(',');
        added.push_str(&part.format.text_item(author, &text::escape_text(text)));
    };
    if !guard::can_follow(last, Author::User, &profile) {
        add(Author::Model, &prompt.write_model_message());
    }
    add(Author::User, &prompt.write_final_message());
    Some(added)
}
