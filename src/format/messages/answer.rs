//! Answers of Messages.
//!
//! An event of a stream and a whole answer are read alike. A block is an element of `content`; an event of a stream names
//! its block by the index.

mod assemble;
mod edits;
mod read;
mod usage;
mod write;

use smallvec::SmallVec;

pub use self::{
    read::{is_ping, is_start, read_answer, read_event},
    usage::TokenCounts,
    write::{empty_answer, error_event, error_json, error_kind},
};
use crate::{
    format::{AnswerEvent, AnswerEvents, answer::event_hold::may_be_event, values::ObjectSpans},
    json::scan::{JsonString, Span},
};

/// The type of the event that ends a message.
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

/// Whether this may be the beginning of the event that ends a message.
pub fn may_be_end(beginning: &[u8]) -> bool {
    may_be_event(beginning, END)
}

impl AnswerEvents for MessagesAnswer {
    fn events(&self) -> &[AnswerEvent] {
        &self.events
    }

    fn has_message(&self) -> bool {
        self.content.is_some()
    }
}

#[cfg(test)]
mod tests;
