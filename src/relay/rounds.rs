//! Goes on with the next answer where one was for the proxy alone: the model called nothing but
//! proxy-executed tools, or said nothing but a continuation block.

use async_trait::async_trait;
use http::Response;

use super::{Before, Closing, Heard, Spoken};
use crate::wire::Body;

/// Goes on where an answer was for the proxy alone.
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
