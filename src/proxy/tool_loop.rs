//! The tool loop: an answer that calls only the proxy's tools is followed by another request.
//!
//! A request goes out once more for each round in which the model called only tools that the proxy executes.
//! Where a round fails, the request goes on without anything that recovery added.
//!
//! A round is one more record and one more plan of the same conversation, so what goes out again begins with the
//! bytes that went out before. Calls beside the client's cannot be answered at once, since the client has to answer
//! its own first: they are recorded with their results, and put back into the message that the client echoes.

use async_trait::async_trait;
use http::{Response, StatusCode};

use super::{
    attempt::{attempt_request, withdraw_additions},
    client_request::ClientRequest,
    fallbacks::PlacedRequest,
    plan::plan_next_turn,
    provider_reply::{CallCount, ProviderReply, SendError, is_stream},
    proxy_answers,
    settle::{AnswerEnd, settle_stream},
    summary_source::keep_for_summary,
};
use crate::{
    error::Failure,
    http::limit::Hold,
    relay::{AssistantTurn, PrecedingText, ResponseSummary, StreamFooter, TurnDriver},
    wire::Body,
};

/// A request whose answer may call tools that the proxy executes, on its way through its rounds.
pub struct ToolLoop {
    pub request: ClientRequest,
    pub placed: PlacedRequest,
    /// As the first answer came; those that follow must come alike.
    pub streamed: bool,
    /// Room for the body, for as long as it may have to be sent again.
    pub hold: Option<Hold>,
}

#[async_trait]
impl TurnDriver for ToolLoop {
    fn left_out_tokens(&self) -> Option<u32> {
        self.placed.left_out_tokens(&self.request.app.config.guard)
    }

    async fn next_turn(&mut self, spoken: AssistantTurn) -> Option<Response<Body>> {
        self.placed.change_plan(&self.request, |followed, planned| {
            plan_next_turn(followed, planned, &spoken)
        });
        let planned = self.placed.planned.as_ref();
        let is_exhausted = planned.is_none_or(|it| it.recovery.is_exhausted());
        if is_exhausted {
            tracing::warn!(
                "a model called nothing but our own tools, round after round; its answer ends here"
            );
            let model = &self.placed.target.model;
            return Some(proxy_answers::empty_response(
                self.request.parsed.format,
                self.streamed,
                model,
                spoken.usage,
            ));
        }
        let failed = match self.ask_again().await {
            Ok(sent) if self.can_follow(&sent.answer) => return Some(sent.answer),
            Ok(sent) if !self.has_additions() => return self.answer_for_client(sent.answer).await,
            Ok(sent) => sent.answer.status().to_string(),
            Err(lost) => Failure::from(lost).message(),
        };
        tracing::warn!(
            reason = failed,
            "a round of our own tools failed; the request goes on without what is ours"
        );
        withdraw_additions(&self.request, &mut self.placed);
        match self.ask_again().await {
            Ok(sent) => self.answer_for_client(sent.answer).await,
            Err(lost) => {
                tracing::warn!(
                    reason = Failure::from(lost).message(),
                    "the request could not be sent again"
                );
                None
            }
        }
    }

    async fn end_answer(
        self: Box<Self>,
        heard: ResponseSummary,
        last: AssistantTurn,
        before: PrecedingText,
    ) -> StreamFooter {
        let source = keep_for_summary(&self.request, &self.placed);
        let (Some(session), Some(planned)) = (&self.request.session, self.placed.planned) else {
            return StreamFooter::default();
        };
        let end = AnswerEnd {
            heard: &heard,
            last: &last,
            before,
            source,
        };
        settle_stream(session, *planned, end).await
    }
}

impl ToolLoop {
    async fn ask_again(&mut self) -> Result<ProviderReply, SendError> {
        // The head tells of the calls before the first answer.
        let mut calls = CallCount::default();
        attempt_request(&self.request, &mut self.placed, &mut calls).await
    }

    fn has_additions(&self) -> bool {
        let planned = self.placed.planned.as_ref();
        planned.is_some_and(|planned| planned.has_additions())
    }

    /// An answer to a request without anything of ours, whatever it says.
    async fn answer_for_client(&self, answer: Response<Body>) -> Option<Response<Body>> {
        if self.streamed && !self.can_follow(&answer) {
            return proxy_answers::refusal_stream(answer, &self.placed.target.provider.name).await;
        }
        Some(answer)
    }

    /// Whether an answer can go on with what the client has of the answers before it.
    fn can_follow(&self, answer: &Response<Body>) -> bool {
        let says = answer.status().is_success() && answer.status() != StatusCode::NO_CONTENT;
        says && is_stream(answer, self.streamed) == self.streamed
    }
}
