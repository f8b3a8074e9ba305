//! The neutral model of a conversation: spans into a request body, whatever its wire format.
//!
//! A format (in the folder `format/`) reads a body into a [`Conversation`] and writes into it. The
//! layers above know items, blocks, calls, units, edits, and the members that all formats share:
//! `model` and `stream`.

pub mod annotation;
pub(crate) mod client_text;
pub(crate) mod digest;
pub mod edit;
mod hidden_places;
mod item;
mod list_edits;
mod media;
mod place_map;
pub mod texts;
mod tool_list;
pub mod units;

use std::borrow::Cow;

use bytes::Bytes;
use thiserror::Error;

pub use self::{
    annotation::{Annotation, Priority},
    digest::{CallDigester, answer_digest},
    hidden_places::HiddenPlaces,
    item::{
        Arguments, Author, Block, BlockKind, Call, Content, Item, ItemPlace, Link, LinkKind,
        SharedEntry,
    },
    list_edits::NewItems,
    media::{Medium, MediumKind},
    place_map::PlaceMap,
    tool_list::{ToolBrevity, ToolList},
};
pub use crate::config::{Api, FORMATS, Format};
use crate::json::{
    scan::{JsonKind, JsonString, Span},
    text,
};

/// Planning takes as long for one part (an item, call or block) as for this many bytes of usual messages.
const BYTES_OF_A_PART: usize = 256;

/// The index of one request body. Holds spans, never copies.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub format: Format,
    /// The body as the client sent it, decompressed.
    pub body: Bytes,
    /// The whole object, braces included.
    pub span: Span,
    /// Top-level members in their order.
    pub fields: Vec<Field>,
    /// The list of items, brackets included.
    pub list: Span,
    pub items: Vec<Item>,
    /// The calls of all items; an item names its range.
    pub calls: Vec<Call>,
    /// The content blocks of all items; an item names its range.
    pub blocks: Vec<Block>,
    /// The links of all items; an item names its range.
    pub links: Vec<Link>,
    /// The annotations of all items and blocks, in the order of the items.
    pub annotations: Vec<Annotation>,
    /// The strings in blocks and other values that the model does not read as spelled, in the order of the body.
    pub(crate) media: Vec<Medium>,
    /// The model does not read reasoning before this byte, and the sizes of items do not include such reasoning.
    pub(crate) unread_reasoning: u32,
    /// Messages before the first item; 0 in a client's request. If the proxy puts a summary of the provider's own there,
    /// these are the messages that the summary replaces, less one, since the summary itself counts as a message. Places
    /// count them.
    pub(crate) summarised: u32,
}

/// Why a body has no index.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IndexError {
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// JSON, but not a conversation that the proxy understands: forwarded as it came.
    #[error("not a conversation that can be guarded: {0}")]
    Unguardable(String),
}

/// One member of an object, mostly a top-level one of a body.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub key: JsonString,
    /// The value, quotes or brackets included.
    pub value: Span,
    pub kind: JsonKind,
}

impl Field {
    /// The span of key and value.
    pub(crate) fn full_span(&self) -> Span {
        Span {
            start: self.key.quoted_span().start,
            end: self.value.end,
        }
    }
}

impl Conversation {
    /// A conversation without members and items, for an indexer to fill.
    pub(crate) fn new_empty(format: Format, body: Bytes) -> Self {
        Self {
            format,
            body,
            span: Span::default(),
            fields: Vec::new(),
            list: Span::default(),
            items: Vec::new(),
            calls: Vec::new(),
            blocks: Vec::new(),
            links: Vec::new(),
            annotations: Vec::new(),
            media: Vec::new(),
            unread_reasoning: 0,
            summarised: 0,
        }
    }

    pub fn span_bytes(&self, span: Span) -> &[u8] {
        &self.body[span.range()]
    }

    /// The work of planning with this conversation, in bytes of a body with usual messages: many small messages take as long
    /// as a few large ones.
    pub fn work_bytes(&self) -> usize {
        let parts = self.items.len() + self.calls.len() + self.blocks.len();
        self.body.len() + parts * BYTES_OF_A_PART
    }

    /// The contents of a string, as spelled in the body.
    pub fn raw_bytes(&self, text: JsonString) -> &[u8] {
        self.span_bytes(text.span)
    }

    /// The digest of a string; the same for all its spellings.
    pub(crate) fn digest_text(&self, text: JsonString) -> u128 {
        text::digest_text(self.raw_bytes(text))
    }

