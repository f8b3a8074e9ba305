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
mod answer_rewriter;
pub mod chat;
mod errors;
mod grammar;
mod index;
pub mod messages;
mod paths;
mod request;
pub mod responses;
mod rules;
#[cfg(test)]
mod tests;
mod values;

pub use self::{
    answer::{
        AnswerEvent, AnswerEvents, AnswerFilter, AssistantTurn, CallFragment, ContinuationBlock,
        Finish, FinishKind, PrecedingText, ProxyToolCall, UsageCount, UsageCountKind, UsageReport,
        by_format::{AnswerReader, ParsedAnswer},
        input_changes::InputChanges,
        response_summary::{ResponseSummarizer, ResponseSummary},
        usage,
    },
    answer_rewriter::{AnswerRewriter, EventAction, RewrittenAnswer, StreamEvent},
    errors::{error_body, refusal},
    request::{
        beta_header, block_binding,
        tools::{ClientTools, ToolArgument, ToolForm, ToolSchema},
        write::{AnswerLimit, TextRequest},
    },
    responses::answer::SentEvents,
    rules::{FormatRules, ReasoningPlace},
};
