//! Attachments of a user message: what the user adds to the words, such as a file. They may get shorter; the words stay.
//!
//! An attachment is text between fences, text between the tags of a file, a document, or a text that takes much of the room;
//! its beginning and end stay. If the client writes a result as texts, each of these texts is an attachment. An image is
//! not: it can be neither shortened nor recalled. A message has no attachments if caps or priorities may edit one of its
//! texts (see [`crate::guard::shrink::priority`]).

mod enclosed_text;

use super::parts;
use crate::{
    conversation::{BlockKind, Content, Priority, client_text, edit::Edits},
    guard::{
        request::{estimate::sum_tokens, view::RequestView},
        shrink::shortened_messages,
        text::truncate::text_cut,
    },
    json::{
        scan::{JsonString, Span},
        text::{self, TextSizes},
    },
};

/// Raw tokens that the attachments of an old message take together; less in a small window. It does not depend on the
/// budget of a request, so that what is shortened once always looks the same.
const OLD_TOKENS: u32 = 1_000;
/// The attachments of an old message take at most one part in this many of the window.
const OLD_SHARE: u32 = 8;
/// A whole text is an attachment if what is not attached in it takes more than one part in this many of the window.
const TEXT_SHARE: u32 = 4;
/// Raw tokens that each attachment may keep.
const LEAST_KEPT: u32 = 64;

/// Which attachments of a message are shortened, and how far.
#[derive(Clone, Copy)]
pub(in crate::guard) struct AttachmentLimit {
    /// Raw tokens of all of them together.
    most: u32,
    /// Documents that are not text are replaced with a notice.
    files: bool,
    /// Texts that take much of the room are attachments.
    long_texts: bool,
}

impl AttachmentLimit {
    /// The limit for the task, once it is old.
    pub(super) fn of_task(view: RequestView<'_>) -> Self {
        Self {
            most: OLD_TOKENS.min(view.policy.window / OLD_SHARE),
            files: true,
            long_texts: true,
        }
    }

    /// The limit for any other old message. Its media are cleared separately.
    pub(super) fn of_old(view: RequestView<'_>) -> Self {
        Self {
            files: false,
            ..Self::of_task(view)
        }
    }

    /// The limit for the newest message: its attachments keep `most` raw tokens. A single long text is not an attachment
    /// here: it stays as it is, however long.
    pub(in crate::guard) const fn of_newest(most: u32) -> Self {
        Self {
            most,
            files: false,
            long_texts: false,
        }
    }
}

/// A user message whose attachments are shortened.
#[derive(Clone, Debug, Default)]
pub(in crate::guard) struct ShortenedAttachments {
    pub(in crate::guard) edits: Edits,
    /// Raw tokens.
    pub(in crate::guard) tokens: u32,
    /// Sizes without those of media.
    pub(in crate::guard) sizes: TextSizes,
    /// Attachments that are shortened.
    pub(in crate::guard) count: usize,
}

/// Raw tokens of the attachments of the newest message, which is message `at`, and those that they keep at least.
pub(in crate::guard) fn weigh_newest(view: RequestView<'_>, at: usize) -> (u32, u32) {
    let attachments = list_attachments(view, at, AttachmentLimit::of_newest(0));
    let least = attachments.iter().map(|it| it.tokens.min(LEAST_KEPT));
    (sum_attached(&attachments), sum_tokens(least))
}

fn sum_attached(attachments: &[Attachment]) -> u32 {
    sum_tokens(attachments.iter().map(|it| it.tokens))
}

