//! Gets the next answer after one for the proxy only, and ends the last one. An answer is for the proxy only if it has calls
//! of proxy-executed tools and no others, or nothing but a continuation block.

use async_trait::async_trait;
use http::Response;

use super::{ModelAnswer, PrecedingText, ResponseSummary, StreamFooter};
use crate::wire::Body;

#[async_trait]
pub trait AnswerDriver: Send {
    /// Executes the calls of what the model `said` and asks the provider again. `None` if there is no answer; an
    /// answer without success ends the tool loop too.
    ///
    /// CANCEL: dropped with the client's connection; nothing of the round is kept then.
    async fn next_answer(&mut self, _said: ModelAnswer) -> Option<Response<Body>> {
        None
    }

    /// Ends the response, before the last bytes go out. `summary` is what the client got, with usage summed up; `last` is
    /// empty if there was no next answer. Called once for every stream that the provider ended or broke; never when the
    /// client leaves. Dropped after [`FooterOptions::max_wait`](super::FooterOptions), so longer work must be spawned.
    async fn end_answer(
        self: Box<Self>,
        summary: ResponseSummary,
        last: ModelAnswer,
        preceding: PrecedingText,
    ) -> StreamFooter;

    /// Tokens left out of the request of the newest answer. Called once for each answer but the first, before its first
    /// byte.
    fn left_out_tokens(&self) -> Option<u32> {
        None
    }
}
