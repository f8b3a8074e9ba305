//! Answers of chat completions.
//!
//! A chunk of a stream and a whole answer are read alike. Of any choice but the first, only the finish reason and the
//! usage are kept.

mod assemble;
mod calls;
mod edits;
mod event_hold;
mod read;
mod whole;

use smallvec::SmallVec;

pub use self::{
    event_hold::{is_role_chunk, may_need_whole_event},
    read::{read_answer, read_event},
};
pub(in crate::format) use super::write::empty_answer;
use crate::{
    format::{
        AnswerEvent, AnswerEvents, CallFragment, answer::event_hold::DONE, values::ObjectSpans,
    },
    json::scan::JsonString,
};

/// A chunk of a stream, or a whole answer.
#[derive(Clone, Debug, Default)]
pub struct ChatAnswer {
    pub events: SmallVec<[AnswerEvent; 2]>,
    /// A string that is not empty.
    id: Option<JsonString>,
    model: Option<JsonString>,
    /// How many choices there are; `None` without a list.
    choices: Option<u32>,
    /// There is a `usage` that is not null, also one that cannot be read.
    has_usage: bool,
    /// The `delta`, or the `message`, of the choice with index 0, or without one.
    first: Option<ObjectSpans>,
}

impl AnswerEvents for ChatAnswer {
    fn events(&self) -> &[AnswerEvent] {
        &self.events
    }

    /// Whether the first choice has a message, or a delta.
    fn has_message(&self) -> bool {
        let message = self.first.as_ref();
        message.is_some_and(|message| !message.span.is_empty())
    }

    /// Whether this is a chunk with usage and without choices, as `include_usage` makes it. The shape of the usage does
    /// not matter: even if it cannot be read, the client did not ask for the chunk.
    fn is_usage_only(&self) -> bool {
        self.has_usage && self.choices == Some(0) && !self.has_error()
    }
}

impl ChatAnswer {
    /// Whether it has calls or reasoning, but no text.
    fn interrupts_text(&self) -> bool {
        let has = |wanted: fn(&AnswerEvent) -> bool| self.events.iter().any(wanted);
        has(|event| matches!(event, AnswerEvent::Call(_) | AnswerEvent::Reasoning(_)))
            && !has(|event| matches!(event, AnswerEvent::Text(_)))
    }

    fn iter_calls(&self) -> impl Iterator<Item = &CallFragment> {
        self.events.iter().filter_map(|event| match event {
            AnswerEvent::Call(call) => Some(call),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
