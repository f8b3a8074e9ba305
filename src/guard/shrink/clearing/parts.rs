//! What a result, or a user message with media, becomes if it is cleared.
//!
//! Content stays a string or an array. In an array, the first text becomes the placeholder and the other texts are removed;
//! an image is replaced with a text part, never removed. Parts with a cache breakpoint keep their place and their marker: a
//! text in such a part is shortened, and a medium stays.

use super::{ClearedForm, write_placeholder};
use crate::{
    conversation::{Block, BlockKind, Content},
    guard::request::view::RequestView,
    json::text::{self, TextSizes},
};

/// What replaces an image, and what replaces other media.
const IMAGE: &str = "[An old image was left out here by the context guard to save room.]";
pub(super) const MEDIA: &str =
    "[An old attachment was left out here by the context guard to save room.]";
/// In the place of a text that cannot be removed.
const REST: &str = "...";

/// What message `at`, a tool result, becomes if it is cleared; `None` if it cannot be edited.
pub(super) fn clear_result(view: RequestView<'_>, at: usize) -> Option<ClearedForm> {
    let (conversation, message) = (view.conversation, view.item(at));
    let placeholder = write_placeholder(view.recall_id(at));
    let mut form = ClearedForm::default();
    // Sizes of the texts that stay.
    let mut sizes = TextSizes::default();
    let mut media = 0u32;
    match &message.content {
        _ if !message.calls.is_empty() => return None,
        Content::Text(text) => {
            // A text without a `\u` escape cannot have half a surrogate pair.
            if text.respelled && !text::is_decodable(conversation.raw_bytes(*text)) {
                return None;
            }
            sizes += text::measure_text(placeholder.as_bytes());
            form.edits.replace(text.span, placeholder.into_owned());
        }
        Content::Blocks(..) | Content::FixedBlocks(..) => {
            // The first text becomes the placeholder of the whole result.
            let mut placeholder = Some(placeholder);
            for part in conversation.blocks_of(message) {
                let with = match part.kind {
                    BlockKind::Text(text) => {
                        let raw = conversation.raw_bytes(text);
                        if !text::is_decodable(raw) {
                            return None;
                        }
                        let first = placeholder.take();
                        let whole = conversation.block_with_comma(part.span);
                        if let (None, false, Some(whole)) = (&first, part.marked, whole) {
                            form.edits.remove(whole);
                            continue;
                        }
                        // An empty text stays empty.
                        let rest = if raw.is_empty() { "" } else { REST };
                        let with = first.unwrap_or(rest.into());
                        form.edits.replace(text.span, with.clone().into_owned());
                        with
                    }
                    BlockKind::Call | BlockKind::Reasoning(_) | BlockKind::Opaque => {
                        sizes += conversation.measure_around_media(part.span);
                        media = media.saturating_add(view.weigh_media(part));
                        continue;
                    }
                    BlockKind::Image { .. } | BlockKind::Media if part.marked => {
                        media = media.saturating_add(view.weigh_media(part));
                        continue;
                    }
                    BlockKind::Image { .. } | BlockKind::Media => {
                        let with = media_notice(part)?;
                        form.edits
                            .replace(part.span, view.conversation.format.text_block(with));
                        with.into()
                    }
                };
                sizes += text::measure_text(with.as_bytes());
            }
        }
        _ => return None,
    }
    let weights = view.token_weights();
    let tokens = weights
        .count_text_tokens(&sizes)
        .saturating_add(weights.message_tokens());
    form.tokens = tokens.saturating_add(media);
    Some(form)
}

/// Replaces the media of message `at`, a user message, with notices; `None` if it has none that may be removed. `tokens`:
/// its raw tokens with its media, after the cuts of single messages; caps may have shortened its text.
pub(super) fn clear_media(view: RequestView<'_>, at: usize, tokens: u32) -> Option<ClearedForm> {
    let mut form = ClearedForm {
        keeps_text: true,
        ..ClearedForm::default()
    };
    let mut sizes = TextSizes::default();
    let mut gone = 0u32;
    for part in view.conversation.blocks_of(view.item(at)) {
        let Some(with) = media_notice(part).filter(|_| !part.marked) else {
            continue;
        };
        gone = gone.saturating_add(view.weigh_media(part));
        sizes += text::measure_text(with.as_bytes());
        form.edits
            .replace(part.span, view.conversation.format.text_block(with));
        form.media += 1;
    }
    let notices = view.token_weights().count_text_tokens(&sizes);
    form.tokens = tokens.saturating_sub(gone).saturating_add(notices);
    (form.media > 0).then_some(form)
}

/// The notice that replaces a medium.
const fn media_notice(part: &Block) -> Option<&'static str> {
    match part.kind {
        BlockKind::Image { .. } => Some(IMAGE),
        BlockKind::Media => Some(MEDIA),
        BlockKind::Text(_) | BlockKind::Call | BlockKind::Reasoning(_) | BlockKind::Opaque => None,
    }
}
