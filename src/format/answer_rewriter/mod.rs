//! Removes from the answers of any format what is not for the client.

mod block_answer;
mod block_state;
mod block_tracker;
mod joined_response;
mod rewriter;
mod whole_blocks;

use std::collections::VecDeque;

use bytes::Bytes;

pub(super) use self::{
    block_answer::{
        AssembledCall, BlockAnswer, BlockAssembler, BlockStep, KeptBlocks, NewBlock, WholeBlock,
    },
    block_state::{BlockState, TrackedEvent},
    block_tracker::{BlockFate, BlockTracker, MAX_NAME, TrackedBlock, TrackedKind, truncate_name},
    joined_response::JoinedResponse,
    rewriter::{FormatRewriter, ParsedEvent},
    whole_blocks::CutBlock,
};
#[cfg(test)]
use super::tests::toy::answer::ToyAnswer;
use super::{
    AnswerFilter, ModelAnswer, ParsedAnswer, PrecedingText, ResponseSummarizer, SentEvents,
    chat::answer::ChatAnswer, messages::answer::MessagesAnswer, responses::answer::ResponsesAnswer,
};
use crate::{conversation::Format, wire::sse::SseMessage};

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAction {
    /// It is passed on as it came.
    Pass,
    /// These bytes are passed on in its place.
    Replace(Bytes),
    Drop,
    /// The rewriter keeps it for later.
    Hold,
}

/// What became of a whole answer.
pub enum RewrittenAnswer {
    /// It was for the proxy only.
    ForProxy(ModelAnswer),
    /// The answer as the client gets it, and what the model gave.
    ForClient { json: Bytes, said: ModelAnswer },
}

/// An event of a stream with what was read of it.
pub struct StreamEvent {
    /// The bytes as they came, blank line included.
    pub raw: Bytes,
    pub message: SseMessage,
    pub answer: ParsedAnswer,
}

/// Rewrites the answers of one response to a client, one after another.
pub enum AnswerRewriter {
    Chat(FormatRewriter<ChatAnswer>),
    Messages(FormatRewriter<MessagesAnswer>),
    Responses(FormatRewriter<ResponsesAnswer>),
    #[cfg(test)]
    Toy(FormatRewriter<ToyAnswer>),
}

impl AnswerRewriter {
    /// `left_out`: tokens left out of the request, which are added to the prompt tokens of its answer.
    pub fn new(format: Format, filter: AnswerFilter, left_out: Option<u32>) -> Self {
        match format {
            Format::Chat => Self::Chat(FormatRewriter::new(filter, left_out)),
            Format::Messages => Self::Messages(FormatRewriter::new(filter, left_out)),
            Format::Responses => Self::Responses(FormatRewriter::new(filter, left_out)),
            #[cfg(test)]
            Format::Toy => Self::Toy(FormatRewriter::new(filter, left_out)),
        }
    }

    /// Whether the current answer was for the proxy only. Then the rest of it is read and dropped.
    pub const fn is_for_proxy(&self) -> bool {
        with_any!(self, rewriter => rewriter.for_proxy)
    }

    /// The current answer as the model gave it.
    pub fn to_model_answer(&self) -> ModelAnswer {
        with_any!(self, rewriter => rewriter.to_model_answer())
    }

    pub const fn preceding_text(&self) -> PrecedingText {
        with_any!(self, rewriter => rewriter.joined.visible.preceding)
    }

    /// Returns what the client has received of the response, if the format numbers its events.
    pub fn sent_events(&self) -> SentEvents {
        match self {
            Self::Chat(_) | Self::Messages(_) => SentEvents::default(),
            Self::Responses(rewriter) => rewriter.joined.sent_events(),
            #[cfg(test)]
            Self::Toy(_) => SentEvents::default(),
        }
    }

    /// Sums up what the client gets.
    pub const fn summarizer(&mut self) -> &mut ResponseSummarizer {
        with_any!(self, rewriter => &mut rewriter.joined.summarizer)
    }

    /// Begins another answer; returns the one before.
    pub fn begin_answer(&mut self) -> ModelAnswer {
        with_any!(self, rewriter => rewriter.begin_answer())
    }

    /// Sets the model's name for the client, in quotes, where the provider was sent another one.
    pub fn set_asked_model(&mut self, asked: Option<Bytes>) {
        with_any!(self, rewriter => rewriter.joined.asked_model = asked)
    }

    /// Sets the tokens left out of the request of the next answer.
    pub fn set_left_out(&mut self, left_out: Option<u32>) {
        with_any!(self, rewriter => rewriter.joined.left_out = left_out.unwrap_or(0))
    }

    /// Takes the next event. Held events that are now decided go to `ready`, to be sent before it.
    pub fn take_event(&mut self, event: StreamEvent, ready: &mut VecDeque<Bytes>) -> EventAction {
        let StreamEvent {
            raw,
            message,
            answer,
        } = event;
        match (self, answer) {
            (Self::Chat(rewriter), ParsedAnswer::Chat(answer)) => {
                rewriter.take_event(ParsedEvent::new(raw, message, answer), ready)
            }
            (Self::Messages(rewriter), ParsedAnswer::Messages(answer)) => {
                rewriter.take_event(ParsedEvent::new(raw, message, answer), ready)
            }
            (Self::Responses(rewriter), ParsedAnswer::Responses(answer)) => {
                rewriter.take_event(ParsedEvent::new(raw, message, answer), ready)
            }
            #[cfg(test)]
            (Self::Toy(rewriter), ParsedAnswer::Toy(answer)) => {
                rewriter.take_event(ParsedEvent::new(raw, message, answer), ready)
            }
            // Never reached: reader and rewriter have the same format.
            (_, ParsedAnswer::Chat(_) | ParsedAnswer::Messages(_) | ParsedAnswer::Responses(_)) => {
                EventAction::Pass
            }
            #[cfg(test)]
            (_, ParsedAnswer::Toy(_)) => EventAction::Pass,
        }
    }

    /// Decides what is undecided, since nothing more comes, and releases all held events.
    pub fn release_all(&mut self, ready: &mut VecDeque<Bytes>) {
        with_any!(self, rewriter => rewriter.release_all(ready))
    }

    /// Takes the next answer in one piece; `None` if it cannot be read.
    pub fn take_whole(&mut self, json: &Bytes) -> Option<RewrittenAnswer> {
        with_any!(self, rewriter => BlockAnswer::take_whole(rewriter, json))
    }
}

/// The event with other data; all bytes around the data stay.
pub(super) fn replace_data(raw: &[u8], message: &SseMessage, json: &[u8]) -> Bytes {
    if let Some(at) = memchr::memmem::find(raw, &message.data) {
        let after = &raw[at + message.data.len()..];
        return [&raw[..at], json, after].concat().into();
    }
    // The data came on several lines, so the event is written anew.
    let mut event = Vec::with_capacity(json.len() + 16);
    if !message.name.is_empty() {
        event.extend([b"event: ", &message.name[..], b"\n"].concat());
    }
    for line in json.split(|byte| *byte == b'\n') {
        event.extend([b"data: ", line, b"\n"].concat());
    }
    event.extend_from_slice(b"\n");
    event.into()
}
