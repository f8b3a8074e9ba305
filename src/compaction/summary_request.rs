//! Asking the conversation's own model: the request just sent, up to the boundary, with one
//! message more.
//!
//! The bytes of every message that stays are those that went out before, so that the provider's
//! prompt cache serves them; media too, since the model has just taken them. What would give the
//! answer another shape than that of a text is taken out of the request.
//!
//! Where the grammar takes no user message after what came last, the assistant speaks before it.

use bytes::Bytes;

use super::{prompt::SummaryPrompt, summary_work::Summariser};
use crate::{
    conversation::{Author, Conversation, edit::Edits},
    guard::{self, profile::Profile},
    json::{scan::Span, text},
};

/// The conversation as it went out, up to the boundary and no further. `None` where nothing is
/// left of it, or it is no conversation any more.
pub(super) fn cut_at_boundary(
    conversation: &Conversation,
    edits: &Edits,
    boundary: u32,
) -> Option<Conversation> {
    let mut said = 0;
    let first = conversation.items.iter().position(|message| {
        let here = !message.author.is_system() && said == boundary;
        said += u32::from(!message.author.is_system());
        here
    })?;
    let last = conversation.items.get(first.checked_sub(1)?)?;
    let mut edits = edits.clone();
    edits.remove(Span {
        start: last.span.end,
        end: conversation.list.end.checked_sub(1)?,
    });
    let part = conversation
        .format
        .index_body(edits.apply(&conversation.body).to_bytes())
        .ok()?;
    if part.annotations.is_empty() {
        return Some(part);
    }
    // They are taken out of every request at its very end.
    let mut edits = Edits::default();
    part.take_out_annotations(&mut edits);
    part.format
        .index_body(edits.apply(&part.body).to_bytes())
        .ok()
}

/// The request with the conversation that was cut; `None` where no message of ours may stand
/// after it.
pub(super) fn build_summary_request(
    part: &Conversation,
    wanted: &SummaryPrompt,
    asked: &Summariser,
) -> Option<Bytes> {
    let mut edits = Edits::default();
    edits.insert(
        part.list.end - 1,
        write_appended_messages(part, wanted, asked.profile)?,
    );
    part.ask_for_text(&asked.model, asked.answer_limit(), &mut edits);
    Some(edits.apply(&part.body).to_bytes())
}

/// The messages of the request, after the last one of the conversation.
///
/// Where no user may speak after what came last, the model does first: also after a user message
/// that would take a paragraph, so that what is data stays apart from what is asked.
fn write_appended_messages(
    part: &Conversation,
    wanted: &SummaryPrompt,
    profile: &Profile,
) -> Option<String> {
    let mut said = part.items.iter().rev();
    let last = said.find(|message| !message.author.is_system())?.author;
    let mut added = String::new();
    if last == Author::Unknown {
        return None;
    }
    let profile = guard::resolve_profile_for_request(part, profile);
    let mut add = |author, text: &str| {
        added.push(',');
        added.push_str(&part.format.text_item(author, &text::escape_text(text)));
    };
    if !guard::can_follow(last, Author::User, &profile) {
        add(Author::Model, &wanted.write_model_message());
    }
    add(Author::User, &wanted.write_final_message());
    Some(added)
}
