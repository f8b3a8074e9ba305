//! Asking one place until its answer is its last word.
//!
//! A place may be asked several times for one attempt, each time with another request: without
//! asking for usage where that is refused, without what recovery adds where that is refused, and
//! fitted to a smaller window where the conversation was too long, twice at most. Nothing of it is
//! visible but in the headers and the log. Nothing that we add may fail a request that would have
//! worked without it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;

use super::{
    answer,
    ask_usage::{self, Edited, Lost, Sent},
    dispatch::Dispatch,
    forward::cleaned,
    refusal::{may_refuse, refuses_ours},
    rounds::is_stream,
};
use crate::{
    provider::{
        Outgoing,
        overflow::{self, Overflow, Verdict},
    },
    relay::{First, peek},
    wire::{edit::Edits, fault::Fault},
};

/// Times that one request is fitted anew at one place.
const MAX_REFITS: u32 = 2;

/// How long the head of a stream is held for its first event, which may be an error.
const FIRST_EVENT_WITHIN: Duration = Duration::from_secs(2);

/// What an answer says of the request.
enum Told {
    /// It is the answer.
    Nothing,
    TooLong {
        overflow: Overflow,
        /// In the words that every client knows.
        classic: bool,
    },
    /// It cannot be taken with what recovery added.
    RefusesOurs,
}

impl Dispatch {
    /// Asks this place.
    ///
    /// # Errors
    /// No answer began, or one broke off before it was the client's.
    pub(super) async fn attempt(&mut self) -> Result<Sent, Lost> {
        let mut without_ours = false;
        let mut sent = loop {
            let sent = self.once().await?;
            let (sent, told) = self.look(sent).await?;
            let again = match told {
                Told::Nothing => break sent,
                Told::TooLong { overflow, .. } => self.refit(&overflow),
                Told::RefusesOurs => {
                    without_ours = true;
                    self.without_ours();
                    true
                }
            };
            if !again {
                break self.too_long(sent, told);
            }
        };
        let healed = sent.answer.status().is_success();
        if without_ours && healed {
            self.refused_ours();
        }
        if self.refits > 0 || sent.too_long {
            self.app.metrics.overflow(self.provider(), !sent.too_long);
        }
        (sent.attempts, sent.took) = (self.calls, self.took);
        Ok(sent)
    }

    async fn once(&mut self) -> Result<Sent, Lost> {
        let outgoing = |body| Outgoing {
            method: Method::POST,
            path: self.path.clone(),
            headers: self.headers.clone(),
            body,
            model: Some(self.target.model.clone()),
        };
        let refusals = &self.app.refusals;
        let begun = Instant::now();
        let sent = ask_usage::send(refusals, &self.target, |ask| self.edit(ask), outgoing).await;
        self.took += begun.elapsed();
        self.calls += sent.as_ref().map_or(1, |sent| sent.attempts);
        Ok(sent?.map(cleaned))
    }

