//! Summarises an answer on its way to the client for health and session.
//!
//! It keeps digests and numbers, never text, and cannot fail.

use xxhash_rust::xxh3::xxh3_128;

use crate::{
    conversation::CallDigester,
    format::{
        AnswerEvent, CallFragment, Finish, FinishKind,
        answer::{input_changes::InputChanges, usage::Usage},
    },
    json::text::{TextDigester, digest_text},
};

/// Calls kept of one answer; any further call is ignored.
const MAX_CALLS: usize = 1_024;

/// What one answer contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseSummary {
    /// The digest of the answer's id ([`digest_id`]), if clients may continue from it.
    pub id: Option<u128>,
    pub usage: Option<Usage>,
    /// The digest of the first choice's text.
    pub text: u128,
    /// Digests of the first choice's call ids, in their order.
    pub call_ids: Vec<u128>,
    /// The digest of the first choice's calls with their names and arguments; 0 without calls.
    pub calls_digest: u32,
    pub input_changes: InputChanges,
    /// Tokens that the provider cleared before it counted.
    pub cleared_tokens: u32,
    /// There was a finish reason.
    pub finished: bool,
    /// The answer reached its cap.
    pub cut_off: bool,
    /// Prompt and answer filled the window.
    pub window_exceeded: bool,
    /// The last finish reason, if it is one that OpenAI or Anthropic defines.
    pub finish_reason: Option<&'static str>,
    /// The stream's end marker came.
    pub done: bool,
    /// The provider reported an error inside the answer.
    pub error: bool,
    /// The answer could not be read (unknown content encoding, or too large).
    pub unreadable: bool,
}

impl ResponseSummary {
    /// Whether the answer came to its end.
    pub fn is_complete(&self) -> bool {
        (self.finished || self.done) && !self.error
    }
}

/// The digest of an answer's id.
pub fn digest_id(id: &[u8]) -> u128 {
    xxh3_128(id)
}

/// Builds the summary of what the client gets.
#[derive(Default)]
pub struct ResponseSummarizer {
    summary: ResponseSummary,
    text: TextDigester,
    /// Index and digest of each call's id.
    calls: Vec<(u64, u128)>,
    whole_calls: CallDigester,
}

impl ResponseSummarizer {
    pub fn add_events(&mut self, json: &[u8], events: &[AnswerEvent]) {
        for event in events {
            match event {
                AnswerEvent::Id(id) => {
                    // If the response joins several answers, the client knows only the id of the first.
                    let known = &mut self.summary.id;
                    known.get_or_insert_with(|| digest_id(id.raw_bytes(json)));
                }
                AnswerEvent::Text(text) => self.add_text(text.raw_bytes(json)),
                AnswerEvent::Call(call) => self.add_call(json, call),
                AnswerEvent::InputChanges(changes) => self.summary.input_changes = changes.clone(),
                AnswerEvent::Cleared(tokens) => self.summary.cleared_tokens = *tokens,
                AnswerEvent::Usage(report) => self.add_usage(report.usage),
                AnswerEvent::Finish(finish) => self.add_finish(json, *finish),
                AnswerEvent::Error => self.summary.error = true,
                AnswerEvent::End => self.summary.done = true,
                AnswerEvent::Reasoning(_) => {}
            }
        }
    }

    /// Adds the raw content of a JSON string.
    pub fn add_text(&mut self, raw: &[u8]) {
        self.text.push(raw);
    }

    /// Adds a call once. Some providers repeat the id in every fragment, some give every call index 0.
    fn add_call(&mut self, json: &[u8], call: &CallFragment) {
        let index = call.index.map(|(index, _)| index);
        if let Some(id) = call.id
            && self.calls.len() < MAX_CALLS
        {
            let entry = (index.unwrap_or(0), digest_text(id.raw_bytes(json)));
            if index.is_none() || !self.calls.contains(&entry) {
                self.calls.push(entry);
                if let Some(name) = call.name {
                    self.whole_calls.push_name(name.raw_bytes(json));
                }
            }
        }
        // A call of a tool that the provider runs has arguments but no id here, so it is not listed.
        let is_listed = |known: &(u64, u128)| known.0 == index.unwrap_or(0);
        if let Some((span, kind)) = call.arguments
            && self.calls.iter().any(is_listed)
        {
            self.whole_calls.push_arguments(json, span, kind);
        }
    }

    pub fn add_usage(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.summary.usage = Some(Usage::latest_report(self.summary.usage, usage));
        }
    }

    fn add_finish(&mut self, json: &[u8], finish: Finish) {
        self.summary.finished = true;
        self.summary.window_exceeded |= finish.kind == FinishKind::WindowExceeded;
        let reason = match &json[finish.reason.span.range()] {
            b"stop" => "stop",
            b"tool_calls" => "tool_calls",
            b"length" => "length",
            b"content_filter" => "content_filter",
            b"function_call" => "function_call",
            b"end_turn" => "end_turn",
            b"max_tokens" => "max_tokens",
            b"stop_sequence" => "stop_sequence",
            b"tool_use" => "tool_use",
            b"pause_turn" => "pause_turn",
            b"refusal" => "refusal",
            b"model_context_window_exceeded" => "model_context_window_exceeded",
            b"completed" => "completed",
            b"max_output_tokens" => "max_output_tokens",
            _ => return,
        };
        self.summary.finish_reason = Some(reason);
        self.summary.cut_off |= matches!(reason, "length" | "max_tokens" | "max_output_tokens");
    }

    /// Begins another answer of the same response; usage and changes of the input are those of the last one.
    pub fn begin_answer(&mut self) {
        self.summary.usage = None;
        self.summary.input_changes = InputChanges::default();
        self.summary.cleared_tokens = 0;
    }

    pub fn mark_unreadable(&mut self) {
        self.summary.unreadable = true;
    }

    /// The digest of the text so far.
    pub fn text_digest(&self) -> u128 {
        self.text.clone().finish()
    }

    pub fn to_summary(&self) -> ResponseSummary {
        ResponseSummary {
            text: self.text_digest(),
            calls_digest: self.whole_calls.finish(),
            call_ids: self.calls.iter().map(|(_, id)| *id).collect(),
            ..self.summary.clone()
        }
    }
}
