//! Wire formats: a request becomes a [`Conversation`](crate::conversation::Conversation) and is written to, an
//! answer becomes [`AnswerEvent`]s and has parts taken out.
//!
//! Each function of `request`, `write` and `tools` has one `match` over [`Format`](crate::conversation::Format); behind
//! it stands the folder of the format, which alone knows the shape of its JSON. One reader per format turns a
//! piece of an answer (an event of a stream, or a whole body) into events, which point into the piece and copy
//! nothing. [`Listener`] makes a summary of them for health and session; the rewriter of a format takes out what
//! [`Sifting`] names. Chat completions are the only format yet.
//!
//! Another format needs an arm in each of these; on the side of answers, `relay` and `compaction` name chat
//! completions.

mod answer;
pub mod chat;
mod continuation;
mod describe;
pub mod error_body;
pub mod refusal;
mod request;
mod response_summary;
#[cfg(test)]
mod tests;
mod tools;
pub mod usage;
mod visible_text;
mod write;

pub use self::{
    answer::{
        AnswerEvent, AnswerFilter, AssistantTurn, CallFragment, ContinuationBlock, Finish,
        FinishKind, PrecedingText, ProxyToolCall, UsageCount, UsageCountKind, UsageReport,
    },
    response_summary::{ResponseSummarizer, ResponseSummary},
    tools::{ToolArgument, ToolForm, ToolSchema},
    write::{AnswerLimit, TextRequest},
};
