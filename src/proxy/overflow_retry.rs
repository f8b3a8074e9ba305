//! A conversation that was too long for its provider: how that is noticed, and what is done.
//!
//! What a refusal says is learnt, the same conversation is fitted anew and sent again, twice at
//! most. A refusal without words teaches nothing by itself: half of the conversation is tried, and
//! only if that is answered it was too long. What cannot be healed is answered in the words that
//! every client knows.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::{
    dispatch::Dispatch,
    own_answers,
    refusal::{may_refuse, refuses_ours},
    send::{self, ProviderReply, SendError},
    tool_loop::is_stream,
};
use crate::{
    provider::{
        learnt::Refused,
        overflow::{self, Overflow, Verdict},
    },
    relay::{First, peek},
    wire::fault::Fault,
};

/// Times that one request is fitted anew at one place.
const MAX_REFITS: u32 = 2;

/// Tokens of a request that may have been refused for its length where nobody says so.
const LEAST_GUESSED: u32 = 4_000;

/// How long the head of a stream is held for its first event, which may be an error.
const FIRST_EVENT_WITHIN: Duration = Duration::from_secs(2);

/// What an answer says of the request.
pub(super) enum Refusal {
    /// It is the answer.
    Nothing,
    TooLong {
        overflow: Overflow,
        /// In the words that every client knows.
        classic: bool,
    },
    /// A refusal that says nothing at all.
    Wordless,
    /// It cannot be taken with what recovery added.
    RefusesOurs,
    /// It cannot be asked for the usage of a stream.
    RefusesUsage,
}

/// Requests that were refused without a word, perhaps for their length.
#[derive(Default)]
pub(super) struct Guesses(Vec<Refused>);

impl Dispatch {
    /// Looks at what may be a refusal; the answer goes on as it came.
    pub(super) async fn look(
        &self,
        sent: ProviderReply,
    ) -> Result<(ProviderReply, Refusal), SendError> {
        let status = sent.answer.status();
        if status.is_success() {
            return self.look_inside(sent).await;
        }
        if !status.is_client_error() && !status.is_server_error() {
            return Ok((sent, Refusal::Nothing));
        }
        let read = send::read(sent.answer, self.provider()).await;
        let (answer, text) = read.map_err(|bad| match status.is_server_error() {
            true => SendError::Failing(bad),
            false => SendError::Broken(bad),
        })?;
        let sent = ProviderReply { answer, ..sent };
        let text = text.unwrap_or_default();
        if sent.asked_usage && send::refuses_usage(status, &text) {
            return Ok((sent, Refusal::RefusesUsage));
        }
        let told = match overflow::judge(status, &text) {
            Verdict::Overflow(overflow) => Refusal::TooLong {
                classic: status == StatusCode::BAD_REQUEST && is_classic(&text),
                overflow,
            },
            Verdict::Wordless => Refusal::Wordless,
            Verdict::Other if self.refuses(status, &text) => Refusal::RefusesOurs,
            _ => Refusal::Nothing,
        };
        Ok((sent, told))
    }

    /// Errors that come as a success, where the provider is known for it.
    async fn look_inside(
        &self,
        sent: ProviderReply,
    ) -> Result<(ProviderReply, Refusal), SendError> {
        if !self.target.provider.config.profile.errors_inside {
            return Ok((sent, Refusal::Nothing));
        }
        if !is_stream(&sent.answer, self.asked.streams) {
            let (answer, text) = send::read(sent.answer, self.provider()).await?;
            let sent = ProviderReply { answer, ..sent };
            let verdict = text.map(|text| overflow::judge(StatusCode::OK, &text));
            return Ok((sent, told(verdict)));
        }
        let (answer, first) = peek(sent.answer, FIRST_EVENT_WITHIN).await;
        let sent = ProviderReply { answer, ..sent };
        let told = match first {
            First::Event(data) => told(Some(overflow::judge_event(&data))),
            First::Nothing => Refusal::Wordless,
            First::Unknown => Refusal::Nothing,
        };
        Ok((sent, told))
    }

