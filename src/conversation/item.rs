//! Items of a conversation, in spans of the body.

use std::ops::Range;

use crate::json::{
    scan::{JsonString, Span},
    text::TextSizes,
};

/// The author of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// Standing instructions: `system` and `developer` messages.
    System,
    User,
    Model,
    /// The result of a call.
    Tool,
    /// Not known to the format: never removed, never edited.
    Unknown,
}

impl Author {
    /// Whether this is a system message in the sense of all comments (`system` or `developer`):
    /// always pinned, and not in the lineage.
    pub const fn is_system(self) -> bool {
        matches!(self, Self::System)
    }

    pub const fn is_tool(self) -> bool {
        matches!(self, Self::Tool)
    }
}

/// One entry of a conversation's list.
#[derive(Clone, Debug)]
pub struct Item {
    /// The object, braces included.
    pub span: Span,
    pub author: Author,
    pub content: Content,
    /// Indices into [`Conversation::calls`](super::Conversation::calls). A result without an id
    /// answers a call without one.
    pub calls: Range<u32>,
    /// The id of the call that a result answers; without meaning on other items.
    pub call_id: Option<JsonString>,
    /// The author's name; of a result, the tool's.
    pub name: Option<JsonString>,
    /// Characters of all text the model reads in this item (content, names, arguments,
    /// reasoning), by kind of text.
    pub sizes: TextSizes,
    /// Covers author, text (a string and one text block alike), media, call ids, names, arguments,
    /// and a result's id and name. The same for any spelling of the same JSON.
    pub digest: u128,
    /// Text and call ids only: see [`answer_digest`](super::answer_digest).
    pub short_digest: u128,
}

impl Item {
    /// An item of an unknown author without content, for an indexer to fill.
    pub(crate) fn new_empty() -> Self {
        Self {
            span: Span::default(),
            author: Author::Unknown,
            content: Content::Absent,
            calls: 0..0,
            call_id: None,
            name: None,
            sizes: TextSizes::default(),
            digest: 0,
            short_digest: 0,
        }
    }
}

/// The content of an item, beside its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The item has no content member.
    Absent,
    Null(Span),
    Text(JsonString),
    /// Indices into [`Conversation::blocks`](super::Conversation::blocks), and the list's span,
    /// brackets included.
    Blocks(Range<u32>, Span),
    /// Any other value; never edited.
    Other(Span),
}

impl Content {
    /// The whole value, quotes or brackets included.
    pub fn span(&self) -> Option<Span> {
        match self {
            Self::Absent => None,
            Self::Text(text) => Some(text.quoted_span()),
            Self::Null(span) | Self::Blocks(_, span) | Self::Other(span) => Some(*span),
        }
    }
}

/// One call of an answer.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub span: Span,
    pub id: Option<JsonString>,
    pub name: Option<JsonString>,
    pub arguments: Option<JsonString>,
    /// It is an element of a list, to which other calls can be added.
    pub listed: bool,
}

/// One part of the content of an item.
#[derive(Clone, Debug)]
pub struct Block {
    /// The object, braces included.
    pub span: Span,
    pub kind: BlockKind,
    /// Carries a cache breakpoint: never removed.
    pub marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Text(JsonString),
    /// The URL (a data URL or an address), and whether `detail` is `low`.
    Image {
        url: Option<JsonString>,
        low: bool,
    },
    /// Sounds, videos, files and other media.
    Media,
    /// Anything else (a refusal, thinking, …): never edited.
    Opaque,
}
