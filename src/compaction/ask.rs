//! Asking the conversation's own model: the request just sent, up to the boundary, with one
//! message more.
//!
//! The bytes of every message that stays are those that went out before, so that the provider's
//! prompt cache serves them; media too, since the model has just taken them. What would give the
//! answer another shape than that of a text is taken out of the request.

use bytes::Bytes;

use super::{prompt::Wanted, work::Summariser};
use crate::{
    conversation::{Author, Conversation, edit::Edits},
    guard::{self, profile::Profile},
    json::{scan::Span, text},
};

/// The conversation as it went out, up to the boundary and no further. `None` where nothing is
/// left of it, or it is no conversation any more.
pub(super) fn cut(
    conversation: &Conversation,
    edits: &Edits,
    boundary: u32,
) -> Option<Conversation> {
    let mut said = 0;
    let first = conversation.items.iter().position(|message| {
        let here = !message.author.instructs() && said == boundary;
        said += u32::from(!message.author.instructs());
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
        .index(edits.apply(&conversation.body).to_bytes())
        .ok()?;
    if part.annotations.is_empty() {
        return Some(part);
    }
    // They are taken out of every request at its very end.
    let mut edits = Edits::default();
    part.take_out_annotations(&mut edits);
    part.format.index(edits.apply(&part.body).to_bytes()).ok()
}

/// The request with the conversation that was cut; `None` where no message of ours may stand
/// after it.
pub(super) fn request(part: &Conversation, wanted: &Wanted, asked: &Summariser) -> Option<Bytes> {
    let mut edits = Edits::default();
    edits.insert(part.list.end - 1, appended(part, wanted, asked.profile)?);
    part.ask_for_text(&asked.model, asked.limit(), &mut edits);
    Some(edits.apply(&part.body).to_bytes())
}

/// The messages of the request, after the last one of the conversation.
///
/// Where no user may speak after what came last, the model does first: also after a user message
/// that would take a paragraph, so that what is data stays apart from what is asked.
fn appended(part: &Conversation, wanted: &Wanted, profile: &Profile) -> Option<String> {
    let mut said = part.items.iter().rev();
    let last = said.find(|message| !message.author.instructs())?.author;
    let mut added = String::new();
    if last == Author::Unknown {
        return None;
    }
    let profile = guard::held_for_request(part, profile);
    let mut add = |author, text: &str| {
        added.push(',');
        added.push_str(&part.format.text_item(author, &text::escape(text)));
    };
    if !guard::follows(last, Author::User, &profile) {
        add(Author::Model, &wanted.between());
    }
    add(Author::User, &wanted.after());
    Some(added)
}
