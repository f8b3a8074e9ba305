//! The usage of a stream, which we ask for where the client did not: and providers that refuse it.
//!
//! Some refuse every request with `stream_options` (Mistral's own API and some gateways of models
//! answer 422, Databricks 400). Nothing has reached the client by then, so the request goes out
//! once more without, and the provider and model are remembered: a request later does not ask.
//! Never done where the client itself asked: then the refusal is its answer. An error about
//! anything else passes as it came.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Response, StatusCode};
use lru::LruCache;
use serde_json::Value;

use super::traced_send;
use crate::{
    error::Failure,
    provider::{Outgoing, Payload, Target, Unsent},
    relay::{self, BadAnswer, Whole},
    telemetry::{Operation, trace::Trace},
    wire::{Body, edit::Rope, fault::Fault, whole},
};

/// Models remembered; beyond, the one not used for longest goes, and is asked again.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");
/// Bytes of an error that are looked into; such refusals are short.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// What a refusal names.
const WORDS: [&str; 2] = ["stream_options", "include_usage"];

/// Models of providers that refuse to be asked for the usage of a stream. In memory only: after a
/// restart it costs one request each to learn them again.
#[derive(Debug)]
pub struct Refusals(Mutex<LruCache<Model, ()>>);

/// Where a provider is, and a model's name.
type Model = (Box<str>, Box<str>);

/// A request as it goes to the provider.
pub struct Edited {
    pub body: Rope,
    /// The usage of a stream was asked for by us.
    pub asked_usage: bool,
}

/// What came of sending it.
pub struct Sent {
    pub answer: Response<Body>,
    /// As of the request that was answered.
    pub asked_usage: bool,
    pub attempts: u32,
    /// From the first byte sent to the head of the answer.
    pub took: Duration,
    /// The conversation is too long for this place, whatever is done.
    pub too_long: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Lost {
    /// None began: the request may be sent again.
    Unsent(Unsent),
    /// One began that told of the provider's own failure, and broke.
    Failing(BadAnswer),
    /// One began, and broke.
    Broken(BadAnswer),
}

impl From<Unsent> for Lost {
    fn from(unsent: Unsent) -> Self {
        Self::Unsent(unsent)
    }
}

impl From<BadAnswer> for Lost {
    fn from(bad: BadAnswer) -> Self {
        Self::Broken(bad)
    }
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Unsent(unsent) => unsent.into(),
            Lost::Failing(bad) | Lost::Broken(bad) => bad.into(),
        }
    }
}

impl Sent {
    /// With another answer for the same request.
    pub fn map(self, change: impl FnOnce(Response<Body>) -> Response<Body>) -> Self {
        Self {
            answer: change(self.answer),
            ..self
        }
    }
}

impl Default for Refusals {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_MODELS)))
    }
}

impl Refusals {
    fn knows(&self, target: &Target) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&key(target)).is_some()
    }

    /// Forgets a provider that is no longer there.
    pub fn forget(&self, place: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = known.iter().filter(|((of, _), ())| **of == *place);
        let gone: Vec<_> = gone.map(|(model, ())| model.clone()).collect();
        for model in &gone {
            known.pop(model);
        }
    }

    fn learn(&self, target: &Target) {
        tracing::info!(
            provider = &*target.provider.name,
            model = target.model,
            "a provider refuses stream_options; its streams are not asked for usage"
        );
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.put(key(target), ());
    }
}

fn key(target: &Target) -> Model {
    (
        target.provider.place.as_ref().into(),
        target.model.as_str().into(),
    )
}

