//! The edits that join several answers into one, and that remove from an event what is not for the
//! client.

use bytes::Bytes;

use super::{
    EventKind, MessagesAnswer,
    current::{AnswerState, ParsedEvent},
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerEvent, ResponseSummarizer, UsageCountKind, usage::Usage, visible_text::VisibleText,
    },
};

/// What one response to the client keeps over its answers.
pub(super) struct JoinedResponse {
    pub(super) visible: VisibleText,
    /// Tokens left out of the request of the current answer.
    pub(super) left_out: u32,
    /// The raw id of the first whole answer.
    pub(super) id: Option<Bytes>,
    /// This is not the first answer.
    continued: bool,
    /// Completion tokens of the answers before.
    earlier_completion_tokens: u32,
    /// Blocks that the client got of the answers before.
    earlier_blocks: u64,
    /// The index behind that of the newest block that the client got.
    next_index: u64,
    /// Blocks of earlier whole answers, each with a comma behind it.
    pub(super) earlier_content: Vec<u8>,
}

impl JoinedResponse {
    pub(super) fn new(left_out: Option<u32>) -> Self {
        Self {
            // Texts are blocks of their own.
            visible: VisibleText::without_separators(),
            left_out: left_out.unwrap_or(0),
            id: None,
            continued: false,
            earlier_completion_tokens: 0,
            earlier_blocks: 0,
            next_index: 0,
            earlier_content: Vec::new(),
        }
    }

    /// Begins the next answer. `usage` is that of the answer before.
    pub(super) fn begin_answer(
        &mut self,
        usage: Option<Usage>,
        summarizer: &mut ResponseSummarizer,
    ) {
        let tokens = usage.and_then(|usage| usage.completion_tokens);
        let sum = self.earlier_completion_tokens;
        self.earlier_completion_tokens = sum.saturating_add(tokens.unwrap_or(0));
        self.continued = true;
        self.earlier_blocks = self.next_index;
        self.visible.begin_answer(summarizer);
        summarizer.begin_answer();
    }

    /// Edits an event for the client and reports to the summarizer what the client gets of it.
    /// Returns whether anything is left.
    pub(super) fn edit_event(
        &mut self,
        event: &ParsedEvent,
        current: &AnswerState,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) -> bool {
        let (json, answer) = (&event.message.data, &event.answer);
        if current.is_removed(event) || event.is_hidden() {
            return false;
        }
        let is_known = answer.kind != EventKind::Other || event.slot.is_some();
        if let Some((index, span)) = answer.index.filter(|_| is_known) {
            let renumbered = current.blocks.renumber(index);
            let renumbered = renumbered.saturating_add(self.earlier_blocks);
            if renumbered != index {
                edits.replace(span, renumbered.to_string());
            }
            if answer.kind == EventKind::BlockStart {
                self.next_index = self.next_index.max(renumbered.saturating_add(1));
            }
        }
        if let (Some(text), Some(visible)) = (answer.find_text(), &event.visible) {
            edits.replace(text.span, visible.clone());
        }
        let text = event.visible_text().into();
        self.visible.push_text(text, summarizer);
        self.edit_reports(json, answer, current, edits, summarizer);
        // The client has the beginning of the first message.
        !(self.continued && answer.kind == EventKind::MessageStart)
    }

    /// Edits finish reason and usage, and reports all but texts and calls of the proxy to the
    /// summarizer.
    pub(super) fn edit_reports(
        &self,
        json: &[u8],
        answer: &MessagesAnswer,
        current: &AnswerState,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) {
        for part in &answer.events {
            match part {
                AnswerEvent::Text(_) => {}
                AnswerEvent::Usage(report) => {
                    self.add_usage(json, answer, edits);
                    summarizer.add_usage(report.usage.map(|usage| self.add_completions(usage)));
                }
                AnswerEvent::Finish(finish) if current.has_lost_calls() => {
                    edits.replace(finish.reason.span, "end_turn");
                    summarizer.add_events(json, std::slice::from_ref(part));
                }
                part => summarizer.add_events(json, std::slice::from_ref(part)),
            }
        }
    }

    /// Adds the tokens that were left out of the request and the completion tokens of earlier
    /// answers, which the client pays for too.
    pub(super) fn add_usage(&self, json: &[u8], answer: &MessagesAnswer, edits: &mut Edits) {
        let Some(report) = answer.find_report() else {
            return;
        };
        // Some providers report a prompt of 0 before they know the count.
        let is_known = |total: Option<u32>| total.is_some_and(|total| total > 0);
        let left_out = match is_known(answer.reported.prompt.total()) {
            true => self.left_out,
            false => 0,
        };
        for count in &report.counts {
            let more = match count.kind {
                UsageCountKind::Prompt => left_out,
                UsageCountKind::Completion => self.earlier_completion_tokens,
                UsageCountKind::Total => 0,
            };
            if more > 0 {
                let sum = u64::from(count.tokens) + u64::from(more);
                edits.replace(count.span, sum.to_string());
            }
        }
        if self.continued && answer.kind == EventKind::MessageDelta {
            let (at, members) = (report.span.start + 1, self.missing_prompt_counts(answer));
            let rest = json[at as usize..].trim_ascii_start();
            let comma = if rest.starts_with(b"}") { "" } else { "," };
            if !members.is_empty() {
                edits.insert(at, members.join(",") + comma);
            }
        }
    }

    /// The counts of the prompt that only the beginning of this answer had, as members: the client
    /// has those of the first answer.
    fn missing_prompt_counts(&self, answer: &MessagesAnswer) -> Vec<String> {
        let (known, reported) = (answer.counts.prompt, answer.reported.prompt);
        let is_known = known.total().is_some_and(|total| total > 0);
        let more = if is_known { self.left_out } else { 0 };
        let missing =
            |known: Option<u32>, reported: Option<u32>| known.filter(|_| reported.is_none());
        let input = missing(known.input, reported.input);
        let input = input.map(|tokens| tokens.saturating_add(more));
        let written = missing(known.cache_written, reported.cache_written);
        let cached = missing(known.cached, reported.cached);
        let members = [
            ("input_tokens", input),
            ("cache_creation_input_tokens", written),
            ("cache_read_input_tokens", cached),
        ];
        let write = |(name, tokens): (_, Option<u32>)| Some(format!("\"{name}\":{}", tokens?));
        members.into_iter().filter_map(write).collect()
    }

    fn add_completions(&self, usage: Usage) -> Usage {
        let add = |tokens: u32| tokens.saturating_add(self.earlier_completion_tokens);
        Usage {
            completion_tokens: usage.completion_tokens.map(add),
            ..usage
        }
    }
}
