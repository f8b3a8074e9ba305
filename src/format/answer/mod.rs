//! The parts of an answer in terms that all formats share.

pub(super) mod by_format;
pub(super) mod continuation;
pub(super) mod event_hold;
mod hidden_places;
pub(super) mod input_changes;
pub(super) mod response_summary;
pub mod usage;
pub(super) mod visible_text;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    format::answer::{input_changes::InputChanges, usage::Usage},
    json::scan::{JsonKind, JsonString, Span},
};

/// One part of a chunk or of a whole answer. Spans lie in its JSON.
#[derive(Clone, Debug)]
pub enum AnswerEvent {
    /// The answer's own id, if clients may continue from it.
    Id(JsonString),
    /// Text of the first choice.
    Text(JsonString),
    /// Reasoning of the first choice.
    Reasoning(JsonString),
    /// A tool call of the first choice, or a fragment of one.
    Call(CallFragment),
    Usage(UsageReport),
    /// What the provider did with the thinking in the request. It replaces the report of an earlier event.
    InputChanges(InputChanges),
    /// Tokens of the request that the provider cleared by its own edits, as the request asked. The provider's counts do
    /// not include them.
    Cleared(u32),
    Finish(Finish),
    /// The provider reports an error inside the answer.
    Error,
    /// The marker behind the last event of a stream.
    End,
}

