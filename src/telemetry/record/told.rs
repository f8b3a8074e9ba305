//! What a record says at its end: to the log, and to the trace.

use std::time::Duration;

use opentelemetry::{Array, Value};

use super::Record;
use crate::telemetry::{Operation, notes::Noted, trace::Finish};

impl Record {
    /// The line of the log.
    pub(super) fn log(&self, noted: &Noted, outcome: &'static str, took: Duration) {
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let session = noted.session.map(tracing::field::display);
        let answered = noted.answered.as_ref();
        let prompt_tokens = answered.and_then(|it| it.prompt_tokens);
        let completion_tokens = answered.and_then(|it| it.completion_tokens);
        let cached_tokens = answered.and_then(|it| it.cached_tokens);
        let hard_util = answered.and_then(|it| it.hard_util);
        let hard_util = hard_util.map(|share| (share * 1e3).round() / 1e3);
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    method = %self.method,
                    path = self.path,
                    status = self.status,
                    outcome,
                    client = self.client.as_deref(),
                    model = self.model.as_deref(),
                    provider = noted.provider.as_deref(),
                    attempts = noted.attempts,
                    session,
                    actions = noted.actions.as_deref(),
                    health = answered.map(|it| it.level.word()),
                    hard_util,
                    prompt_tokens,
                    completion_tokens,
                    cached_tokens,
                    budget_tokens = noted.budget,
                    bytes = self.bytes,
                    guard_ms = noted.guard.map(ms),
                    first_byte_ms = self.first_byte.map(ms),
                    duration_ms = ms(took),
                    trace_id = self.trace.id(),
                    "request answered"
                )
            };
        }
        if self.quiet {
            line!(tracing::Level::DEBUG);
        } else {
            line!(tracing::Level::INFO);
        }
    }

    /// The attributes of the request's span.
    pub(super) fn tell(&self, noted: &Noted, error: Option<&'static str>, span: &mut Finish<'_>) {
        // A model that was counted is one that is known: a client can make up any other.
        let model = self.model.as_ref().filter(|_| noted.series.is_some());
        span.name(match (self.operation, model) {
            (Some(operation), Some(model)) => format!("{} {model}", operation.word()),
            (Some(operation), None) => operation.word().to_owned(),
            (None, _) => format!("{} {}", self.method, self.route.unwrap_or_default()),
        });
        span.set("http.request.method", self.method.as_str().to_owned());
        span.set_some("http.route", self.route);
        span.set_some("http.response.status_code", self.status.map(i64::from));
        span.set_some("gen_ai.operation.name", self.operation.map(Operation::word));
        span.set_some("gen_ai.provider.name", noted.provider.clone());
        span.set_some("gen_ai.request.model", self.model.clone());
        let session = noted.session.map(|session| session.to_string());
        span.set_some("gen_ai.conversation.id", session);
        span.set_some("plimsoll.client", self.client.as_deref().map(str::to_owned));
        span.set_some("plimsoll.actions", noted.actions.clone());
        span.set_some("plimsoll.attempts", noted.attempts.map(i64::from));
        if let Some(answered) = &noted.answered {
            let count = |tokens: Option<u32>| tokens.map(i64::from);
            span.set_some("gen_ai.usage.input_tokens", count(answered.input_tokens()));
            span.set_some(
                "gen_ai.usage.output_tokens",
                count(answered.output_tokens()),
            );
            let cached = count(answered.cached_tokens);
            span.set_some("gen_ai.usage.cache_read.input_tokens", cached);
            let finish = answered.finish_reason;
            let finish = finish.map(|reason| Value::Array(Array::String(vec![reason.into()])));
            span.set_some("gen_ai.response.finish_reasons", finish);
            span.set("plimsoll.health", answered.level.word());
            span.set_some("plimsoll.hard_util", answered.hard_util);
        }
        if let (true, Some(first)) = (noted.streamed, self.first_byte) {
            span.set("gen_ai.response.time_to_first_chunk", first.as_secs_f64());
        }
        if let Some(error) = error {
            span.set("error.type", error);
            if ["broken", "provider_error"].contains(&error)
                || self.status.is_some_and(|status| status >= 500)
            {
                span.fails();
            }
        }
    }
}

/// A status as a word; those that no standard knows are one, since there are so many.
pub(super) fn status_word(status: u16) -> &'static str {
    const KNOWN: [(u16, &str); 17] = [
        (400, "400"),
        (401, "401"),
        (402, "402"),
        (403, "403"),
        (404, "404"),
        (405, "405"),
        (408, "408"),
        (409, "409"),
        (413, "413"),
        (415, "415"),
        (422, "422"),
        (429, "429"),
        (500, "500"),
        (502, "502"),
        (503, "503"),
        (504, "504"),
        (529, "529"),
    ];
    let found = KNOWN.iter().find(|(known, _)| *known == status);
    found.map_or("_OTHER", |(_, word)| word)
}
