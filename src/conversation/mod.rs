//! The neutral model of a conversation: spans into a request body, whatever its wire format.
//!
//! A format (in the folder `format/`) reads a body into a [`Conversation`] and writes into it. The layers
//! above know items, blocks, calls, units and edits, and what all formats share: `model` and `stream` at the top.

pub mod annotation;
pub(crate) mod digest;
pub mod edit;
mod item;
pub mod texts;
pub mod units;

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::{
    annotation::{Annotation, Priority},
    digest::answer_digest,
    item::{Author, Block, BlockKind, Call, Content, Item},
};
use crate::json::{
    scan::{Kind, Span, Text},
    text,
};

/// The wire format of a request. Stored with the state of a session: the order of the variants never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// OpenAI's chat completions.
    #[default]
    Chat,
    /// A format of the tests, see `format/tests/toy.rs`.
    #[cfg(test)]
    Toy,
}

/// Where everything lies in one request body. Holds spans, never copies.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub format: Format,
    /// The body as the client sent it (decoded, if it came compressed).
    pub body: Bytes,
    /// The whole object, braces included.
    pub span: Span,
    /// Top-level members in their order.
    pub fields: Vec<Field>,
    /// The list of items, brackets included.
    pub list: Span,
    pub items: Vec<Item>,
    /// All calls of all items; an item names its range.
    pub calls: Vec<Call>,
    /// All content blocks of all items; an item names its range.
    pub blocks: Vec<Block>,
    /// Those of all items and blocks, in the order of the body.
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

    pub fn calls(&self, item: &Item) -> &[Call] {
        &self.calls[item.calls.start as usize..item.calls.end as usize]
    }

    /// The blocks of an item whose content is a list.
    pub fn blocks(&self, item: &Item) -> &[Block] {
        match &item.content {
            Content::Blocks(range, _) => &self.blocks[range.start as usize..range.end as usize],
            _ => &[],
        }
    }
}
