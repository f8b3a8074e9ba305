//! Attachments of a user message: what the user hands over beside the words, such as a file. They may be shortened where
//! the words stay.
//!
//! An attachment is text between fences, text between the tags of a file, a document, or a text that takes much of the
//! room: of that, beginning and end stay. Images are none: they can be neither shortened nor recalled. A message of which
//! caps or priorities may edit a text (see [`super::super::priority`]) has none.

mod enclosed_text;

use std::ops::Range;

use super::parts;
use crate::{
    conversation::{BlockKind, Content, Priority, edit::Edits},
    guard::{budget, results, truncate::text_cut, view::RequestView},
    json::{
        scan::{JsonString, Span},
        text::{self, TextSizes},
    },
};

/// The part of the usual budget that the attachments of an old message take together.
const OLD_SHARE: u32 = 8;
/// The part of the usual budget above which a text without its attachments is one.
const PART_SHARE: u32 = 4;
/// Raw tokens that each attachment may keep.
const LEAST_KEPT: u32 = 64;

/// A user message whose attachments are shortened.
#[derive(Clone, Debug, Default)]
pub(in crate::guard) struct ShortenedMessage {
    pub(in crate::guard) edits: Edits,
    /// Raw tokens.
    pub(in crate::guard) tokens: u32,
    /// Sizes without those of media.
    pub(in crate::guard) sizes: TextSizes,
    /// Attachments that are shortened.
    pub(in crate::guard) count: usize,
}

/// The raw tokens that the attachments of an old message take together.
pub(super) fn most_of_old_message(view: RequestView<'_>) -> u32 {
    usual_room(view) / OLD_SHARE
}

fn usual_room(view: RequestView<'_>) -> u32 {
    budget::default_budget(&view.policy).tokens
}

/// Raw tokens of the texts that are attachments of a message.
pub(in crate::guard) fn weigh_attached_texts(view: RequestView<'_>, at: usize) -> u32 {
    let attached = list_attachments(view, at, false).into_iter();
    attached.fold(0, |sum, it| sum.saturating_add(it.tokens))
}

/// Message `at` with attachments of `most` raw tokens together: the largest get shorter, around a marker, and documents that
/// are no text give way to a notice where `with_files`. Each keeps a few tokens all the same. `None` where nothing gets shorter.
pub(in crate::guard) fn shorten_attachments(
    view: RequestView<'_>,
    at: usize,
    most: u32,
    with_files: bool,
) -> Option<ShortenedMessage> {
    let attachments = list_attachments(view, at, with_files);
    let tokens: Vec<u32> = attachments.iter().map(|it| it.tokens).collect();
    if tokens
        .iter()
        .fold(0, |sum: u32, it| sum.saturating_add(*it))
        <= most
    {
        return None;
    }
    let level = results::find_common_level(tokens, most).max(LEAST_KEPT);
    let (conversation, weights) = (view.conversation, view.token_weights());
    let mut shortened = ShortenedMessage {
        sizes: view.item(at).sizes,
        ..ShortenedMessage::default()
    };
    let (mut gone, mut notices) = (0u32, TextSizes::default());
    let large = attachments.into_iter().filter(|it| it.tokens > level);
    let mut texts: Vec<(Span, Edits)> = Vec::new();
    for attachment in large {
        match attachment.what {
            Attached::Text { measured, inner } => {
                let raw = conversation.span_bytes(inner);
                let id = view.recall_id(at);
                let Some(cut) = text_cut::cut_to_tokens(raw, level, &weights, id) else {
                    continue;
                };
                let start = inner.start as usize;
                let removed = Span::new(start + cut.removed.start, start + cut.removed.end);
                shortened.edits.replace(removed, cut.text.clone());
                if texts.last().is_none_or(|it| it.0 != measured) {
                    texts.push((measured, Edits::default()));
                }
                if let Some((_, edits)) = texts.last_mut() {
                    edits.replace(removed, cut.text);
                }
            }
            Attached::File(block) => {
                gone = gone.saturating_add(attachment.tokens);
                notices += text::measure_text(parts::MEDIA.as_bytes());
                let notice = conversation.format.text_block(parts::MEDIA);
                shortened.edits.replace(block, notice);
            }
        }
        shortened.count += 1;
    }
    for (measured, edits) in texts {
        shortened.sizes -= text::measure_text(conversation.span_bytes(measured));
        shortened.sizes += measure_edited(view, measured, &edits);
    }
    let notices = weights.count_text_tokens(&notices);
    let tokens = view.weigh_item(at, &shortened.sizes);
    shortened.tokens = tokens.saturating_sub(gone).saturating_add(notices);
    (shortened.count > 0).then_some(shortened)
}

