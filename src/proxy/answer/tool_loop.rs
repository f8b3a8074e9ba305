//! The tool loop: an answer that calls only the proxy's tools is followed by another request.
//!
//! Each tool round sends the request again with the results. If a round fails, the request is sent without recovery's
//! additions.
//!
//! A round adds one record to the same conversation and plans it again, so the next request begins with the bytes of the one
//! before. If an answer calls the client's tools too, no round begins, since the client has to answer its calls first: the
//! proxy's calls are recorded with their results, and put back into the message that the client echoes.

use async_trait::async_trait;
use http::{Response, StatusCode};

use super::proxy_answers;
use crate::{
    error::Failure,
    http::{answer::events_response, limit::Hold},
    proxy::{
        ClientRequest, ProviderRequest,
        dispatch::{
            CallCount, ProviderReply, SendError, attempt_request, provider_reply::is_stream,
        },
        plan::{finish_answer, plan_next_round, plan_without_additions},
        settle::StreamEnd,
    },
    relay::{AnswerDriver, ModelAnswer, PrecedingText, ResponseSummary, StreamFooter},
    wire::Body,
};

/// A request whose answer may call proxy-executed tools.
pub(super) struct ToolLoop {
    pub(super) request: ClientRequest,
    pub(super) prepared: ProviderRequest,
    /// Whether the first answer is a stream. All later answers must be of the same kind.
    pub(super) streamed: bool,
    /// The body's share of the bytes in flight, as long as the body may be sent again.
    pub(super) _hold: Option<Hold>,
}

#[async_trait]
impl AnswerDriver for ToolLoop {
    fn left_out_tokens(&self) -> Option<u32> {
        self.prepared
            .left_out_tokens(&self.request.app.config.guard)
    }

    async fn next_answer(&mut self, said: ModelAnswer) -> Option<Response<Body>> {
        self.prepared
            .change_plan(&self.request, |followed, planned| {
                plan_next_round(followed, planned, &said)
            });
        let planned = self.prepared.planned.as_ref();
        if planned.is_none_or(|planned| planned.recovery.is_exhausted()) {
            tracing::warn!(
                max_rounds = self.request.app.config.recovery.max_rounds,
                "tool loop: recovery.max_rounds is reached, and the model called only proxy-executed tools again; the answer ends here"
            );
            let (format, model) = (self.request.parsed.format, &self.prepared.target.model);
            let answer = proxy_answers::empty_response(format, self.streamed, model, said.usage);
            return Some(answer);
        }
        let reason = match self.send_again().await {
            Ok(reply) if self.can_follow(&reply.answer) => return Some(reply.answer),
            Ok(reply) if !self.prepared.has_additions() => {
                return self.answer_for_client(reply.answer).await;
            }
            Ok(reply) => reply.answer.status().to_string(),
            Err(error) => Failure::from(error).to_string(),
        };
        tracing::warn!(
            reason,
            "tool loop: a round failed: {reason}; sending the request without recovery's prompts and tools"
        );
        self.prepared
            .change_plan(&self.request, plan_without_additions);
        match self.send_again().await {
            Ok(reply) => self.answer_for_client(reply.answer).await,
            Err(error) => {
                let reason = Failure::from(error).to_string();
                tracing::warn!(
                    reason,
                    "tool loop: sending the request again failed: {reason}"
                );
                None
            }
        }
    }

    async fn end_answer(
        mut self: Box<Self>,
        response: ResponseSummary,
        last: ModelAnswer,
        before: PrecedingText,
    ) -> StreamFooter {
        self.finish_answer(&last, before);
        let end = StreamEnd::new(self.request, self.prepared);
        end.settle(response).await
    }
}

impl ToolLoop {
    /// Executes and records the proxy-executed calls of the last answer, while the request still exists: its conversation is
    /// read.
    pub(super) fn finish_answer(&mut self, last: &ModelAnswer, before: PrecedingText) {
        let followed = self.request.followed_conversation();
        if let (Some(followed), Some(planned)) = (followed, &mut self.prepared.planned) {
            finish_answer(followed, planned, last, before);
        }
    }

    async fn send_again(&mut self) -> Result<ProviderReply, SendError> {
        // These calls are counted separately: the head that the client has names the calls before the first answer.
        let mut calls = CallCount::default();
        attempt_request(&self.request, &mut self.prepared, None, &mut calls).await
    }

    /// Prepares for the client the answer to a request without recovery's additions. If the client already has the head of a
    /// stream, a refusal becomes an event.
    async fn answer_for_client(&self, answer: Response<Body>) -> Option<Response<Body>> {
        if self.streamed && !self.can_follow(&answer) {
            let status = answer.status().as_u16();
            let format = self.request.parsed.format;
            let provider = &self.prepared.target.provider.name;
            let model = &self.request.parsed.model;
            let event = proxy_answers::refusal_event(format, model, answer, provider).await?;
            tracing::warn!(
                status,
                "tool loop: {provider} answered {status}; its error ends the stream"
            );
            return Some(events_response(event));
        }
        Some(answer)
    }

    /// Whether an answer can continue what the client has of the answers before it.
    fn can_follow(&self, answer: &Response<Body>) -> bool {
        let status = answer.status();
        status.is_success()
            && status != StatusCode::NO_CONTENT
            && is_stream(answer, self.streamed) == self.streamed
    }
}
