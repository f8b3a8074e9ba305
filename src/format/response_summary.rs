//! What can be learnt from an answer on its way to the client.
//!
//! Keeps digests and numbers only, never text, and has no way to fail.

use super::{AnswerEvent, CallFragment, Finish, usage::Usage};
use crate::json::text::{TextDigester, digest_text};

/// Calls remembered of one answer; more make no difference to what follows.
const MAX_CALLS: usize = 1_024;

/// What was heard of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseSummary {
    /// The last report.
    pub usage: Option<Usage>,
    /// The digest of the first choice's text.
    pub text: u128,
    /// Digests of the first choice's call ids, in their order.
    pub call_ids: Vec<u128>,
    /// A finish reason came.
    pub finished: bool,
    /// The finish reason was `length`.
    pub cut_off: bool,
    /// The last finish reason, where it is one of the usual words.
    pub finish_reason: Option<&'static str>,
    /// The marker behind the last event came.
    pub done: bool,
    /// The provider reported an error inside the answer.
    pub error: bool,
    /// The answer could not be read (an unknown content encoding, or more than the bound).
    pub unreadable: bool,
}

impl ResponseSummary {
    /// Whether the answer came to its end.
    pub fn is_complete(&self) -> bool {
        (self.finished || self.done) && !self.error
    }
}

/// Sums up what the client gets of an answer.
#[derive(Default)]
pub struct ResponseSummarizer {
    summary: ResponseSummary,
    text: TextDigester,
    /// Index and digest of each call's id.
    calls: Vec<(u64, u128)>,
}

impl ResponseSummarizer {
    /// Takes all that a piece of an answer says.
    pub fn add_events(&mut self, json: &[u8], events: &[AnswerEvent]) {
        for event in events {
            match event {
                AnswerEvent::Text(text) => self.add_text(&json[text.span.range()]),
                AnswerEvent::Call(call) => self.add_call(json, call),
                AnswerEvent::Usage(report) => self.add_usage(report.usage),
                AnswerEvent::Finish(finish) => self.add_finish(json, *finish),
                AnswerEvent::Error => self.summary.error = true,
                AnswerEvent::End => self.summary.done = true,
                AnswerEvent::Reasoning(_) => {}
            }
        }
    }

    /// Takes what stands between the quotes of a text.
    pub fn add_text(&mut self, raw: &[u8]) {
        self.text.push(raw);
    }

    /// Takes a call, or a fragment of one: some providers give the id in every fragment, and some give every
    /// call index 0.
    fn add_call(&mut self, json: &[u8], call: &CallFragment) {
        let Some(id) = call.id else { return };
        if self.calls.len() >= MAX_CALLS {
            return;
        }
        let index = call.index.map(|(index, _)| index);
        let entry = (index.unwrap_or(0), digest_text(&json[id.span.range()]));
        if index.is_none() || !self.calls.contains(&entry) {
            self.calls.push(entry);
        }
    }

    pub fn add_usage(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.summary.usage = Some(Usage::latest_report(self.summary.usage, usage));
        }
    }

    fn add_finish(&mut self, json: &[u8], finish: Finish) {
        const WORDS: [&str; 5] = [
            "stop",
            "tool_calls",
            "length",
            "content_filter",
            "function_call",
        ];
        self.summary.finished = true;
        let reason = &json[finish.reason.span.range()];
        if let Some(word) = WORDS.into_iter().find(|word| word.as_bytes() == reason) {
            self.summary.finish_reason = Some(word);
            self.summary.cut_off |= word == "length";
        }
    }

    /// Another answer goes on with this one: what the last one costs is what counts.
    pub fn begin_answer(&mut self) {
        self.summary.usage = None;
    }

    /// Nothing more can be read.
    pub fn mark_unreadable(&mut self) {
        self.summary.unreadable = true;
    }

    /// The digest of the text so far.
    pub fn text_digest(&self) -> u128 {
        self.text.clone().finish()
    }

    /// All that was heard up to now.
    pub fn to_summary(&self) -> ResponseSummary {
        ResponseSummary {
            text: self.text_digest(),
            call_ids: self.calls.iter().map(|(_, id)| *id).collect(),
            ..self.summary.clone()
        }
    }
}
