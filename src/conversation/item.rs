//! Items of a conversation, in spans of the body.

use std::ops::Range;

use crate::json::{
    scan::{JsonString, Span},
    text::TextSizes,
};

/// The author of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Author {
    /// Standing instructions: `system` and `developer` messages.
    System,
    User,
    Model,
    /// The result of a call.
    Tool,
    /// Not known to the format: never removed, never edited.
    #[default]
    Unknown,
}

impl Author {
    /// Whether this is a system message in the sense of all comments (`system` or `developer`): not
    /// in the lineage, and never removed.
    pub const fn is_system(self) -> bool {
        matches!(self, Self::System)
    }

    pub const fn is_tool(self) -> bool {
        matches!(self, Self::Tool)
    }
}

/// One message of a conversation: mostly one entry of its list.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// The object, braces included; for a part of an entry, the span of its blocks.
    pub span: Span,
    pub place: ItemPlace,
    pub author: Author,
    /// A text of the client's own in the user's place, after results: it holds no words of the user. It belongs to the unit
    /// before it. On the wire, it is a message of the user like any other.
    pub by_client: bool,
    /// A system item that is valid only after an item of the user or a result, and before an answer or at the end. It
    /// belongs to the unit before it, and stays if that unit is removed.
    pub is_bound: bool,
    /// The reasoning of the previous answer led to this answer: this answer cannot stay without that one.
    pub follows_reasoning: bool,
    /// It is never left out, nor is anything of its unit.
    pub is_pinned: bool,
    /// It holds the provider's own summary of all before it.
    pub is_history_summary: bool,
    /// The provider refuses two adjacent items of this kind.
    pub stands_apart: bool,
    pub content: Content,
    /// Indices into [`Conversation::calls`](super::Conversation::calls). A result without an id
    /// answers a call without one.
    pub calls: Range<u32>,
    /// The id of the call that a result answers; without meaning on other items.
    pub call_id: Option<JsonString>,
    /// A result of a program's call, which the program reads. It is never truncated, but a placeholder may replace it.
    pub read_by_program: bool,
    /// Indices into [`Conversation::links`](super::Conversation::links).
    pub links: Range<u32>,
    /// The author's name; for a result, the tool's name.
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
    /// Whether it is a system message that stays at its place, whatever is left out of the conversation.
    pub const fn is_pinned_system(&self) -> bool {
        self.author.is_system() && !self.is_bound
    }

    /// Its entry in the list; `None` for an item outside.
    pub const fn entry_span(&self) -> Option<Span> {
        match self.place {
            ItemPlace::Whole => Some(self.span),
            ItemPlace::Part(entry) => Some(entry.span),
            ItemPlace::Outside => None,
        }
    }
}

/// Where an item is in the list of its conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ItemPlace {
    /// It is an entry of the list, or several in a row.
    #[default]
    Whole,
    /// It is a run of blocks in an entry with other items.
    Part(SharedEntry),
    /// It is outside the list, and is the first item.
    Outside,
}

/// An entry of the list that holds several items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedEntry {
    /// The object, braces included.
    pub span: Span,
    /// The list of blocks, brackets included.
    pub blocks: Span,
}

/// The content of an item, without its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// The item has no content member.
    #[default]
    Absent,
    Null(Span),
    Text(JsonString),
    /// Indices into [`Conversation::blocks`](super::Conversation::blocks), and the list's span, brackets included. The
    /// blocks of an answer may be entries of the conversation's list; then the span is that of these entries.
    Blocks(Range<u32>, Span),
    /// The same for blocks in a value of another shape, to which none can be added.
    FixedBlocks(Range<u32>, Span),
    /// Any other value; never edited.
    Other(Span),
}

impl Content {
    /// The whole value, quotes or brackets included.
    pub fn span(&self) -> Option<Span> {
        match self {
            Self::Absent => None,
            Self::Text(text) => Some(text.quoted_span()),
            Self::Null(span)
            | Self::Blocks(_, span)
            | Self::FixedBlocks(_, span)
            | Self::Other(span) => Some(*span),
        }
    }
}

/// One call of an answer.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub span: Span,
    pub id: Option<JsonString>,
    pub name: Option<JsonString>,
    pub arguments: Option<Arguments>,
    /// It is an element of a list, to which other calls can be added.
    pub listed: bool,
    /// Its arguments are never edited.
    pub fixed: bool,
}

/// An id by which an item refers to another one, other than through its calls; for a loaded tool, the tool's name.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub id: JsonString,
    pub kind: LinkKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// What the server runs under this id.
    Use,
    /// The result of what the server ran under this id.
    Result,
    /// The program that made a call, or reads its result.
    Caller,
    /// A tool of the client that the model sees from here on, by the tool's name. Without this item, the tool cannot be
    /// called.
    Load,
}

impl Call {
    /// The arguments, if they may be shortened.
    pub(crate) fn editable_arguments(&self) -> Option<Arguments> {
        self.arguments.filter(|_| !self.fixed)
    }
}

/// The arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// A string that should hold JSON; of a custom tool, any text.
    Text(JsonString),
    /// JSON itself, mostly an object.
    Json(Span),
}

impl Arguments {
    /// The text of the arguments as the body spells it, without quotes around it.
    pub const fn span(self) -> Span {
        match self {
            Self::Text(text) => text.span,
            Self::Json(span) => span,
        }
    }
}

/// One part of the content of an item.
#[derive(Clone, Debug)]
pub struct Block {
    /// The object, braces included.
    pub span: Span,
    pub kind: BlockKind,
    /// Never removed: it carries a cache breakpoint, or its entry needs it.
    pub marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Text(JsonString),
    /// The URL (a data URL, an address, or base64 data alone), and whether `detail` is `low`.
    Image {
        url: Option<JsonString>,
        low: bool,
    },
    /// Sounds, videos, files and other media.
    Media,
    /// One of the item's calls, which is among its blocks.
    Call,
    /// Thinking of the model, with the text that can be read: never edited, and in no digest.
    Reasoning(Option<JsonString>),
    /// Anything else (a refusal, a search result, …): never edited, except the text of a document.
    Opaque,
}
