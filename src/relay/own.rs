//! What of an answer is ours: calls of our tools, and the continuation block.
//!
//! Both are taken out on the way to the client. Where the model called nothing but our tools (or
//! said nothing but the block), [`Rounds`] gives the next answer, which goes on as if it were the
//! same one.

use async_trait::async_trait;
use http::Response;

use super::{stream::Closing, tap::Heard};
use crate::wire::{Body, usage::Usage};

/// What is taken out of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sifting {
    /// Names of our tools that the request carries.
    pub tools: &'static [&'static str],
    /// `<continuation_package>` blocks in the text.
    pub package: bool,
}

impl Sifting {
    /// Whether anything is.
    pub const fn any(&self) -> bool {
        self.package || !self.tools.is_empty()
    }
}

/// One answer of the provider, as the model gave it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spoken {
    /// The first choice's message as a request would carry it, a JSON object: all that the provider
    /// gave (reasoning and signatures too), but for members that are `null` or empty and those that
    /// only answers have (`annotations`, `audio`). Empty where it was too long to be kept.
    pub message: Box<str>,
    /// Calls of our tools, in their order.
    pub own: Vec<Own>,
    /// How many calls of the client's tools there were.
    pub theirs: u32,
    pub package: Option<Package>,
    /// The finish reason, such as `tool_calls`; empty where none came.
    pub finish: Box<str>,
    pub usage: Option<Usage>,
}

/// A call of one of our tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Empty where the provider gave none, and for a legacy `function_call`.
    pub id: Box<str>,
    pub name: Box<str>,
    /// As the model wrote them; may be anything.
    pub arguments: Box<str>,
    /// The arguments were longer than is kept; `arguments` is what was kept of them.
    pub overlong: bool,
    /// Calls of the client before it.
    pub before: u32,
    /// The element of `tool_calls`, a JSON object; the `function_call` where it is a legacy one.
    pub json: Box<str>,
    pub legacy: bool,
}

/// A continuation block that was taken out of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Characters of text that the client saw before it, in this answer.
    pub before_chars: u32,
    /// All of it, tags included, as the model wrote it; bounded.
    pub text: Box<str>,
    /// It was the only thing said: no other text but white space, and no calls.
    pub alone: bool,
}

/// What the client saw before the last answer began, where there was more than one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    pub chars: u32,
    /// See [`crate::json::text::digest`].
    pub digest: u128,
}

/// Goes on where an answer was for us alone.
#[async_trait]
pub trait Rounds: Send {
    /// Answers the calls and asks the provider again. `None` where no answer can be had; one that
    /// is no success ends the round too.
    ///
    /// CANCEL: dropped with the client's connection; nothing of the round is kept then.
    async fn go_on(&mut self, spoken: Spoken) -> Option<Response<Body>>;

    /// The last answer is over: `heard` is what the client got, usage summed up. Called once for
    /// every stream that the provider ended, broken ones included; never when the client leaves.
    /// Where there was no next answer, `last` is empty.
    async fn end(self: Box<Self>, heard: Heard, last: Spoken, before: Before) -> Closing;

    /// Tokens that were left out of the request whose answer came last: what [`super::Ending`] has
    /// for other streams. Asked for once with each answer of a stream, before its first byte.
    fn left_out(&self) -> Option<u32> {
        None
    }
}
