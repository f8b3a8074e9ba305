//! Items of a conversation: who says what, in spans of the body.

use std::ops::Range;

use crate::json::{
    scan::{JsonString, Span},
    text::TextSizes,
};

/// Who says an item.
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
    /// Standing instructions, which comments elsewhere call system messages: always pinned, and left out of the
    /// lineage.
    pub const fn is_system(self) -> bool {
        matches!(self, Self::System)
    }

    /// The result of a call.
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
    /// Indices into [`Conversation::calls`](super::Conversation::calls). A call without an id is answered by a
    /// result without one.
    pub calls: Range<u32>,
    /// The id of the call that a result answers. Other items may have one too, which says nothing.
    pub call_id: Option<JsonString>,
    /// The author's name; of a result, the tool's.
    pub name: Option<JsonString>,
    /// Characters of all text the model reads in this item (content, names, arguments,
    /// reasoning), by kind of text.
    pub sizes: TextSizes,
    /// What was said, and nothing else: author, text (a string and one text block alike), media, call
    /// ids, names, arguments, id and name of a result. The same for any spelling of the same JSON.
    pub digest: u128,
    /// Text and call ids only, as the listener to the answer knew them: see [`answer_digest`](super::answer_digest).
    pub short_digest: u128,
}

/// What an item says beside its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No such member.
    Absent,
    /// `null`, and where it stands.
    Null(Span),
    Text(JsonString),
    /// Indices into [`Conversation::blocks`](super::Conversation::blocks), and the list's span, brackets included.
    Blocks(Range<u32>, Span),
    /// Something else; never edited.
    Other(Span),
}

impl Content {
    /// All of it, quotes or brackets included.
    pub fn span(&self) -> Option<Span> {
        match self {
            Self::Absent => None,
            Self::Text(text) => Some(text.quoted_span()),
            Self::Null(span) | Self::Blocks(_, span) | Self::Other(span) => Some(*span),
        }
    }
}

/// One call of an answer.
#[derive(Clone, Debug)]
pub struct Call {
    pub span: Span,
    pub id: Option<JsonString>,
    pub name: Option<JsonString>,
    pub arguments: Option<JsonString>,
    /// It stands in a list, to which other calls can be added.
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
