//! Answers of Responses.
//!
//! An event of a stream and a whole answer are read alike. An item is an element of `output`; an event of a stream names
//! its item by the index. An event that ends something repeats what the events before it brought.

mod assemble;
mod edits;
mod read;
mod write;

use bytes::Bytes;
use smallvec::SmallVec;

pub use self::{
    read::{is_keepalive, read_answer, read_event},
    write::{CompactionReply, empty_answer, error_event},
};
use super::kinds::{AnswerPart, CallShape, EntryKind};
use crate::{
    format::{
        AnswerEvent, AnswerEvents, SentEvents,
        answer::event_hold::{may_be_event, may_be_unnamed_done},
    },
    json::scan::{JsonKind, JsonString, Span},
};

/// The types of the events that end an answer.
const ENDS: [&str; 4] = [
    "response.completed",
    // Sent by gateways.
    "response.done",
    "response.failed",
    "response.incomplete",
];

/// An event of a stream, or a whole answer.
#[derive(Clone, Debug, Default)]
pub struct ResponsesAnswer {
    pub events: SmallVec<[AnswerEvent; 2]>,
    kind: EventKind,
    sequence_number: Option<(u64, Span)>,
    output_index: Option<(u64, Span)>,
    /// The item that begins or ends with this event.
    item: Option<OutputItem>,
    /// The text of a part that ends with this event.
    repeated_text: Option<JsonString>,
    /// The event is about a part that is not a text, such as a refusal.
    is_other_part: bool,
    /// The members of the answer itself, if the event has them.
    response: ResponseSpans,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EventKind {
    /// The answer begins, or waits to be processed.
    Begin,
    ItemBegin,
    ItemEnd,
    /// A part of an item.
    ItemPart,
    /// The last event: it repeats the whole answer.
    End,
    /// A whole answer.
    Response,
    /// It keeps the connection open.
    Keepalive,
    #[default]
    Other,
}

#[derive(Clone, Debug, Default)]
struct ResponseSpans {
    /// A string that is not empty.
    id: Option<JsonString>,
    /// A string that is not empty.
    model: Option<JsonString>,
    /// The list, brackets included.
    output: Option<(Span, Vec<OutputItem>)>,
    /// The server does not keep the answer.
    is_unstored: bool,
}

/// An element of `output`.
#[derive(Clone, Debug, Default)]
struct OutputItem {
    span: Span,
    kind: EntryKind,
    /// The member, key and value.
    id_member: Option<Span>,
    /// Of a call.
    call_id: Option<JsonString>,
    name: Option<JsonString>,
    arguments: Option<JsonString>,
    /// The input of a call that is not a function's.
    input: Option<(Span, JsonKind)>,
    /// The texts of a message, or of reasoning.
    texts: SmallVec<[JsonString; 1]>,
    /// The item has a part that is not a text, such as a refusal.
    has_other_part: bool,
    /// It is reasoning that can be sent back without the server's help.
    is_encrypted: bool,
}

/// Whether this may be the beginning of the last event of an answer, or of the end marker behind it.
pub fn may_be_end(beginning: &[u8]) -> bool {
    may_be_unnamed_done(beginning) || ENDS.iter().any(|end| may_be_event(beginning, end))
}

impl OutputItem {
    const fn call_shape(&self) -> Option<CallShape> {
        match self.kind {
            EntryKind::Answer(AnswerPart::Call(shape)) => Some(shape),
            _ => None,
        }
    }

    /// Whether the client, or the proxy in its place, has to answer it.
    const fn is_call(&self) -> bool {
        self.call_shape().is_some()
    }

    const fn is_reasoning(&self) -> bool {
        matches!(self.kind, EntryKind::Answer(AnswerPart::Reasoning))
    }

    /// Returns the texts of a message. Reasoning has no such texts.
    fn message_texts(&self) -> &[JsonString] {
        if self.is_message() { &self.texts } else { &[] }
    }

    const fn is_message(&self) -> bool {
        matches!(self.kind, EntryKind::Answer(AnswerPart::Text))
    }
}

impl AnswerEvents for ResponsesAnswer {
    fn events(&self) -> &[AnswerEvent] {
        &self.events
    }

    fn is_end(&self) -> bool {
        self.kind == EventKind::End
    }

    fn has_message(&self) -> bool {
        self.response.output.is_some()
    }

    fn note_sent(&self, json: &[u8], sent: &mut SentEvents) {
        if let (Some(id), None) = (self.response.id, &sent.id) {
            sent.id = Some(Bytes::copy_from_slice(id.raw_bytes(json)));
        }
        if let (Some(model), None) = (self.response.model, &sent.model) {
            sent.model = Some(Bytes::copy_from_slice(&json[model.quoted_span().range()]));
        }
        if let Some((number, _)) = self.sequence_number {
            sent.next_number = Some(number.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests;
