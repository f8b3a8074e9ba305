//! The texts of an item, and what they weigh.

use super::{BlockKind, Content, Conversation, Item};
use crate::json::{
    scan::{JsonString, Span},
    text::{self, TextSizes, TextWalk},
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

    /// The sizes of the texts of an item, names and arguments of calls apart.
    pub fn text_sizes(&self, item: &Item) -> TextSizes {
        let mut sizes = TextSizes::default();
        for text in self.texts_of(item) {
            sizes += text::measure_text(self.raw_bytes(text));
        }
        sizes
    }

    /// The same of a result, where the index has measured nothing but texts.
    pub fn result_text_sizes(&self, item: &Item) -> TextSizes {
        let mut blocks = self.blocks_of(item).iter();
        match blocks.any(|block| block.kind == BlockKind::Opaque) {
            true => self.text_sizes(item),
            false => item.sizes,
        }
    }

    /// The sizes of the blocks of an item that are neither text nor media: never cut.
    pub fn opaque_sizes(&self, item: &Item) -> TextSizes {
        let mut sizes = TextSizes::default();
        for block in self.blocks_of(item) {
            if block.kind == BlockKind::Opaque {
                sizes += self.measure_span(block.span);
            }
        }
        sizes
    }

    /// A block with the comma before it, to be removed where a block that stays stands before it.
    pub fn block_with_comma(&self, block: Span) -> Option<Span> {
        let before = &self.body[..block.start as usize];
        let comma = memchr::memrchr(b',', before)?;
        Some(Span::new(comma, block.end as usize))
    }
}

/// The characters of a text as it is spelled in JSON; what has no decoded form is shown as such.
pub fn decode_chars(raw: &[u8]) -> impl Iterator<Item = char> + '_ {
    TextWalk::new(raw).map(|c| char::from_u32(c.code).unwrap_or(char::REPLACEMENT_CHARACTER))
}
