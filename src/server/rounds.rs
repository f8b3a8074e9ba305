//! Sending a request, and going on where an answer was for us alone.
//!
//! A request may go out several times before its client gets all of its answer: without asking for
//! usage where that is refused, without what recovery adds where that is refused, and once for each
//! round in which the model called only tools of ours. Nothing that recovery adds may fail a
//! request that would have worked without it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use serde_json::Value;

use super::{
    App, answer,
    ask_usage::{self, Edited, Sent},
    body,
    flight::Hold,
    forward::{cleaned, outgoing_headers, with_query},
    generation::Generation,
    refusal::{is_overflow, may_refuse, refuses_ours},
};
use crate::{
    error::Failure,
    provider::{Outgoing, Target},
    relay::{Before, Closing, Heard, Rounds, Spoken},
    wire::{Body, chat::Conversation, edit::Edits},
};

/// The request of a chat completion, as far as it is understood.
pub struct Asked {
    /// The body as it came.
    pub bytes: Bytes,
    /// `None`: JSON, but no conversation that we can follow. It goes on as it came.
    pub conversation: Option<Conversation>,
    /// Empty if there is none.
    pub model: String,
    pub streams: bool,
}

/// All that is needed to send a request, and to send it again.
pub struct Dispatch {
    app: Arc<App>,
    asked: Asked,
    target: Target,
    path: String,
    headers: HeaderMap,
    /// `None` where there is no conversation to follow.
    pub generation: Option<Generation>,
}

impl Dispatch {
    pub fn new(
        app: &Arc<App>,
        parts: &Parts,
        asked: Asked,
        target: Target,
        generation: Option<Generation>,
    ) -> Self {
        let mut headers = outgoing_headers(app, parts, &target.provider, true);
        body::without_encoding(&mut headers);
        Self {
            path: with_query("/chat/completions", parts),
            headers,
            app: Arc::clone(app),
            asked,
            target,
            generation,
        }
    }

    pub const fn streams(&self) -> bool {
        self.asked.streams
    }

    /// The name of the provider that answers.
    pub fn provider(&self) -> &str {
        &self.target.provider.name
    }

    /// Sends the request; without what recovery adds, where the provider refuses that.
    ///
    /// # Errors
    /// No answer began, or a refusal broke off.
    pub async fn send(&mut self) -> Result<Sent, Failure> {
        let mut sent = self.once().await?;
        let carries = |generation: &Generation| generation.carries_ours();
        if !self.generation.as_ref().is_some_and(carries) || !may_refuse(sent.answer.status()) {
            return Ok(sent);
        }
        let status = sent.answer.status();
        let refuses = |text: &Bytes| refuses_ours(status, text);
        let (answer, refused) = ask_usage::look(sent.answer, self.provider(), refuses).await?;
        let (answer, too_long) = ask_usage::look(answer, self.provider(), is_overflow).await?;
        sent.answer = answer;
        if refused {
            self.without_ours();
        } else if !(too_long && self.lighten()) {
            return Ok(sent);
        }
        let again = self.once().await?;
        if refused && again.answer.status().is_success() {
            self.refused_ours();
        }
        Ok(Sent {
            attempts: sent.attempts + again.attempts,
            took: sent.took + again.took,
            ..again
        })
    }

    async fn once(&self) -> Result<Sent, Failure> {
        let outgoing = |body| Outgoing {
            method: Method::POST,
            path: self.path.clone(),
            headers: self.headers.clone(),
            body,
        };
        let refusals = &self.app.refusals;
        let sent = ask_usage::send(refusals, &self.target, |ask| self.edit(ask), outgoing).await?;
        Ok(sent.map(cleaned))
    }

    /// `ask`: whether the usage of a stream may be asked for.
    fn edit(&self, ask: bool) -> Edited {
        let generation = self.generation.as_ref();
        let mut edits = generation.map_or_else(Edits::default, Generation::edits);
        let mut asked_usage = false;
        if let Some(conversation) = &self.asked.conversation {
            if self.asked.model != self.target.model
                && let Some(field) = conversation.field("model")
            {
                let model = Value::from(self.target.model.as_str()).to_string();
                edits.replace(field.value, model);
            }
            asked_usage = ask && conversation.ask_usage(&mut edits);
        }
        Edited {
            body: edits.apply(&self.asked.bytes),
            asked_usage,
        }
    }

