//! Answers by their format, and what the relay has to know of them.

use bytes::Bytes;
use http::StatusCode;

#[cfg(test)]
use crate::format::tests::toy;
use crate::{
    conversation::{Api, Format},
    format::{
        AnswerEvent, AnswerEvents, SentEvents,
        answer::{event_hold::DONE, usage::Usage},
        chat,
        errors::error_body::ErrorBody,
        messages, responses,
    },
    json::scan::MalformedJson,
    wire::sse::SseMessage,
};

/// An event of a stream, or a whole answer.
pub enum ParsedAnswer {
    Chat(chat::answer::ChatAnswer),
    Messages(messages::answer::MessagesAnswer),
    Responses(responses::answer::ResponsesAnswer),
    #[cfg(test)]
    Toy(toy::answer::ToyAnswer),
}

/// Reads the events of one answer in their order.
pub struct AnswerReader {
    format: Format,
    /// Usage of Messages comes in parts.
    counts: messages::answer::TokenCounts,
}

impl Format {
    /// Reads a whole body, or the data of one event.
    ///
    /// # Errors
    /// It is neither a JSON object nor the end marker of a stream.
    pub fn read_answer(self, json: &[u8]) -> Result<ParsedAnswer, MalformedJson> {
        match self {
            Self::Chat => chat::answer::read_answer(json).map(ParsedAnswer::Chat),
            Self::Messages => messages::answer::read_answer(json).map(ParsedAnswer::Messages),
            Self::Responses => responses::answer::read_answer(json).map(ParsedAnswer::Responses),
            #[cfg(test)]
            Self::Toy => toy::answer::read_answer(json).map(ParsedAnswer::Toy),
        }
    }

    /// Whether `beginning` may be the start of an event that must be complete before it is passed on: the event that ends
    /// the stream or, with `usage`, a chunk that holds nothing but usage. If a beginning may be one, then every shorter
    /// beginning may be one too.
    pub fn may_need_whole_event(self, beginning: &[u8], usage: bool) -> bool {
        match self {
            Self::Chat => chat::answer::may_need_whole_event(beginning, usage),
            Self::Messages => messages::answer::may_be_end(beginning),
            Self::Responses => responses::answer::may_be_end(beginning),
            #[cfg(test)]
            Self::Toy => toy::answer::may_be_end(beginning),
        }
    }

    /// Whether an event only keeps the connection open, so that an error may still follow it.
    pub fn is_keepalive(self, message: &SseMessage) -> bool {
        by_format!(self,
            Messages => messages::answer::is_ping(message),
            Responses => responses::answer::is_keepalive(message);
            else Chat => false)
    }

    /// Whether an event has no content of the answer yet, so that an error may still follow in place of the answer.
    /// `[DONE]` has no content either: a stream of it alone is no answer.
    pub fn is_beginning(self, message: &SseMessage) -> bool {
        self.is_keepalive(message)
            || message.data == DONE
            || by_format!(self,
                Messages => messages::answer::is_start(message),
                Responses => false;
                else Chat => chat::answer::is_role_chunk(&message.data))
    }

    /// The `type` of an error of this status.
    pub fn error_kind(self, status: StatusCode) -> &'static str {
        match self.api() {
            Api::Anthropic => messages::answer::error_kind(status),
            Api::OpenAi => match status {
                StatusCode::FORBIDDEN => "permission_error",
                StatusCode::TOO_MANY_REQUESTS => "requests",
                status if status.is_server_error() => "server_error",
                _ => "invalid_request_error",
            },
        }
    }

    /// Returns the status of an error in a conversation whose model or provider is missing. It is 400 in Messages, since
    /// Claude Code shows advice of its own in place of the message of a 404.
    pub const fn missing_model_status(self) -> StatusCode {
        match self.api() {
            Api::Anthropic => StatusCode::BAD_REQUEST,
            Api::OpenAi => StatusCode::NOT_FOUND,
        }
    }

    /// An error as the body of an answer.
    pub fn error_body(self, error: &ErrorBody) -> Vec<u8> {
        match self.api() {
            Api::OpenAi => error.to_json(),
            Api::Anthropic => messages::answer::error_json(error),
        }
    }

    /// Writes an error as an event of a stream. `sent`: what the client has received of that stream.
    pub fn error_event(self, error: &ErrorBody, sent: &SentEvents) -> Bytes {
        by_format!(self,
            Messages => messages::answer::error_event(error),
            Responses => responses::answer::error_event(error, sent);
            else Chat => error.to_event())
    }

    /// The end of an answer from which the proxy removed everything: a body, or the last events of a
    /// stream.
    pub fn empty_answer(self, streamed: bool, model: &str, usage: Option<Usage>) -> Bytes {
        in_format!(self, answer::empty_answer(streamed, model, usage))
    }
}

impl AnswerEvents for ParsedAnswer {
    fn events(&self) -> &[AnswerEvent] {
        with_any!(self, answer => answer.events())
    }

    fn is_end(&self) -> bool {
        with_any!(self, answer => answer.is_end())
    }

    fn has_message(&self) -> bool {
        with_any!(self, answer => answer.has_message())
    }

    fn is_usage_only(&self) -> bool {
        with_any!(self, answer => answer.is_usage_only())
    }

    fn note_sent(&self, json: &[u8], sent: &mut SentEvents) {
        with_any!(self, answer => answer.note_sent(json, sent))
    }
}

impl AnswerReader {
    pub fn new(format: Format) -> Self {
        Self {
            format,
            counts: Default::default(),
        }
    }

    /// Reads the next event; empty if it cannot be read.
    pub fn read_event(&mut self, message: &SseMessage) -> ParsedAnswer {
        let counts = &mut self.counts;
        match self.format {
            Format::Chat => ParsedAnswer::Chat(chat::answer::read_event(message)),
            Format::Messages => {
                ParsedAnswer::Messages(messages::answer::read_event(message, counts))
            }
            Format::Responses => ParsedAnswer::Responses(responses::answer::read_event(message)),
            #[cfg(test)]
            Format::Toy => ParsedAnswer::Toy(toy::answer::read_event(message)),
        }
    }
}
