//! Wire formats: requests are read into a [`Conversation`](crate::conversation::Conversation) and edited; answers are
//! read into [`AnswerEvent`]s, and parts of them are removed.
//!
//! There is a folder for each format, which alone knows the shape of its JSON. The files next to these folders are for
//! all formats. Some of them hold what the folders share (`values`, `tools`, `text_request`, most of `index` and
//! `answer`). Others choose one of the folders (`request`, `index/mod.rs`, `answer/by_format.rs`,
//! `answer_rewriter/mod.rs`): by `in_format!` if every folder has the function, by `by_format!` if only some have it,
//! else by a `match` over [`Format`](crate::conversation::Format) that names every format. What a format fixes for every
//! provider is its row of [`FormatRules`].
//!
//! An [`AnswerReader`] turns each event of a stream into answer events, which hold spans and copy nothing.
//! [`ResponseSummarizer`] sums them up for health and session. The [`AnswerRewriter`] removes what [`AnswerFilter`] names.

/// Takes the constant or calls the function of this path in the folder of the format. Every folder has one.
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

/// Evaluates an expression with the content of an enum that has a variant for each format.
macro_rules! with_any {
    ($self:expr, $content:ident => $result:expr) => {
        match $self {
            Self::Chat($content) => $result,
            Self::Messages($content) => $result,
            Self::Responses($content) => $result,
            #[cfg(test)]
            Self::Toy($content) => $result,
        }
    };
}

/// Selects the value of the format, if only some formats have one of their own. Behind `else` are the formats that have
/// none, and the value for these and for the toy format of the tests. If a format is named nowhere, then the code does
/// not compile.
macro_rules! by_format {
    ($format:expr, $($own:ident => $value:expr),+; else $($other:ident)|+ => $default:expr) => {
        match $format {
            $(Format::$own => $value,)+
            $(Format::$other)|+ => $default,
            #[cfg(test)]
            Format::Toy => $default,
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
mod text_request;
mod tool_definitions;
mod tools;
mod values;

pub use self::{
    answer::{
        AnswerEvent, AnswerEvents, AnswerFilter, CallFragment, ContinuationBlock, Finish,
        FinishKind, ModelAnswer, PrecedingText, ProxyToolCall, SentEvents, UsageCount,
        UsageCountKind, UsageReport,
        by_format::{AnswerReader, ParsedAnswer},
        input_changes::InputChanges,
        response_summary::{ResponseSummarizer, ResponseSummary, digest_id},
        usage,
    },
    answer_rewriter::{AnswerRewriter, EventAction, RewrittenAnswer, StreamEvent},
    errors::{error_body, other_kinds, refusal},
    index::{KnownPrefixes, PrefixesOfAccount},
    request::{beta_header, block_binding},
    rules::{FormatRules, ReasoningPlace},
    text_request::{AnswerLimit, TextRequest},
    tools::{ClientTools, ToolArgument, ToolForm, ToolSchema},
};
