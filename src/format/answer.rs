//! What an answer says, in terms that all formats share.

use smallvec::SmallVec;

use super::usage::Usage;
use crate::json::scan::{JsonKind, JsonString, Span};

/// What one piece of an answer says. Spans lie in the JSON of the piece.
#[derive(Clone, Debug)]
pub enum AnswerEvent {
    /// Text of the first choice.
    Text(JsonString),
    /// What the model thinks before it speaks; of the first choice.
    Reasoning(JsonString),
    /// A tool call of the first choice, or a fragment of one.
    Call(CallFragment),
    /// Tokens were reported.
    Usage(UsageReport),
    Finish(Finish),
    /// The provider reports an error inside the answer.
    Error,
    /// The marker behind the last event of a stream.
    End,
}

/// A call, or what one piece holds of it.
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

/// Why an answer ended. Every provider spells it in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishKind {
    /// The model calls tools.
    Calls,
    /// The answer ended before the model wanted it to.
    CutOff,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub struct Finish {
    /// A string that is not empty.
    pub reason: JsonString,
    pub kind: FinishKind,
    /// The choice that ends is the first one.
    pub first: bool,
}

/// A report of tokens.
#[derive(Clone, Debug)]
pub struct UsageReport {
    pub span: Span,
    /// `None` where the tokens of the prompt are not known.
    pub usage: Option<Usage>,
    /// The counts that can be edited.
    pub counts: SmallVec<[UsageCount; 3]>,
}

/// A whole number of tokens, and where it stands.
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

/// What is taken out of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerFilter {
    /// Names of the proxy-executed tools that the request carries.
    pub tools: &'static [&'static str],
    /// `<continuation_package>` blocks in the text.
    pub package: bool,
}

impl AnswerFilter {
    /// Whether anything is.
    pub const fn is_active(&self) -> bool {
        self.package || !self.tools.is_empty()
    }
}

/// One answer of the provider, as the model gave it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssistantTurn {
    /// The first choice's message as a request would carry it, a JSON object: all that the provider
    /// gave (reasoning and signatures too), but for members that are `null` or empty and those that
    /// only answers have (`annotations`, `audio`). Empty where it was too long to be kept, and where
    /// nothing in it was for the proxy.
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
    /// Empty where the provider gave none, and for a legacy `function_call`.
    pub id: Box<str>,
    pub name: Box<str>,
    /// As the model wrote them; may be anything. Empty where they were too long.
    pub arguments: Box<str>,
    /// The arguments were longer than is kept.
    pub overlong: bool,
    /// Calls of the client before it.
    pub before: u32,
    /// The element of `tool_calls`, a JSON object; the `function_call` where it is a legacy one. May be empty
    /// where the arguments were too long.
    pub json: Box<str>,
    pub legacy: bool,
}

/// A continuation block that was taken out of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContinuationBlock {
    /// Characters of text that the client saw before it, in this answer.
    pub before_chars: u32,
    /// All of it, tags included, as the model wrote it; bounded.
    pub text: Box<str>,
    /// It was the only thing said: no other text but white space, and no calls.
    pub alone: bool,
}

/// What the client saw before the last answer began, where there was more than one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrecedingText {
    pub chars: u32,
    /// See [`crate::json::text::digest`].
    pub digest: u128,
}
