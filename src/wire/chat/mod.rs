//! Chat completions: a request body -> [`Conversation`].
//!
//! One pass finds every top-level field and every message, with what each message says, its sizes
//! by kind of text and its digest. What the index promises:
//!
//! - spans are exact, whatever the spelling: white space, key order, escapes, a byte order mark;
//! - a body that is JSON but no conversation we can follow (`messages` missing or not an array, a
//!   message that is not an object, a key twice, nesting beyond 1,024 levels, more than 262,144
//!   messages, calls, parts and annotations) is
//!   [`Unindexed::Unguardable`]: it goes on as it came;
//! - a body that is not JSON is [`Unindexed::NotJson`], with the place;
//! - an empty `messages` is a conversation without messages, numbers may be of any length, and
//!   half a surrogate pair in a text is indexed like any other text.

mod annotation;
mod cap;
mod glance;
mod index;
mod said;

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use thiserror::Error;

use super::edit::Edits;
use crate::json::{
    scan::{Kind, Span, Text},
    text::{self, Sizes},
};
pub use annotation::{Annotation, Priority};
pub use glance::{Glance, glance, models_named};
pub use index::index;
pub use said::answer_digest;

/// Where everything lies in one request body. Holds spans, never copies.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The body as the client sent it (decoded, if it came compressed).
    pub body: Bytes,
    /// The whole object, braces included.
    pub span: Span,
    /// Top-level members in their order.
    pub fields: Vec<Field>,
    /// The value of `messages`, brackets included.
    pub array: Span,
    pub messages: Vec<Message>,
    /// All calls of all messages; a message names its range.
    pub calls: Vec<Call>,
    /// All content parts of all messages; a message names its range.
    pub parts: Vec<Part>,
    /// Those of all messages and parts, in the order of the body.
    pub annotations: Vec<Annotation>,
}

/// Why a body has no index.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unindexed {
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// JSON, but not a conversation we can follow: forwarded as it came.
    #[error("not a conversation that can be guarded: {0}")]
    Unguardable(String),
}

/// One top-level member of the body.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub key: Text,
    /// The value, quotes or brackets included.
    pub value: Span,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
    /// Legacy answers to a `function_call`.
    Function,
    /// A role we do not know: never removed, never edited.
    Other,
}

impl Role {
    /// Standing instructions, which comments elsewhere call system messages: always pinned, and left out of the
    /// lineage.
    pub const fn instructs(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }

    /// The result of a call.
    pub const fn answers(self) -> bool {
        matches!(self, Self::Tool | Self::Function)
    }
}

#[derive(Clone, Debug)]
pub struct Message {
    /// The object, braces included.
    pub span: Span,
    pub role: Role,
    pub content: Content,
    /// Indices into [`Conversation::calls`]; a legacy `function_call` is one call without an id.
    pub calls: Range<u32>,
    /// `tool_call_id`.
    pub call_id: Option<Text>,
    /// `name`: the function's in a tool or function message.
    pub name: Option<Text>,
    /// Characters of all text the model reads in this message (content, names, arguments,
    /// reasoning), by kind of text.
    pub sizes: Sizes,
    /// What was said, and nothing else: role, text (a string and one text part alike), media, call
    /// ids, names, arguments, `tool_call_id`. The same for any spelling of the same JSON.
    pub digest: u128,
    /// Text and call ids only, as the listener to the answer knew them: see [`answer_digest`].
    pub short_digest: u128,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No `content` member.
    Absent,
    Null,
    Text(Text),
    /// Indices into [`Conversation::parts`], and the array's span, brackets included.
    Parts(Range<u32>, Span),
    /// Something else; never edited.
    Other(Span),
}

/// One call of an assistant message.
#[derive(Clone, Debug)]
pub struct Call {
    pub span: Span,
    pub id: Option<Text>,
    pub name: Option<Text>,
    pub arguments: Option<Text>,
}

/// One content part.
#[derive(Clone, Debug)]
pub struct Part {
    /// The object, braces included.
    pub span: Span,
    pub kind: PartKind,
    /// Carries a cache breakpoint (`cache_control`, `prompt_cache_breakpoint`): never removed.
    pub marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    Text(Text),
    /// The URL (a data URL or an address), and whether `detail` is `low`.
    Image {
        url: Option<Text>,
        low: bool,
    },
    /// `input_audio`, `video_url`, `file` and other media.
    Media,
    /// Anything else (`refusal`, `thinking`, …): never edited.
    Other,
}

impl Conversation {
    /// The bytes of a span.
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.body[span.range()]
    }

    /// The contents of a string, as spelled in the body.
    pub fn raw(&self, text: Text) -> &[u8] {
        self.bytes(text.span)
    }

    /// A string, decoded for a person to read.
    pub fn shown(&self, text: Text) -> Cow<'_, str> {
        let raw = self.raw(text);
        if text.escaped() {
            let shown = text::Walk::new(raw)
                .map(|character| char::from_u32(character.code).unwrap_or('\u{FFFD}'))
                .collect();
            Cow::Owned(shown)
        } else {
            String::from_utf8_lossy(raw)
        }
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields
            .iter()
            .find(|field| self.raw(field.key) == name.as_bytes())
    }

    /// The value of a top-level string.
    pub fn text_value(&self, name: &str) -> Option<Cow<'_, str>> {
        let field = self
            .field(name)
            .filter(|field| field.kind == Kind::String)?;
        serde_json::from_slice(self.bytes(field.value))
            .ok()
            .map(Cow::Owned)
    }

    /// The value of a top-level number that is a whole number of at least 0.
    pub fn number_value(&self, name: &str) -> Option<u64> {
        let field = self
            .field(name)
            .filter(|field| field.kind == Kind::Number)?;
        let number: f64 = serde_json::from_slice(self.bytes(field.value)).ok()?;
        (number >= 0.0).then_some(number as u64)
    }

    /// Whether a top-level member is there and neither null, false, nor empty.
    pub fn asks_for(&self, name: &str) -> bool {
        self.field(name).is_some_and(|field| {
            !matches!(field.kind, Kind::Null | Kind::False)
                && !matches!(self.bytes(field.value), b"[]" | b"{}" | b"\"\"")
        })
    }

    /// `model`, decoded.
    pub fn model(&self) -> Option<Cow<'_, str>> {
        self.text_value("model")
    }

    /// Whether the answer is asked for as a stream.
    pub fn streams(&self) -> bool {
        self.field("stream")
            .is_some_and(|field| field.kind == Kind::True)
    }

    /// What the client itself said of `stream_options.include_usage`.
    pub fn include_usage(&self) -> Option<bool> {
        index::include_usage(self)
    }

    /// Asks for the usage of a stream where the client left it open.
    ///
    /// An explicit `false` is respected. Returns whether something was asked.
    pub fn ask_usage(&self, edits: &mut Edits) -> bool {
        index::ask_usage(self, edits)
    }

    pub fn calls(&self, message: &Message) -> &[Call] {
        &self.calls[message.calls.start as usize..message.calls.end as usize]
    }

    /// The content parts of a message whose content is an array.
    pub fn parts(&self, message: &Message) -> &[Part] {
        match &message.content {
            Content::Parts(range, _) => &self.parts[range.start as usize..range.end as usize],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests;