/// Sizes of a part of the body with edits in it.
fn measure_edited(view: RequestView<'_>, measured: Span, edits: &Edits) -> TextSizes {
    let body = &view.conversation.body;
    let mut left = Vec::new();
    let mut from = measured.start;
    for edit in edits.ordered_edits(body).iter() {
        left.extend_from_slice(&body[from as usize..edit.span.start as usize]);
        left.extend_from_slice(&edit.with);
        from = edit.span.end;
    }
    left.extend_from_slice(&body[from as usize..measured.end as usize]);
    text::measure_text(&left)
}

struct Attachment {
    what: Attached,
    /// Raw tokens.
    tokens: u32,
}

#[derive(Clone, Copy)]
enum Attached {
    Text {
        /// What the sizes of the message count of it: its whole text, or the block around it.
        measured: Span,
        inner: Span,
    },
    /// A block that cannot be shortened, such as a document that is no text.
    File(Span),
}

/// Whether caps or priorities may edit a text of message `at`.
fn may_be_edited(view: RequestView<'_>, at: usize) -> bool {
    let caps = &view.policy.settings.caps;
    let has_cap = |name| caps.contains_key(&*view.conversation.decode_text(name));
    let mut annotations = view.conversation.annotations_of(at).iter();
    annotations.any(|it| {
        let priority = it.priority.or((!it.odd).then_some(Priority::Medium));
        priority.is_some_and(|it| it < Priority::Critical) || it.name.is_some_and(has_cap)
    })
}

fn list_attachments(view: RequestView<'_>, at: usize, with_files: bool) -> Vec<Attachment> {
    let (conversation, message) = (view.conversation, view.item(at));
    if may_be_edited(view, at) {
        return Vec::new();
    }
    let mut found = Vec::new();
    if let Content::Text(text) = message.content {
        add_attached_texts(view, text, &mut found);
        return found;
    }
    for block in conversation.blocks_of(message) {
        match block.kind {
            BlockKind::Text(text) => add_attached_texts(view, text, &mut found),
            BlockKind::Opaque => {
                if let Some(text) = conversation.find_document_text(block.span) {
                    add_text(view, block.span, text.span, &mut found);
                }
            }
            BlockKind::Media if with_files && !block.marked => {
                let what = Attached::File(block.span);
                let tokens = parts::media_tokens(view, block);
                found.push(Attachment { what, tokens });
            }
            BlockKind::Media
            | BlockKind::Image { .. }
            | BlockKind::Call
            | BlockKind::Reasoning(_) => {}
        }
    }
    found
}

fn weigh_span(view: RequestView<'_>, span: Span) -> u32 {
    let sizes = text::measure_text(view.conversation.span_bytes(span));
    view.token_weights().count_text_tokens(&sizes)
}

fn add_text(view: RequestView<'_>, measured: Span, inner: Span, found: &mut Vec<Attachment>) {
    found.push(Attachment {
        what: Attached::Text { measured, inner },
        tokens: weigh_span(view, inner),
    });
}

/// What is attached in a text; the whole text where the rest of it takes much of the room.
fn add_attached_texts(view: RequestView<'_>, text: JsonString, found: &mut Vec<Attachment>) {
    let enclosed = enclosed_text::find_enclosed_text(view.conversation.raw_bytes(text));
    let (start, first) = (text.span.start as usize, found.len());
    for Range { start: from, end } in enclosed.unwrap_or_default() {
        let inner = Span::new(start + from, start + end);
        add_text(view, text.span, inner, found);
    }
    let attached = found[first..].iter().map(|it| it.tokens).sum::<u32>();
    let whole = weigh_span(view, text.span);
    if whole.saturating_sub(attached) > usual_room(view) / PART_SHARE {
        found.truncate(first);
        add_text(view, text.span, text.span, found);
    }
}
