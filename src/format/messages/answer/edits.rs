//! The edits that join several answers into one, and that remove from an event what is not for the
//! client.

use super::{
    EventKind, MessagesAnswer,
    current::{MessagesAnswerState, MessagesEvent},
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerEvent, AnswerEvents, ResponseSummarizer, UsageCountKind,
        answer_rewriter::JoinedResponse,
    },
};

impl JoinedResponse<MessagesAnswerState> {
    /// Edits an event for the client and reports to the summarizer what the client gets of it.
    /// Returns whether anything is left.
    pub(super) fn edit_event(
        &mut self,
        event: &MessagesEvent,
        current: &MessagesAnswerState,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) -> bool {
        let (json, answer) = (&event.message.data, &event.answer);
        if current.is_removed(event) || event.is_hidden() {
            return false;
        }
        let is_known = answer.kind != EventKind::Other || event.tracked.slot.is_some();
        if let Some((index, span)) = answer.index.filter(|_| is_known) {
            let renumbered = current.blocks.renumber(index);
            let renumbered = renumbered.saturating_add(current.earlier_blocks);
            if renumbered != index {
                edits.replace(span, renumbered.to_string());
            }
            if answer.kind == EventKind::BlockStart {
                self.sent.next_index = self.sent.next_index.max(renumbered.saturating_add(1));
            }
        }
        if let (Some(text), Some(visible)) = (answer.find_text(), &event.tracked.visible) {
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
        current: &MessagesAnswerState,
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
        let Some(report) = answer.iter_reports().next() else {
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
}
