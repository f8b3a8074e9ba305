//! Writes a record at its end: to the log, the metrics and the trace.

use std::{fmt::Display, sync::atomic::Ordering::Relaxed, time::Duration};

use super::RequestRecord;
use crate::telemetry::{
    IS_ON_TERMINAL, Operation,
    metrics::{InFlightRequest, ModelLabels, OTHER},
    notes::{GenerationFacts, RequestFacts},
    trace::OpenSpan,
};

/// How a request ended.
struct RequestEnd {
    /// One of the fixed words.
    outcome: &'static str,
    /// `None` for a success.
    error: Option<&'static str>,
    took: Duration,
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let facts = std::mem::take(&mut *self.notes.facts());
        let outcome = match self.outcome.unwrap_or("client_left") {
            "done" if facts.provider_failed => "provider_error",
            outcome => outcome,
        };
        let error = match (outcome, self.status) {
            ("done", Some(status @ 400..)) => Some(status_word(status)),
            ("done" | "upgraded", _) => None,
            _ => Some(outcome),
        };
        let end = RequestEnd {
            outcome,
            error,
            took: self.begun.elapsed(),
        };
        self.log_request(&facts, &end);
        if let Some(in_flight) = self.in_flight.take() {
            self.count_request(&in_flight, &facts, &end);
        }
        let trace = &self.notes.trace;
        trace.end_request(|span| self.set_attributes(&facts, error, span));
    }
}

impl RequestRecord {
    fn log_request(&self, facts: &RequestFacts, end: &RequestEnd) {
        match (IS_ON_TERMINAL.load(Relaxed), self.is_quiet) {
            (true, true) => tracing::debug!("{}", self.describe_briefly(facts, end)),
            (true, false) => tracing::info!("{}", self.describe_briefly(facts, end)),
            (false, _) => self.log_fields(facts, end),
        }
    }

