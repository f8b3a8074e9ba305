//! The texts of a message, and what they weigh.

use crate::{
    conversation::{BlockKind, Content, Conversation, Item},
    json::{
        scan::{Span, Text},
        text::{self, Sizes, Walk},
    },
};

/// The texts of a message: a string, or its text parts.
pub(super) fn texts<'a>(
    conversation: &'a Conversation,
    message: &'a Item,
) -> impl Iterator<Item = Text> + 'a {
    let string = match message.content {
        Content::Text(text) => Some(text),
        _ => None,
    };
    let parts = conversation.blocks(message).iter();
    let parts = parts.filter_map(|part| match part.kind {
        BlockKind::Text(text) => Some(text),
        _ => None,
    });
    string.into_iter().chain(parts)
}

/// The characters of a text as it is spelled in JSON; what has no decoded form is shown as such.
pub(super) fn decode(raw: &[u8]) -> impl Iterator<Item = char> + '_ {
    Walk::new(raw).map(|c| char::from_u32(c.code).unwrap_or(char::REPLACEMENT_CHARACTER))
}

/// A part of a message with the comma before it, to be removed where a part that stays stands before it.
pub(super) fn part_with_comma(conversation: &Conversation, part: Span) -> Option<Span> {
    let before = &conversation.body[..part.start as usize];
    let comma = memchr::memrchr(b',', before)?;
    Some(Span::new(comma, part.end as usize))
}

/// The sizes of the texts of a message, names and arguments of calls apart.
pub(super) fn sizes(conversation: &Conversation, message: &Item) -> Sizes {
    let mut sizes = Sizes::default();
    for text in texts(conversation, message) {
        sizes += text::measure(conversation.raw(text));
    }
    sizes
}

/// The same of a result, where the index has measured nothing but texts.
pub(super) fn cuttable_sizes(conversation: &Conversation, message: &Item) -> Sizes {
    let parts = conversation.blocks(message);
    match parts.iter().any(|part| part.kind == BlockKind::Opaque) {
        true => sizes(conversation, message),
        false => message.sizes,
    }
}

/// The sizes of the parts of a message that are neither text nor media: never cut.
pub(super) fn other_sizes(conversation: &Conversation, message: &Item) -> Sizes {
    let mut sizes = Sizes::default();
    for part in conversation.blocks(message) {
        if part.kind == BlockKind::Opaque {
            sizes += conversation.measure(part.span);
        }
    }
    sizes
}
