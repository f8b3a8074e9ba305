//! Answers of chat completions.
//!
//! A chunk of a stream and an answer in one piece are read alike; of the choices only the first is looked into.

mod assemble;
mod calls;
mod current;
mod edits;
mod read;
mod rewriter;
mod special;
mod usage;
mod whole;

use smallvec::SmallVec;

pub use self::{
    current::ParsedEvent,
    read::read_answer,
    rewriter::{EventAction, Rewriter},
    special::may_need_whole_event,
    whole::{RewrittenAnswer, add_prompt_tokens},
};
use crate::{
    format::{AnswerEvent, CallFragment, Finish},
    json::scan::{JsonKind, JsonString, Span},
};

/// The data of the event behind the last chunk of a stream.
const DONE: &[u8] = b"[DONE]";

type AnswerEvents = SmallVec<[AnswerEvent; 2]>;

/// A chunk of a stream, or a whole answer.
#[derive(Clone, Debug, Default)]
pub struct ChatAnswer {
    pub events: AnswerEvents,
    /// A string that is not empty.
    id: Option<JsonString>,
    /// How many choices there are; `None` without a list of them.
    choices: Option<u32>,
    /// The `delta`, or the `message`, of the choice with index 0, or without one.
    first: Option<MessageSpans>,
}

/// Where the members of a delta or a message lie.
#[derive(Clone, Debug, Default)]
struct MessageSpans {
    span: Span,
    members: SmallVec<[Member; 4]>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    key: JsonString,
    value: Span,
    kind: JsonKind,
}

impl Member {
    /// Key and value.
    const fn full_span(self) -> Span {
        Span {
            start: self.key.quoted_span().start,
            end: self.value.end,
        }
    }
}

impl MessageSpans {
    fn find_member(&self, json: &[u8], name: &[u8]) -> Option<Member> {
        let mut members = self.members.iter();
        members
            .find(|member| &json[member.key.span.range()] == name)
            .copied()
    }
}

impl ChatAnswer {
    /// Whether this is a chunk with usage and without choices, as `include_usage` makes it.
    pub fn is_usage_only(&self) -> bool {
        let reports = |event: &AnswerEvent| match event {
            AnswerEvent::Usage(report) => report.usage.is_some(),
            _ => false,
        };
        self.choices == Some(0) && !self.has_error() && self.events.iter().any(reports)
    }

    pub fn has_error(&self) -> bool {
        let is_error = |event: &AnswerEvent| matches!(event, AnswerEvent::Error);
        self.events.iter().any(is_error)
    }

    /// Whether this is the marker behind the last event.
    pub fn is_end(&self) -> bool {
        matches!(self.events[..], [AnswerEvent::End])
    }

    /// Whether the first choice has a message, or a delta.
    pub fn has_message(&self) -> bool {
        let message = self.first.as_ref();
        message.is_some_and(|message| !message.span.is_empty())
    }

    /// Why the first choice ended, if it did.
    pub fn find_finish(&self) -> Option<Finish> {
        self.events.iter().find_map(|event| match event {
            AnswerEvent::Finish(finish) if finish.first => Some(*finish),
            _ => None,
        })
    }

    fn iter_texts(&self) -> impl Iterator<Item = JsonString> {
        self.events.iter().filter_map(|event| match event {
            AnswerEvent::Text(text) => Some(*text),
            _ => None,
        })
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
