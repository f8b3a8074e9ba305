//! Wire formats: a request becomes a [`Conversation`](crate::conversation::Conversation) and is written to, an
//! answer becomes [`AnswerEvent`]s and has parts taken out.
//!
//! Each function of `request`, `write` and `tools` has one `match` over [`Format`](crate::conversation::Format); behind
//! it stands the folder of the format, which alone knows the shape of its JSON. One reader per format turns a
//! piece of an answer (an event of a stream, or a whole body) into events, which point into the piece and copy
//! nothing. [`Listener`] makes a summary of them for health and session; the rewriter of a format takes out what
//! [`Sifting`] names. Chat completions are the only format yet.

mod answer;
mod blocks;
pub mod chat;
mod describe;
pub mod fault;
mod listener;
pub mod refusal;
mod request;
#[cfg(test)]
mod tests;
mod tools;
pub mod usage;
mod visible;
mod write;

pub use self::{
    answer::{
        AnswerEvent, Before, CallPart, Count, CountKind, Finish, FinishKind, Own, Package, Sifting,
        Spoken, UsageReport,
    },
    listener::{Heard, Listener},
    tools::{ToolArgument, ToolForm, ToolSchema},
    write::{AnswerLimit, TextRequest},
};
