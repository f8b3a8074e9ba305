//! Wire formats: requests are read into a [`Conversation`](crate::conversation::Conversation) and
//! edited; answers are read into [`AnswerEvent`]s, and parts of them are removed.
//!
//! Each function of `request`, `write` and `tools` has one `match` over
//! [`Format`](crate::conversation::Format) and calls the folder of the format, which alone knows the
//! shape of its JSON. [`AnswerFormat`] does the same for answers. One [`AnswerReader`] per format
//! turns an event of a stream, or a whole body, into answer events, which hold spans and copy
//! nothing. [`ResponseSummarizer`] sums them up for health and session; the [`AnswerRewriter`]
//! removes what [`AnswerFilter`] names.
//!
//! What a format fixes for every provider stands in `grammar`, its paths in `paths`.

mod answer;
mod answer_format;
mod answer_rewriter;
mod cache_markers;
pub mod chat;
mod continuation;
mod describe;
pub mod error_body;
mod event_hold;
mod grammar;
mod guess;
mod index;
mod indexing;
pub mod messages;
mod overflow_error;
mod paths;
pub mod refusal;
mod request;
mod response_summary;
pub mod responses;
#[cfg(test)]
mod tests;
mod tools;
pub mod usage;
mod values;
mod visible_text;
mod write;

pub use self::{
    answer::{
        AnswerEvent, AnswerEvents, AnswerFilter, AssistantTurn, CallFragment, ContinuationBlock,
        Finish, FinishKind, PrecedingText, ProxyToolCall, UsageCount, UsageCountKind, UsageReport,
    },
    answer_format::{AnswerFormat, AnswerReader, ParsedAnswer},
    answer_rewriter::{AnswerRewriter, EventAction, RewrittenAnswer, StreamEvent},
    response_summary::{ResponseSummarizer, ResponseSummary},
    tools::{ClientTools, ToolArgument, ToolForm, ToolSchema},
    write::{AnswerLimit, TextRequest},
};
