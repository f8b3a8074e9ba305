//! The tool loop: an answer that calls only the proxy's tools is followed by another request.
//!
//! A request goes out once more for each round in which the model called only tools that the proxy executes.
//! Where a round fails, the request goes on without anything that recovery added.

use async_trait::async_trait;
use http::{Response, StatusCode};

use super::{
    attempt::{attempt, withdraw_additions},
    client_request::ClientRequest,
    fallbacks::PlacedRequest,
    own_answers,
    plan::plan_next_turn,
    provider_reply::{CallCount, ProviderReply, SendError, is_stream},
    settle::{AnswerEnd, settle_stream},
    summary_source::keep_for_summary,
};
use crate::{
    error::Failure,
    http::limit::Hold,
    relay::{Before, Closing, Heard, Rounds, Spoken},
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
impl Rounds for ToolLoop {
    fn left_out(&self) -> Option<u32> {
        self.placed.left_out_tokens(&self.request.app.config.guard)
    }

    async fn go_on(&mut self, spoken: Spoken) -> Option<Response<Body>> {
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
            return Some(own_answers::nothing_more(
                self.request.parsed.format,
                self.streamed,
                model,
                spoken.usage,
            ));
        }
        let failed = match self.ask_again().await {
            Ok(sent) if self.goes_on(&sent.answer) => return Some(sent.answer),
            Ok(sent) if !self.has_additions() => return self.passed_on(sent.answer).await,
            Ok(sent) => sent.answer.status().to_string(),
            Err(lost) => Failure::from(lost).message(),
        };
        tracing::warn!(
            reason = failed,
            "a round of our own tools failed; the request goes on without what is ours"
        );
        withdraw_additions(&self.request, &mut self.placed);
        match self.ask_again().await {
            Ok(sent) => self.passed_on(sent.answer).await,
            Err(lost) => {
                tracing::warn!(
                    reason = Failure::from(lost).message(),
                    "the request could not be sent again"
                );
                None
            }
        }
    }

    async fn end(self: Box<Self>, heard: Heard, last: Spoken, before: Before) -> Closing {
        let source = keep_for_summary(&self.request, &self.placed);
        let (Some(session), Some(planned)) = (&self.request.session, self.placed.planned) else {
            return Closing::default();
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
        attempt(&self.request, &mut self.placed, &mut calls).await
    }

    fn has_additions(&self) -> bool {
        let planned = self.placed.planned.as_ref();
        planned.is_some_and(|planned| planned.has_additions())
    }

    /// An answer to a request without anything of ours, whatever it says.
    async fn passed_on(&self, answer: Response<Body>) -> Option<Response<Body>> {
        if self.streamed && !self.goes_on(&answer) {
            return own_answers::as_event(answer, &self.placed.target.provider.name).await;
        }
        Some(answer)
    }

    /// Whether an answer can go on with what the client has of the answers before it.
    fn goes_on(&self, answer: &Response<Body>) -> bool {
        let says = answer.status().is_success() && answer.status() != StatusCode::NO_CONTENT;
        says && is_stream(answer, self.streamed) == self.streamed
    }
}