/// A call, or the part of it in one chunk.
#[derive(Clone, Debug, Default)]
pub struct CallFragment {
    pub span: Span,
    pub index: Option<(u64, Span)>,
    /// A string that is not empty.
    pub id: Option<JsonString>,
    /// A string that is not empty.
    pub name: Option<JsonString>,
    pub arguments: Option<(Span, JsonKind)>,
    /// A `function_call`, which came before `tool_calls`.
    pub legacy: bool,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishKind {
    /// The model calls tools.
    Calls,
    /// The answer ended before the model wanted it to.
    CutOff,
    /// It ended since prompt and answer fill the window.
    WindowExceeded,
    Other,
}

impl FinishKind {
    /// Whether the answer ended before the model wanted it to.
    pub const fn is_cut_off(self) -> bool {
        matches!(self, Self::CutOff | Self::WindowExceeded)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Finish {
    /// A string that is not empty.
    pub reason: JsonString,
    pub kind: FinishKind,
    /// It is the finish reason of the first choice.
    pub first: bool,
}

/// What was read of an answer, or of an event of one.
pub trait AnswerEvents {
    fn events(&self) -> &[AnswerEvent];

    fn has_error(&self) -> bool {
        let mut events = self.events().iter();
        events.any(|event| matches!(event, AnswerEvent::Error))
    }

    /// Whether this is the marker behind the last event.
    fn is_end(&self) -> bool {
        matches!(self.events(), [AnswerEvent::End])
    }

    /// Why the first choice ended, if it did.
    fn find_finish(&self) -> Option<Finish> {
        self.events().iter().find_map(|event| match event {
            AnswerEvent::Finish(finish) if finish.first => Some(*finish),
            _ => None,
        })
    }

    /// Whether there is a message of the model, or a part of one.
    fn has_message(&self) -> bool;

    /// Whether this is a chunk with usage and nothing else, which a client may not expect.
    fn is_usage_only(&self) -> bool {
        false
    }

    /// Notes that the client got this event of a stream as it came.
    fn note_sent(&self, _json: &[u8], _sent: &mut SentEvents) {}

    fn iter_texts(&self) -> impl Iterator<Item = JsonString> {
        self.events().iter().filter_map(|event| match event {
            AnswerEvent::Text(text) => Some(*text),
            _ => None,
        })
    }

    fn iter_reports(&self) -> impl Iterator<Item = &UsageReport> {
        self.events().iter().filter_map(|event| match event {
            AnswerEvent::Usage(report) => Some(report),
            _ => None,
        })
    }
}

/// What the client has received of a stream with numbered events, in addition to the items.
#[derive(Clone, Debug, Default)]
pub struct SentEvents {
    /// The raw id of the answer, without quotes, once there was one.
    pub(in crate::format) id: Option<Bytes>,
    /// The model's raw name in the answer, in quotes; before the answer has one, the name that the client asked for.
    pub(in crate::format) model: Option<Bytes>,
    /// The number of the next event, once there was one.
    pub(in crate::format) next_number: Option<u64>,
}

impl SentEvents {
    /// Creates the state before anything was sent of an answer. `model`: the name that the client uses.
    pub fn none_of(model: &str) -> Self {
        Self {
            model: serde_json::to_vec(model).ok().map(Bytes::from),
            ..Self::default()
        }
    }

    /// Takes the model's name from `asked` if no event has named the model.
    pub fn or_model(self, asked: &Self) -> Self {
        Self {
            model: self.model.or_else(|| asked.model.clone()),
            ..self
        }
    }
}

/// A `usage` object.
#[derive(Clone, Debug)]
pub struct UsageReport {
    pub span: Span,
    /// `None` without a count of prompt tokens.
    pub usage: Option<Usage>,
    /// The counts that can be edited.
    pub counts: SmallVec<[UsageCount; 3]>,
}

/// A number of tokens with its span.
#[derive(Clone, Copy, Debug)]
pub struct UsageCount {
    pub kind: UsageCountKind,
    pub tokens: u32,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageCountKind {
    Prompt,
    Completion,
    Total,
}

/// Bytes kept of one message for another request; a longer one is not assembled.
pub(super) const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Bytes of arguments kept of one call.
pub(super) const MAX_ARGUMENT_BYTES: usize = 64 << 10;

/// What is removed from an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerFilter {
    /// Calls of these tools: the proxy-executed ones of the request.
    pub tools: &'static [&'static str],
    /// `<continuation_package>` blocks in the text.
    pub package: bool,
}

impl AnswerFilter {
    pub const fn is_active(&self) -> bool {
        self.package || !self.tools.is_empty()
    }
}

/// One answer of the provider, as the model gave it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelAnswer {
    /// The first choice's message as a JSON object for a request: with reasoning and signatures, without members that
    /// are `null`, empty, or only in answers (`annotations`, `audio`).
    ///
    /// In Responses, the items of the answer as they came, joined by commas. Reasoning that is neither encrypted nor
    /// kept by the server is left out, and with it the ids of all items.
    ///
    /// Empty if it was too long, is not JSON, or if nothing in it was for the proxy.
    pub message: Box<str>,
    /// Calls of proxy-executed tools, in their order.
    pub proxy_calls: Vec<ProxyToolCall>,
    /// How many calls of the client's tools there were.
    pub client_calls: u32,
    pub package: Option<ContinuationBlock>,
    pub usage: Option<Usage>,
}

/// A call of a proxy-executed tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyToolCall {
    /// Empty if the provider gave none, and for a legacy `function_call`.
    pub id: Box<str>,
    pub name: Box<str>,
    /// As the model wrote them, maybe not JSON. Empty if they were too long.
    pub arguments: Box<str>,
    /// The arguments were too long to be kept.
    pub overlong: bool,
    /// How many of the client's calls came before it.
    pub before: u32,
    /// The element of `tool_calls`, or the legacy `function_call`: a JSON object. May be empty if
    /// the arguments were too long.
    pub json: Box<str>,
    pub legacy: bool,
}

impl ProxyToolCall {
    /// Whether the arguments are too long to be sent again.
    pub(super) fn is_overlong(&self, max_argument_bytes: usize) -> bool {
        self.overlong || self.arguments.len() > max_argument_bytes
    }
}

/// A continuation block that was removed from the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContinuationBlock {
    /// Characters of text that the client saw before it, in this answer.
    pub before_chars: u32,
    /// The block with its tags, as the model wrote it; bounded.
    pub text: Box<str>,
    /// The answer has no other text but white space, and no calls.
    pub alone: bool,
}

/// The text that the client saw before the last of several answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrecedingText {
    pub chars: u32,
    /// See [`crate::json::text::digest_text`].
    pub digest: u128,
}
