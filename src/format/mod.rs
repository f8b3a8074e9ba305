//! Wire formats: what an answer says, and how parts of it are taken out on its way to the client.
//!
//! One reader per format turns a piece of an answer (an event of a stream, or a whole body) into
//! [`AnswerEvent`]s, which point into the piece and copy nothing. [`Listener`] makes a summary of
//! them for health and session. The rewriter of a format takes out what [`Sifting`] names. Only the
//! folder of a format knows the shape of its JSON; chat completions are the only format yet.

mod answer;
mod blocks;
pub mod chat;
mod describe;
mod listener;
pub mod refusal;
mod request;
mod tools;
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
