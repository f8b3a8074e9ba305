//! The tool loop: an answer that calls only the proxy's tools is followed by another request.
//!
//! A request goes out once more for each round in which the model called only tools that the proxy executes.
//! Where a round fails, the request goes on without anything that recovery added.

use async_trait::async_trait;
use http::{Response, StatusCode, header::CONTENT_TYPE};

use super::{dispatch::Dispatch, generation::Ended, own_answers};
use crate::{
    error::Failure,
    http::limit::Hold,
    relay::{Before, Closing, Heard, Rounds, Spoken},
    wire::Body,
};

/// A request whose answer may call tools that the proxy executes, on its way through its rounds.
pub struct ToolLoop {
    pub dispatch: Dispatch,
    /// As the first answer came; those that follow must come alike.
    pub streamed: bool,
    /// The client wants the level of a stream as a comment.
    pub comment: bool,
    /// Room for the body, for as long as it may have to be sent again.
    pub hold: Option<Hold>,
}

#[async_trait]
impl Rounds for ToolLoop {
    fn left_out(&self) -> Option<u32> {
        self.dispatch.left_out()
    }

    async fn go_on(&mut self, spoken: Spoken) -> Option<Response<Body>> {
        self.dispatch.plan_round(&spoken);
        if self.dispatch.exhausted() {
            tracing::warn!(
                "a model called nothing but our own tools, round after round; its answer ends here"
            );
            let model = &self.dispatch.target.model;
            return Some(own_answers::nothing_more(
                self.streamed,
                model,
                spoken.usage,
            ));
        }
        let failed = match self.dispatch.attempt().await {
            Ok(sent) if self.goes_on(&sent.answer) => return Some(sent.answer),
            Ok(sent) if !self.dispatch.carries_ours() => return self.passed_on(sent.answer).await,
            Ok(sent) => sent.answer.status().to_string(),
            Err(lost) => Failure::from(lost).message(),
        };
        tracing::warn!(
            reason = failed,
            "a round of our own tools failed; the request goes on without what is ours"
        );
        self.dispatch.without_ours();
        match self.dispatch.attempt().await {
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

    async fn end(mut self: Box<Self>, heard: Heard, last: Spoken, before: Before) -> Closing {
        let (comment, kept) = (self.comment, self.dispatch.keep_for_summary());
        match &mut self.dispatch.generation {
            Some(generation) => {
                let ended = Ended {
                    heard: &heard,
                    last: &last,
                    before,
                    kept,
                };
                generation.close(ended, comment).await
            }
            None => Closing::default(),
        }
    }
}

impl ToolLoop {
    /// An answer to a request without anything of ours, whatever it says.
    async fn passed_on(&self, answer: Response<Body>) -> Option<Response<Body>> {
        if self.streamed && !self.goes_on(&answer) {
            return own_answers::as_event(answer, self.dispatch.provider()).await;
        }
        Some(answer)
    }

    /// Whether an answer can go on with what the client has of the answers before it.
    fn goes_on(&self, answer: &Response<Body>) -> bool {
        let says = answer.status().is_success() && answer.status() != StatusCode::NO_CONTENT;
        says && is_stream(answer, self.streamed) == self.streamed
    }
}

/// By what the answer says of itself; where it says nothing, by what was asked for.
pub fn is_stream(answer: &Response<Body>, asked: bool) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    let kind = kind.map_or(&b""[..], |kind| kind.as_bytes());
    let kind = kind.trim_ascii_start().to_ascii_lowercase();
    answer.status().is_success()
        && (kind.starts_with(b"text/event-stream")
            || (asked && !kind.starts_with(b"application/json")))
}