    /// What is still needed once the request cannot go out again: its body is let go.
    pub fn into_generation(self) -> Option<Generation> {
        self.generation
    }

    /// Whether an answer says that the provider refuses what recovery added.
    async fn refuses_ours(&self, answer: Response<Body>) -> bool {
        let status = answer.status();
        let refuses = |text: &Bytes| refuses_ours(status, text);
        let looked = ask_usage::look(answer, self.provider(), refuses);
        may_refuse(status) && looked.await.is_ok_and(|(_, refused)| refused)
    }

    fn refused_ours(&mut self) {
        if let Some(generation) = &mut self.generation {
            generation.refused_ours();
        }
    }

    /// Leaves out what recovery put into this request for the first time; whether there is any.
    fn lighten(&mut self) -> bool {
        match (&mut self.generation, &self.asked.conversation) {
            (Some(generation), Some(conversation)) => generation.lighten(conversation),
            _ => false,
        }
    }

    fn without_ours(&mut self) {
        if let (Some(generation), Some(conversation)) =
            (&mut self.generation, &self.asked.conversation)
        {
            generation.without_ours(conversation);
        }
    }

    /// The model had its last round without our tools, and called them all the same.
    fn exhausted(&self) -> bool {
        self.generation.as_ref().is_none_or(Generation::exhausted)
    }

    fn plan_round(&mut self, spoken: &Spoken) {
        if let (Some(generation), Some(conversation)) =
            (&mut self.generation, &self.asked.conversation)
        {
            generation.round(conversation, spoken);
        }
    }
}

/// A request whose answer may be for us, on its way through its rounds.
pub struct Continuing {
    pub dispatch: Dispatch,
    /// As the first answer came; those that follow must come alike.
    pub streamed: bool,
    /// The client wants the level of a stream as a comment.
    pub comment: bool,
    /// Room for the body, for as long as it may have to be sent again.
    pub hold: Option<Hold>,
}

#[async_trait]
impl Rounds for Continuing {
    async fn go_on(&mut self, spoken: Spoken) -> Option<Response<Body>> {
        self.dispatch.plan_round(&spoken);
        if self.dispatch.exhausted() {
            tracing::warn!(
                "a model called nothing but our own tools, round after round; its answer ends here"
            );
            let model = &self.dispatch.target.model;
            return Some(answer::nothing_more(self.streamed, model, spoken.usage));
        }
        let (failed, refused) = match self.dispatch.once().await {
            Ok(sent) if self.goes_on(&sent.answer) => return Some(sent.answer),
            Ok(sent) => {
                let status = sent.answer.status().to_string();
                (status, self.dispatch.refuses_ours(sent.answer).await)
            }
            Err(failure) => (failure.message(), false),
        };
        tracing::warn!(
            reason = failed,
            "a round of our own tools failed; the request goes on without what is ours"
        );
        self.dispatch.without_ours();
        match self.dispatch.once().await {
            Ok(sent) if self.streamed && !self.goes_on(&sent.answer) => {
                answer::as_event(sent.answer, self.dispatch.provider()).await
            }
            Ok(sent) => {
                if refused && sent.answer.status().is_success() {
                    self.dispatch.refused_ours();
                }
                Some(sent.answer)
            }
            Err(failure) => {
                tracing::warn!(
                    reason = failure.message(),
                    "the request could not be sent again"
                );
                None
            }
        }
    }

    async fn end(mut self: Box<Self>, heard: Heard, last: Spoken, before: Before) -> Closing {
        let comment = self.comment;
        match &mut self.dispatch.generation {
            Some(generation) => generation.close(&heard, &last, before, comment).await,
            None => Closing::default(),
        }
    }
}

impl Continuing {
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