    /// A string, decoded for people to read: half a surrogate pair becomes U+FFFD.
    pub fn decode_text(&self, text: JsonString) -> Cow<'_, str> {
        let raw = self.raw_bytes(text);
        if text.has_escapes {
            Cow::Owned(texts::decode_chars(raw).collect())
        } else {
            String::from_utf8_lossy(raw)
        }
    }

    /// The first `chars` characters of a string, decoded as by [`Self::decode_text`].
    pub fn decode_start(&self, text: JsonString, chars: usize) -> String {
        texts::decode_chars(self.raw_bytes(text))
            .take(chars)
            .collect()
    }

    /// The name of a call, and its arguments as a text of JSON, for people and models to read. A name or arguments that are
    /// absent are empty.
    pub fn decode_call(&self, call: &Call) -> (Cow<'_, str>, Cow<'_, str>) {
        let name = call.name.map(|name| self.decode_text(name));
        let arguments = call.arguments.map(|arguments| match arguments {
            Arguments::Text(text) => self.decode_text(text),
            Arguments::Json(span) => String::from_utf8_lossy(self.span_bytes(span)),
        });
        (name.unwrap_or_default(), arguments.unwrap_or_default())
    }

    pub fn find_field(&self, name: &str) -> Option<&Field> {
        let mut fields = self.fields.iter();
        fields.find(|field| self.raw_bytes(field.key) == name.as_bytes())
    }

    /// A top-level member, if its value is of this kind.
    pub(crate) fn find_field_of_kind(&self, name: &str, kind: JsonKind) -> Option<&Field> {
        self.find_field(name).filter(|field| field.kind == kind)
    }

    /// The value of a top-level string, decoded.
    pub fn text_value(&self, name: &str) -> Option<Cow<'_, str>> {
        let field = self.find_field_of_kind(name, JsonKind::String)?;
        serde_json::from_slice(self.span_bytes(field.value)).ok()
    }

    /// The value of a top-level number, rounded down; `None` for a negative one.
    pub fn number_value(&self, name: &str) -> Option<u64> {
        let field = self.find_field_of_kind(name, JsonKind::Number)?;
        let number: f64 = serde_json::from_slice(self.span_bytes(field.value)).ok()?;
        (number >= 0.0).then_some(number as u64)
    }

    /// Whether a top-level member is present and neither null, false, nor empty.
    pub fn asks_for(&self, name: &str) -> bool {
        self.find_field(name).is_some_and(|field| {
            let is_empty = match self.span_bytes(field.value) {
                [b'[' | b'{', inside @ .., b']' | b'}'] => inside.trim_ascii().is_empty(),
                text => text == b"\"\"",
            };
            !is_empty && !matches!(field.kind, JsonKind::Null | JsonKind::False)
        })
    }

    /// Whether a top-level list has elements. Any other value except null counts as elements too, so that a request that is
    /// not understood is left alone.
    pub(crate) fn has_elements(&self, name: &str) -> bool {
        self.find_field(name).is_some_and(|field| {
            let inside = self.span_bytes(field.value).strip_prefix(b"[");
            let inside = inside.and_then(|inside| inside.strip_suffix(b"]"));
            field.kind != JsonKind::Null
                && inside.is_none_or(|inside| !inside.trim_ascii().is_empty())
        })
    }

    /// `model`, decoded.
    pub fn model(&self) -> Option<Cow<'_, str>> {
        self.text_value("model")
    }

    pub fn asks_for_stream(&self) -> bool {
        self.find_field_of_kind("stream", JsonKind::True).is_some()
    }

    pub fn calls_of(&self, item: &Item) -> &[Call] {
        &self.calls[item.calls.start as usize..item.calls.end as usize]
    }

    pub(crate) fn links_of(&self, item: &Item) -> &[Link] {
        &self.links[item.links.start as usize..item.links.end as usize]
    }

    /// The item of the list that holds this position of the body, or the one that follows it.
    pub(crate) fn find_item_at(&self, position: u32) -> usize {
        let is_outside = |item: &Item| item.place == ItemPlace::Outside;
        let first = usize::from(self.items.first().is_some_and(is_outside));
        let items = &self.items[first..];
        first + items.partition_point(|item| item.span.end <= position)
    }

    /// The last of the items that are bound to item `at`; `at` itself if there is none.
    pub(crate) fn find_last_bound(&self, at: usize) -> usize {
        let next = self.items[at + 1..].iter();
        at + next.take_while(|item| item.is_bound).count()
    }

    /// The last of the system messages directly after item `at`; `at` itself if there is none.
    pub(crate) fn find_last_system(&self, at: usize) -> usize {
        let next = self.items[at + 1..].iter();
        at + next.take_while(|item| item.author.is_system()).count()
    }

    /// The blocks of an item; none unless its content is a list.
    pub fn blocks_of(&self, item: &Item) -> &[Block] {
        match &item.content {
            Content::Blocks(range, _) | Content::FixedBlocks(range, _) => {
                &self.blocks[range.start as usize..range.end as usize]
            }
            _ => &[],
        }
    }
}
