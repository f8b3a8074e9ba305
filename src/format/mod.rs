//! Wire formats: requests are read into a [`Conversation`](crate::conversation::Conversation) and
//! edited; answers are read into [`AnswerEvent`]s, and parts of them are removed.
//!
//! The functions of `request`, `write` and `index` call the folder of the format, which alone knows the
//! shape of its JSON: by `in_format!` where every folder has the function, else by a `match` over
//! [`Format`](crate::conversation::Format) that names each of them. One [`AnswerReader`] per format turns an event of a
//! stream, or a whole body, into answer events, which hold spans and copy nothing. [`ResponseSummarizer`] sums them up for health and session; the [`AnswerRewriter`]
//! removes what [`AnswerFilter`] names.
//!
//! What a format fixes for every provider is its row of [`FormatRules`].

/// The constant or function of this path in the folder of a format: each of them has one.
macro_rules! in_format {
    ($format:expr, $module:ident::$name:ident $(($($argument:expr),*))?) => {
        match $format {
            Format::Chat => chat::$module::$name $(($($argument),*))?,
            Format::Messages => messages::$module::$name $(($($argument),*))?,
            Format::Responses => responses::$module::$name $(($($argument),*))?,
            #[cfg(test)]
            Format::Toy => crate::format::tests::toy::$module::$name $(($($argument),*))?,
        }
    };
}

mod answer;
mod answer_format;
mod answer_rewriter;
pub mod beta_header;
pub mod block_binding;
mod cache_markers;
pub mod chat;
mod continuation;
mod describe;
pub mod error_body;
mod event_hold;
mod grammar;
mod guess;
mod hidden_places;
mod index;
mod indexing;
mod input_changes;
pub mod messages;
mod overflow_error;
mod paths;
mod reasoning;
pub mod refusal;
mod request;
mod required_members;
mod response_summary;
pub mod responses;
mod rules;
mod sealed;
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
    answer_format::{AnswerReader, ParsedAnswer},
    answer_rewriter::{AnswerRewriter, EventAction, RewrittenAnswer, StreamEvent},
    input_changes::InputChanges,
    response_summary::{ResponseSummarizer, ResponseSummary},
    responses::answer::SentEvents,
    rules::{FormatRules, ReasoningPlace},
    tools::{ClientTools, ToolArgument, ToolForm, ToolSchema},
    write::{AnswerLimit, TextRequest},
};