/// Sends a request, and once more without asking for usage where just that is refused.
///
/// `edit` makes the request, given whether the usage of a stream may be asked for. Each time is an
/// attempt in `trace`.
///
/// # Errors
/// No answer began, or a refusal broke off.
pub async fn send(
    refusals: &Refusals,
    trace: &Trace,
    target: &Target,
    edit: impl Fn(bool) -> Edited,
    outgoing: impl Fn(Payload) -> Outgoing,
) -> Result<Sent, Lost> {
    let begun = Instant::now();
    let first = edit(!refusals.knows(target));
    let ask = |body| {
        let outgoing = outgoing(Payload::Whole(body));
        traced_send::send(trace, &target.provider, Some(Operation::Chat), outgoing)
    };
    let answer = ask(first.body).await?;
    let mut sent = Sent {
        answer,
        asked_usage: first.asked_usage,
        attempts: 1,
        took: begun.elapsed(),
        too_long: false,
    };
    if !sent.asked_usage || !may_refuse(sent.answer.status()) {
        return Ok(sent);
    }
    let (answer, refused) = look(sent.answer, &target.provider.name, names_usage).await?;
    if refused {
        let again = edit(false);
        sent.answer = ask(again.body).await?;
        sent.asked_usage = again.asked_usage;
        sent.attempts = 2;
        sent.took = begun.elapsed();
        // An error may echo the request and be about something else.
        if sent.answer.status().is_success() {
            refusals.learn(target);
        }
    } else {
        sent.answer = answer;
    }
    Ok(sent)
}

fn may_refuse(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
    )
}

/// The error as it came, and whether its text `refuses`; one that is too long to be read does not.
///
/// # Errors
/// It broke off.
async fn look(
    answer: Response<Body>,
    provider: &str,
    refuses: impl Fn(&Bytes) -> bool,
) -> Result<(Response<Body>, bool), BadAnswer> {
    let (answer, text) = read(answer, provider).await?;
    Ok((answer, text.is_some_and(|text| refuses(&text))))
}

/// A short answer as it came, and what it says; `None` for one that is long, or cannot be read.
///
/// # Errors
/// It broke off, or is a success and not JSON.
pub async fn read(
    answer: Response<Body>,
    provider: &str,
) -> Result<(Response<Body>, Option<Bytes>), BadAnswer> {
    let mut left = MAX_ERROR_BYTES;
    let room = |bytes| {
        left = left.saturating_sub(bytes);
        left > 0
    };
    Ok(match relay::whole(answer, provider, room).await? {
        Whole::Complete { head, body, .. } => {
            let text = relay::unpacked(&head.headers, &body);
            (Response::from_parts(head, whole(body)), text)
        }
        Whole::Overlong(answer) => (answer, None),
    })
}

/// What an error says; `None` where it is too long, broke off, or cannot be read.
pub async fn read_fault(answer: Response<Body>, provider: &str) -> Option<Fault> {
    let (_, text) = read(answer, provider).await.ok()?;
    Fault::read(&text?)
}

/// Whether an error's text, in any shape, names what we added.
fn names_usage(body: &Bytes) -> bool {
    match serde_json::from_slice::<Value>(body) {
        Ok(error) => speaks(&error),
        Err(_) => names(&String::from_utf8_lossy(body)),
    }
}

fn speaks(error: &Value) -> bool {
    match error {
        Value::String(text) => names(text),
        Value::Array(list) => list.iter().any(speaks),
        // Validators repeat here what they were sent.
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name != "input" && speaks(value)),
        _ => false,
    }
}

fn names(text: &str) -> bool {
    WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::names_usage;

    #[test]
    fn refusals_are_told_from_other_errors() {
        let check = |body: &'static str, refused: bool| {
            assert_eq!(
                names_usage(&Bytes::from_static(body.as_bytes())),
                refused,
                "{body}"
            );
        };
        check(
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"include_usage":true}}]}"#,
            true,
        );
        check(
            r#"{"error_code":"BAD_REQUEST","message":"json: unknown field \"stream_options\""}"#,
            true,
        );
        check(
            r#"{"error":{"message":"Unknown parameter","param":"stream_options.include_usage"}}"#,
            true,
        );
        check("Unrecognized request argument: include_usage", true);
        check(
            r#"{"detail":[{"loc":["body","messages"],"msg":"Field required","input":{"stream_options":{"include_usage":true},"x":["stream_options"]}}]}"#,
            false,
        );
        check(
            r#"{"error":{"message":"context_length_exceeded","param":"messages"}}"#,
            false,
        );
        check("", false);
    }
}
