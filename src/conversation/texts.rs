//! The texts of an item and their sizes.

use super::{BlockKind, Content, Conversation, Item};
use crate::json::{
    scan::{JsonString, Span},
    text::{self, Character, TextSizes, TextWalk},
};

impl Conversation {
    /// The texts of an item: a string, or its text blocks.
    pub fn texts_of<'a>(&'a self, item: &'a Item) -> impl Iterator<Item = JsonString> + 'a {
        let string = match item.content {
            Content::Text(text) => Some(text),
            _ => None,
        };
        let blocks = self.blocks_of(item).iter();
        let blocks = blocks.filter_map(|block| match block.kind {
            BlockKind::Text(text) => Some(text),
            _ => None,
        });
        string.into_iter().chain(blocks)
    }

    /// The sizes of the texts of an item, without names and arguments of calls.
    pub fn text_sizes(&self, item: &Item) -> TextSizes {
        let mut sizes = TextSizes::default();
        for text in self.texts_of(item) {
            sizes += text::measure_text(self.raw_bytes(text));
        }
        sizes
    }

    /// The same sizes for a tool result. The sizes in the index are used unless they include opaque blocks.
    pub fn result_text_sizes(&self, item: &Item) -> TextSizes {
        let mut blocks = self.blocks_of(item).iter();
        if blocks.any(|block| block.kind == BlockKind::Opaque) {
            self.text_sizes(item)
        } else {
            item.sizes
        }
    }

    /// The sizes of the blocks of an item that are neither text nor media; these are never cut.
    pub fn opaque_sizes(&self, item: &Item) -> TextSizes {
        let mut sizes = TextSizes::default();
        for block in self.blocks_of(item) {
            if block.kind == BlockKind::Opaque {
                sizes += self.measure_around_media(block.span);
            }
        }
        sizes
    }

    /// The span of a block and of the comma before it. Only for a block after one that stays.
    pub fn block_with_comma(&self, block: Span) -> Option<Span> {
        let comma = memchr::memrchr(b',', &self.body[..block.start as usize])?;
        Some(Span::new(comma, block.end as usize))
    }
}

/// The characters of a text as spelled in JSON. Half a surrogate pair becomes U+FFFD.
pub fn decode_chars(raw: &[u8]) -> impl Iterator<Item = char> + '_ {
    TextWalk::new(raw).map(Character::to_char)
}