/// Shortens the attachments of message `at` around markers, the largest first. Each keeps [`LEAST_KEPT`] tokens. `None` if
/// nothing gets shorter.
pub(in crate::guard) fn shorten_attachments(
    view: RequestView<'_>,
    at: usize,
    limit: AttachmentLimit,
) -> Option<ShortenedAttachments> {
    let attachments = list_attachments(view, at, limit);
    if sum_attached(&attachments) <= limit.most {
        return None;
    }
    let tokens = attachments.iter().map(|it| it.tokens).collect();
    let level = shortened_messages::find_common_level(tokens, limit.most).max(LEAST_KEPT);
    let (conversation, weights) = (view.conversation, view.token_weights());
    let mut shortened = ShortenedAttachments {
        sizes: view.item(at).sizes,
        ..ShortenedAttachments::default()
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
                if texts.last().is_none_or(|it| it.0 != measured) {
                    texts.push((measured, Edits::default()));
                }
                if let Some((_, edits)) = texts.last_mut() {
                    edits.replace(inner.part(cut.removed), cut.text);
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
        let left = edits.apply_to_part(&conversation.body, measured);
        shortened.sizes += text::measure_text(&left);
        shortened.edits.merge(edits);
    }
    let notices = weights.count_text_tokens(&notices);
    let tokens = view.weigh_item(at, &shortened.sizes);
    shortened.tokens = tokens.saturating_sub(gone).saturating_add(notices);
    (shortened.count > 0).then_some(shortened)
}

struct Attachment {
    what: Attached,
    /// Raw tokens.
    tokens: u32,
}

#[derive(Clone, Copy)]
enum Attached {
    Text {
        /// The span by which the sizes of the message count the text: its whole text, or the block around it.
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
        let priority = it.effective_priority();
        priority.is_some_and(|it| it < Priority::Critical) || it.name.is_some_and(has_cap)
    })
}

fn list_attachments(view: RequestView<'_>, at: usize, limit: AttachmentLimit) -> Vec<Attachment> {
    let (conversation, message) = (view.conversation, view.item(at));
    if may_be_edited(view, at) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let is_result = conversation.holds_written_result(message);
    let add_texts = |text, found: &mut Vec<Attachment>| {
        if is_result {
            add_written_result(view, text, found)
        } else {
            add_attached_texts(view, text, limit, found)
        }
    };
    if let Content::Text(text) = message.content {
        add_texts(text, &mut found);
        return found;
    }
    for block in conversation.blocks_of(message) {
        match block.kind {
            BlockKind::Text(text) => add_texts(text, &mut found),
            BlockKind::Opaque => {
                if let Some(text) = conversation.find_document_text(block.span) {
                    add_text(view, block.span, text.span, &mut found);
                }
            }
            BlockKind::Media
                if limit.files && !block.marked && conversation.is_document(block.span) =>
            {
                let what = Attached::File(block.span);
                let tokens = view.weigh_media(block);
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
    let bytes = view.conversation.span_bytes(span);
    view.token_weights().count_json_tokens(bytes)
}

fn add_text(view: RequestView<'_>, measured: Span, inner: Span, found: &mut Vec<Attachment>) {
    found.push(Attachment {
        what: Attached::Text { measured, inner },
        tokens: weigh_span(view, inner),
    });
}

/// Adds a text of a result that is written as texts, without the head that marks the text as a result.
fn add_written_result(view: RequestView<'_>, text: JsonString, found: &mut Vec<Attachment>) {
    let raw = view.conversation.raw_bytes(text);
    let head = client_text::find_result_head(raw).unwrap_or(0);
    if head < raw.len() {
        add_text(view, text.span, text.span.part(head..raw.len()), found);
    }
}

/// Adds the attachments in a text; instead of them the whole text, if the rest of it takes much of the room.
fn add_attached_texts(
    view: RequestView<'_>,
    text: JsonString,
    limit: AttachmentLimit,
    found: &mut Vec<Attachment>,
) {
    let enclosed = enclosed_text::find_enclosed_text(view.conversation.raw_bytes(text));
    let first = found.len();
    for inner in enclosed.unwrap_or_default() {
        add_text(view, text.span, text.span.part(inner), found);
    }
    let rest = weigh_span(view, text.span).saturating_sub(sum_attached(&found[first..]));
    if limit.long_texts && rest > view.policy.window / TEXT_SHARE {
        found.truncate(first);
        add_text(view, text.span, text.span, found);
    }
}
