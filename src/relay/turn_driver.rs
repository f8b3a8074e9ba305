//! Goes on with the next answer where one was for the proxy alone: the model called nothing but
//! proxy-executed tools, or said nothing but a continuation block.

use async_trait::async_trait;
use http::Response;

use super::{AssistantTurn, PrecedingText, ResponseSummary, StreamFooter};
use crate::wire::Body;

/// Goes on where an answer was for the proxy alone.
#[async_trait]
pub trait TurnDriver: Send {
    /// Answers the calls and asks the provider again. `None` where no answer can be had; one that
    /// is no success ends the round too.
    ///
    /// CANCEL: dropped with the client's connection; nothing of the round is kept then.
    async fn next_turn(&mut self, spoken: AssistantTurn) -> Option<Response<Body>>;

    /// The last answer is over: `heard` is what the client got, usage summed up. Called once for
    /// every stream that the provider ended, broken ones included; never when the client leaves.
    /// Where there was no next answer, `last` is empty.
    async fn end_answer(
        self: Box<Self>,
        heard: ResponseSummary,
        last: AssistantTurn,
        before: PrecedingText,
    ) -> StreamFooter;

    /// Tokens that were left out of the request whose answer came last: what [`super::Ending`] has
    /// for other streams. Asked for once with each answer of a stream, before its first byte.
    fn left_out_tokens(&self) -> Option<u32> {
        None
    }
}
