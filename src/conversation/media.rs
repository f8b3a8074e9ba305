//! Media inside values: strings that the model does not read as they are spelled.

use super::{Conversation, Item};
use crate::{
    conversation::Content,
    json::{scan::Span, text::TextSizes},
};

/// A string of a block or of another value that the model does not read as spelt.
#[derive(Clone, Debug)]
pub struct Medium {
    /// Between the quotes.
    pub span: Span,
    pub kind: MediumKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// A data URL, or base64 alone, of an image.
    Image,
    /// Base64 of a document with this many pages.
    Pages(u16),
    /// Base64 of a text, with its sizes.
    Text(Box<TextSizes>),
    /// Base64 of anything else, or an address.
    Data,
    /// Not a medium, but a text next to one, or sealed content (encrypted, or a signature). With the sizes of what the model
    /// reads.
    Beside(Box<TextSizes>),
}

impl Medium {
    pub const fn is_medium(&self) -> bool {
        !matches!(self.kind, MediumKind::Beside(_))
    }
}

impl Conversation {
    /// The media inside a value, in their order.
    pub fn media_in(&self, span: Span) -> &[Medium] {
        let media = &self.media;
        let first = media.partition_point(|it| it.span.start < span.start);
        let len = media[first..].partition_point(|it| it.span.end <= span.end);
        &media[first..first + len]
    }

    /// The media of an item whose content is neither a text nor a list of blocks.
    pub fn media_of_other(&self, item: &Item) -> &[Medium] {
        match item.content {
            Content::Other(span) => self.media_in(span),
            _ => &[],
        }
    }

    /// The sizes of a value without the media in it.
    pub fn measure_around_media(&self, span: Span) -> TextSizes {
        let (mut sizes, mut from) = (TextSizes::default(), span.start);
        for medium in self.media_in(span) {
            let end = medium.span.start;
            sizes += self.measure_span(Span { start: from, end });
            from = medium.span.end;
        }
        let rest = Span {
            start: from,
            end: span.end,
        };
        sizes += self.measure_span(rest);
        sizes
    }
}
