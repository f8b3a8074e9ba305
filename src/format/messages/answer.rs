//! Answers of Messages.
//!
//! An event of a stream and a whole answer are read alike. A block is an element of `content`; the
//! events of a stream name theirs by its index.

mod assemble;
mod edits;
mod read;
mod usage;
mod write;

use smallvec::SmallVec;

pub use self::{
    read::{is_ping, read_answer, read_event},
    usage::TokenCounts,
    write::{empty_answer, error_event, error_json, error_kind},
};
use crate::{
    format::{AnswerEvent, AnswerEvents, answer::event_hold::may_be_event},
    json::scan::{JsonKind, JsonString, Span},
};

/// The type of the event behind the last one of a message.
const END: &str = "message_stop";

/// An event of a stream, or a whole answer.
#[derive(Clone, Debug, Default)]
pub struct MessagesAnswer {
    pub events: SmallVec<[AnswerEvent; 2]>,
    kind: EventKind,
    /// The id of a whole answer; a string that is not empty.
    id: Option<JsonString>,
    /// The model of a message that begins, or of a whole answer; a string that is not empty.
    model: Option<JsonString>,
    index: Option<(u64, Span)>,
    /// The block that begins, or the `delta`.
    part: Option<ObjectSpans>,
    /// The list of a whole answer, brackets included, and its blocks.
    content: Option<(Span, Vec<ObjectSpans>)>,
    /// The counts of this event alone.
    reported: TokenCounts,
    /// The counts of the answer so far.
    counts: TokenCounts,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EventKind {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    Ping,
    /// A whole answer.
    Message,
    #[default]
    Other,
}

/// An object whose members matter, by their spans.
#[derive(Clone, Debug, Default)]
struct ObjectSpans {
    span: Span,
    members: SmallVec<[Member; 2]>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    key: JsonString,
    value: Span,
    kind: JsonKind,
    /// The value, if it is a string.
    text: Option<JsonString>,
}

impl ObjectSpans {
    fn find_member(&self, json: &[u8], name: &[u8]) -> Option<&Member> {
        let mut members = self.members.iter();
        members.find(|member| &json[member.key.span.range()] == name)
    }

    fn find_text(&self, json: &[u8], name: &[u8]) -> Option<JsonString> {
        self.find_member(json, name)?.text
    }

    fn text_bytes<'a>(&self, json: &'a [u8], name: &[u8]) -> &'a [u8] {
        let text = self.find_text(json, name);
        text.map_or(b"", |text| &json[text.span.range()])
    }

    /// The value of its `type`, as spelt.
    fn type_name<'a>(&self, json: &'a [u8]) -> &'a [u8] {
        self.text_bytes(json, b"type")
    }
}

/// Whether this may be the beginning of the event behind the last one of a message.
pub fn may_be_end(beginning: &[u8]) -> bool {
    may_be_event(beginning, END)
}

impl AnswerEvents for MessagesAnswer {
    fn events(&self) -> &[AnswerEvent] {
        &self.events
    }
}

impl MessagesAnswer {
    /// Whether this is a whole answer with content.
    pub const fn has_content(&self) -> bool {
        self.content.is_some()
    }
}

#[cfg(test)]
mod tests;