    /// `ask`: whether the usage of a stream may be asked for.
    fn edit(&self, ask: bool) -> Edited {
        let generation = self.generation.as_ref();
        let mut edits = generation.map_or_else(Edits::default, |it| it.edits());
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

    /// Looks at what may be a refusal; the answer goes on as it came.
    async fn look(&self, sent: Sent) -> Result<(Sent, Told), Lost> {
        let status = sent.answer.status();
        if status.is_success() {
            return self.look_inside(sent).await;
        }
        if !status.is_client_error() && !status.is_server_error() {
            return Ok((sent, Told::Nothing));
        }
        let (answer, text) = ask_usage::read(sent.answer, self.provider()).await?;
        let sent = Sent { answer, ..sent };
        let text = text.unwrap_or_default();
        let told = match overflow::judge(status, &text) {
            Verdict::Overflow(overflow) => Told::TooLong {
                classic: status == StatusCode::BAD_REQUEST && is_classic(&text),
                overflow,
            },
            Verdict::Wordless if self.is_long() => {
                told(Some(Verdict::Overflow(Overflow::default())))
            }
            Verdict::Other if self.refuses(status, &text) => Told::RefusesOurs,
            _ => Told::Nothing,
        };
        Ok((sent, told))
    }

    /// Errors that come as a success, where the provider is known for it.
    async fn look_inside(&self, sent: Sent) -> Result<(Sent, Told), Lost> {
        if !self.target.provider.config.profile.errors_inside {
            return Ok((sent, Told::Nothing));
        }
        if !is_stream(&sent.answer, self.asked.streams) {
            let (answer, text) = ask_usage::read(sent.answer, self.provider()).await?;
            let sent = Sent { answer, ..sent };
            let verdict = text.map(|text| overflow::judge(StatusCode::OK, &text));
            return Ok((sent, told(verdict)));
        }
        let (answer, first) = peek(sent.answer, FIRST_EVENT_WITHIN).await;
        let sent = Sent { answer, ..sent };
        let told = match first {
            First::Event(data) => told(Some(overflow::judge_event(&data))),
            First::Nothing if self.is_long() => told(Some(Verdict::Overflow(Overflow::default()))),
            First::Nothing | First::Unknown => Told::Nothing,
        };
        Ok((sent, told))
    }

    /// Whether a refusal without words may be for the length of the request.
    fn is_long(&self) -> bool {
        let generation = self.generation.as_ref();
        generation.is_some_and(|generation| generation.expected() > self.target.window.tokens / 2)
    }

    fn refuses(&self, status: StatusCode, text: &Bytes) -> bool {
        self.carries_ours() && may_refuse(status) && refuses_ours(status, text)
    }

    /// Learns from an overflow and fits the request anew. Returns whether it got smaller.
    fn refit(&mut self, overflow: &Overflow) -> bool {
        let (Some(generation), Some(conversation)) =
            (&mut self.generation, &self.asked.conversation)
        else {
            return false;
        };
        // An answer that is to be longer than the window is the provider's to refuse.
        if !generation.guards() || overflow.answer_alone() {
            return false;
        }
        let (lesson, counted) = generation.learn(overflow);
        self.target.window = self.app.registry.window_of(&self.target);
        if self.refits == MAX_REFITS || !generation.refit(conversation, &self.target, counted) {
            return false;
        }
        self.refits += 1;
        tracing::warn!(
            provider = &*self.target.provider.name,
            model = self.target.model,
            ?lesson,
            counted,
            "a provider refused a conversation as too long; it is fitted anew"
        );
        true
    }

    /// An answer that says that the request is too long, in the words that every client knows.
    fn too_long(&self, sent: Sent, told: Told) -> Sent {
        let generation = self.generation.as_ref();
        let untouched = generation.is_some_and(|generation| !generation.guards());
        let Told::TooLong { overflow, classic } = told else {
            return sent;
        };
        let answer = match untouched || classic {
            true => sent.answer,
            false => answer::too_long(&overflow, self.target.window),
        };
        Sent {
            answer,
            too_long: true,
            ..sent
        }
    }

    fn refused_ours(&mut self) {
        if let Some(generation) = &mut self.generation {
            generation.refused_ours();
        }
    }

    pub(super) fn without_ours(&mut self) {
        if let (Some(generation), Some(conversation)) =
            (&mut self.generation, &self.asked.conversation)
        {
            generation.without_ours(conversation);
        }
    }
}

fn told(verdict: Option<Verdict>) -> Told {
    match verdict {
        Some(Verdict::Overflow(overflow)) => Told::TooLong {
            overflow,
            classic: false,
        },
        _ => Told::Nothing,
    }
}

/// Whether an overflow is worded as OpenAI does, so that it can stay as it came.
fn is_classic(text: &[u8]) -> bool {
    Fault::read(text).is_some_and(|fault| {
        fault.code.as_deref() == Some("context_length_exceeded")
            && fault.message.contains("maximum context length")
    })
}
