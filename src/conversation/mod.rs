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
    scan::{JsonKind, JsonString, Span},
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
pub enum IndexError {
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// JSON, but not a conversation we can follow: forwarded as it came.
    #[error("not a conversation that can be guarded: {0}")]
    Unguardable(String),
}

/// One top-level member of the body.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub key: JsonString,
    /// The value, quotes or brackets included.
    pub value: Span,
    pub kind: JsonKind,
}

impl Conversation {
    /// The bytes of a span.
    pub fn span_bytes(&self, span: Span) -> &[u8] {
        &self.body[span.range()]
    }

    /// The contents of a string, as spelled in the body.
    pub fn raw_bytes(&self, text: JsonString) -> &[u8] {
        self.span_bytes(text.span)
    }

    /// A string, decoded for a person to read.
    pub fn decode_text(&self, text: JsonString) -> Cow<'_, str> {
        let raw = self.raw_bytes(text);
        if text.has_escapes() {
            let shown = text::TextWalk::new(raw)
                .map(|character| char::from_u32(character.code).unwrap_or('\u{FFFD}'))
                .collect();
            Cow::Owned(shown)
        } else {
            String::from_utf8_lossy(raw)
        }
    }

    pub fn find_field(&self, name: &str) -> Option<&Field> {
        self.fields
            .iter()
            .find(|field| self.raw_bytes(field.key) == name.as_bytes())
    }

    /// The value of a top-level string.
    pub fn text_value(&self, name: &str) -> Option<Cow<'_, str>> {
        let field = self
            .find_field(name)
            .filter(|field| field.kind == JsonKind::String)?;
        serde_json::from_slice(self.span_bytes(field.value))
            .ok()
            .map(Cow::Owned)
    }

    /// The value of a top-level number that is a whole number of at least 0.
    pub fn number_value(&self, name: &str) -> Option<u64> {
        let field = self
            .find_field(name)
            .filter(|field| field.kind == JsonKind::Number)?;
        let number: f64 = serde_json::from_slice(self.span_bytes(field.value)).ok()?;
        (number >= 0.0).then_some(number as u64)
    }

    /// Whether a top-level member is there and neither null, false, nor empty.
    pub fn asks_for(&self, name: &str) -> bool {
        self.find_field(name).is_some_and(|field| {
            !matches!(field.kind, JsonKind::Null | JsonKind::False)
                && !matches!(self.span_bytes(field.value), b"[]" | b"{}" | b"\"\"")
        })
    }

    /// `model`, decoded.
    pub fn model(&self) -> Option<Cow<'_, str>> {
        self.text_value("model")
    }

    /// Whether the answer is asked for as a stream.
    pub fn asks_for_stream(&self) -> bool {
        self.find_field("stream")
            .is_some_and(|field| field.kind == JsonKind::True)
    }

    pub fn calls_of(&self, item: &Item) -> &[Call] {
        &self.calls[item.calls.start as usize..item.calls.end as usize]
    }

    /// The blocks of an item whose content is a list.
    pub fn blocks_of(&self, item: &Item) -> &[Block] {
        match &item.content {
            Content::Blocks(range, _) => &self.blocks[range.start as usize..range.end as usize],
            _ => &[],
        }
    }
}