    /// For people at a terminal: `200 gpt-4o 13 of 8,192 healthy none 6 ms`. Unknown parts are left out.
    fn describe_briefly(&self, facts: &RequestFacts, end: &RequestEnd) -> String {
        let status = self.status.map(|status| status.to_string());
        let name = self.model.as_deref().unwrap_or(&self.path);
        // SECURITY: a name is the client's text. A line break in it would make a second line of the log.
        let name = name
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c });
        let generation = facts.generation.as_ref();
        let tokens = generation.and_then(|generation| {
            let tokens = group_digits(generation.prompt_tokens?);
            Some(match generation.window {
                Some(window) => format!("{tokens} of {}", group_digits(window)),
                None => format!("{tokens} tokens"),
            })
        });
        let actions = facts.actions.as_deref().filter(|_| generation.is_some());
        let took = end.took.as_millis();
        [
            status,
            Some(name.collect()),
            tokens,
            generation.map(|generation| generation.level.as_str().to_owned()),
            actions.map(str::to_owned),
            end.error.map(str::to_owned),
            Some(format!("{took} ms")),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
    }

    fn log_fields(&self, facts: &RequestFacts, end: &RequestEnd) {
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let generation = facts.generation.as_ref();
        let hard_util = generation.and_then(|generation| generation.hard_util);
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    method = %self.method,
                    path = self.path,
                    status = self.status,
                    outcome = end.outcome,
                    client = self.client.as_deref(),
                    model = self.model.as_deref(),
                    provider = facts.provider.as_deref(),
                    attempts = facts.attempts,
                    session = facts.session.as_deref(),
                    actions = facts.actions.as_deref(),
                    health = generation.map(|generation| generation.level.as_str()),
                    hard_util = hard_util.map(|ratio| (ratio * 1e3).round() / 1e3),
                    prompt_tokens = generation.and_then(|generation| generation.prompt_tokens),
                    completion_tokens = generation.and_then(|generation| generation.completion_tokens),
                    cached_tokens = generation.and_then(|generation| generation.cached_tokens),
                    budget_tokens = facts.budget_tokens,
                    bytes = self.bytes,
                    guard_ms = facts.guard_took.map(ms),
                    first_byte_ms = self.first_byte.map(ms),
                    duration_ms = ms(end.took),
                    trace_id = self.notes.trace.trace_id(),
                    "request answered"
                )
            };
        }
        if self.is_quiet {
            line!(tracing::Level::DEBUG);
        } else {
            line!(tracing::Level::INFO);
        }
    }

    fn count_request(&self, in_flight: &InFlightRequest, facts: &RequestFacts, end: &RequestEnd) {
        let metrics = &in_flight.0;
        let class = match self.status {
            Some(200..=299) => "2xx",
            Some(300..=399) => "3xx",
            Some(400..=499) => "4xx",
            Some(500..=599) => "5xx",
            Some(_) => "other",
            None => "none",
        };
        let requests = metrics.requests.with_label_values(&[end.outcome, class]);
        requests.inc();
        if let Some(took) = facts.guard_took {
            metrics.guard_duration.observe(took.as_secs_f64());
        }
        if let Some(generation) = &facts.generation {
            let level = [generation.level.as_str()];
            metrics.answers.with_label_values(&level).inc();
            if let Some(hard_util) = generation.hard_util {
                metrics.hard_utilisation.observe(hard_util);
            }
        }
        let Some(ModelLabels(labels)) = &facts.model_labels else {
            return;
        };
        let [operation, provider, model] = labels.each_ref().map(|label| &**label);
        let labels = [operation, provider, model, end.error.unwrap_or_default()];
        let took = metrics.operation_duration.with_label_values(&labels);
        took.observe(end.took.as_secs_f64());
        let is_whole_stream = facts.is_stream && end.error.is_none();
        if let Some(first) = self.first_byte.filter(|_| is_whole_stream) {
            let first_chunk = metrics.first_chunk.with_label_values(&labels[..3]);
            first_chunk.observe(first.as_secs_f64());
        }
        let generation = facts.generation.as_ref();
        let (input, output) = generation
            .map(GenerationFacts::paid_tokens)
            .unwrap_or_default();
        for (kind, tokens) in [("input", input), ("output", output)] {
            if let Some(tokens) = tokens {
                // SECURITY: a name of the settings, never a text of the client's.
                let client = self.client.as_deref().unwrap_or(OTHER);
                let labels = [operation, provider, model, kind, client];
                let usage = metrics.token_usage.with_label_values(&labels);
                usage.observe(f64::from(tokens));
            }
        }
    }

    fn set_attributes(
        &self,
        facts: &RequestFacts,
        error: Option<&'static str>,
        span: &mut OpenSpan,
    ) {
        // A client can name any model, so only one with labels becomes part of the span's name.
        let model = self.model.as_ref().filter(|_| facts.model_labels.is_some());
        span.set_name(match (self.operation, model) {
            (Some(operation), Some(model)) => format!("{} {model}", operation.as_str()),
            (Some(operation), None) => operation.as_str().to_owned(),
            (None, _) => format!("{} {}", self.method, self.route.unwrap_or_default()),
        });
        span.set_attribute("http.request.method", self.method.as_str().to_owned());
        span.set_optional_attribute("http.route", self.route);
        span.set_optional_attribute("http.response.status_code", self.status.map(i64::from));
        let operation = self.operation.map(Operation::as_str);
        span.set_optional_attribute("gen_ai.operation.name", operation);
        span.set_optional_attribute("gen_ai.provider.name", facts.provider.clone());
        span.set_optional_attribute("gen_ai.request.model", self.model.clone());
        span.set_optional_attribute("gen_ai.conversation.id", facts.session.clone());
        span.set_optional_attribute("plimsoll.client", self.client.as_deref().map(str::to_owned));
        span.set_optional_attribute("plimsoll.actions", facts.actions.clone());
        span.set_optional_attribute("plimsoll.attempts", facts.attempts.map(i64::from));
        if let Some(generation) = &facts.generation {
            let count = |tokens: Option<u32>| tokens.map(i64::from);
            let (input, output) = generation.paid_tokens();
            span.set_optional_attribute("gen_ai.usage.input_tokens", count(input));
            span.set_optional_attribute("gen_ai.usage.output_tokens", count(output));
            let cached = count(generation.cached_tokens);
            span.set_optional_attribute("gen_ai.usage.cache_read.input_tokens", cached);
            let finish = generation.finish_reason;
            span.set_list("gen_ai.response.finish_reasons", finish);
            span.set_attribute("plimsoll.health", generation.level.as_str());
            span.set_optional_attribute("plimsoll.hard_util", generation.hard_util);
        }
        if let (true, Some(first)) = (facts.is_stream, self.first_byte) {
            span.set_attribute("gen_ai.response.time_to_first_chunk", first.as_secs_f64());
        }
        if let Some(error) = error {
            span.set_attribute("error.type", error);
            if matches!(error, "broken" | "provider_error") || self.status >= Some(500) {
                span.set_failed();
            }
        }
    }
}

/// A whole number with commas between groups of three digits.
pub fn group_digits(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A status as a label. Statuses that no standard knows share one, which bounds the number of series.
fn status_word(status: u16) -> &'static str {
    const KNOWN: [&str; 17] = [
        "400", "401", "402", "403", "404", "405", "408", "409", "413", "415", "422", "429", "500",
        "502", "503", "504", "529",
    ];
    let found = KNOWN.iter().find(|word| word.parse() == Ok(status));
    found.copied().unwrap_or("_OTHER")
}