    fn refuses(&self, status: StatusCode, text: &Bytes) -> bool {
        self.carries_ours() && may_refuse(status) && refuses_ours(status, text)
    }

    /// Learns from an overflow and fits the request anew. Returns whether it got smaller.
    pub(super) fn refit(&mut self, overflow: &Overflow) -> bool {
        let (Some(generation), Some(conversation)) =
            (&mut self.generation, &self.asked.conversation)
        else {
            return false;
        };
        // An answer that is to be longer than the window is the provider's to refuse, unless less may be asked.
        let answer_alone = overflow.answer_alone() && !generation.may_lower_cap();
        if !generation.guards() || answer_alone {
            return false;
        }
        let (lesson, counted) = generation.learn(overflow);
        self.target.window = self.app.registry.window_of(&self.target);
        if self.refits == MAX_REFITS || !generation.refit(conversation, &self.target, counted) {
            return false;
        }
        self.refits += 1;
        let window = self.target.window;
        tracing::warn!(
            provider = &*self.target.provider.name,
            model = self.target.model,
            ?lesson,
            counted,
            window = window.tokens,
            input_limit = window.input,
            "{:?} refused a conversation as too long; it is fitted anew",
            self.target.id()
        );
        true
    }

    /// Fits a long request anew that was refused without a word. Returns whether it got smaller.
    pub(super) fn guess(&mut self, guesses: &mut Guesses) -> bool {
        let (Some(generation), Some(conversation)) =
            (&mut self.generation, &self.asked.conversation)
        else {
            return false;
        };
        let expected = generation.expected();
        if !generation.guards() || expected < LEAST_GUESSED || self.refits == MAX_REFITS {
            return false;
        }
        let refused = generation.refused(&Overflow::default());
        self.target.window.input = Some(expected / 2);
        let smaller = generation.refit(conversation, &self.target, None);
        if smaller {
            guesses.0.push(refused);
            self.refits += 1;
        }
        smaller
    }

    /// A request was answered: what was refused before it without a word was too long.
    pub(super) fn believe(&mut self, guesses: Guesses) {
        if guesses.0.is_empty() {
            return;
        }
        for refused in &guesses.0 {
            self.app.registry.learn(&self.target, refused);
        }
        self.target.window = self.app.registry.window_of(&self.target);
        let (provider, model) = (&*self.target.provider.name, &*self.target.model);
        self.app.replica_sync.mark_changed(provider, model);
        tracing::warn!(
            provider,
            model,
            limit = self.target.window.input,
            "a provider refused a long conversation without a word, and took a shorter one"
        );
        if let (Some(generation), Some(conversation)) =
            (&mut self.generation, &self.asked.conversation)
        {
            generation.measure_by(conversation, &self.target);
        }
    }

    /// An answer that says that the request is too long, in the words that every client knows.
    pub(super) fn too_long(&self, sent: ProviderReply, told: Refusal) -> ProviderReply {
        let generation = self.generation.as_ref();
        let untouched = generation.is_some_and(|generation| !generation.guards());
        let Refusal::TooLong { overflow, classic } = told else {
            return sent;
        };
        let answer = match untouched || classic {
            true => sent.answer,
            false => own_answers::too_long(&overflow, self.target.window),
        };
        ProviderReply {
            answer,
            too_long: true,
            ..sent
        }
    }
}

fn told(verdict: Option<Verdict>) -> Refusal {
    match verdict {
        Some(Verdict::Overflow(overflow)) => Refusal::TooLong {
            overflow,
            classic: false,
        },
        _ => Refusal::Nothing,
    }
}

/// Whether an overflow is worded as OpenAI does, so that it can stay as it came.
fn is_classic(text: &[u8]) -> bool {
    Fault::read(text).is_some_and(|fault| {
        fault.code.as_deref() == Some("context_length_exceeded")
            && fault.message.contains("maximum context length")
    })
}
