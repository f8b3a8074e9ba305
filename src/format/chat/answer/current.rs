//! The state of one answer while it comes, and its events.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    ChatAnswer,
    assemble::{AssembledMessage, Deltas},
    calls::{CallSlots, CallTracker},
};
use crate::{
    format::{
        AnswerEvent, AnswerFilter, AssistantTurn, ContinuationBlock, FinishKind,
        continuation::ContinuationScanner, usage::Usage,
    },
    wire::sse::SseMessage,
};

/// What is known of the current answer.
pub(super) struct AnswerState {
    has_filter: bool,
    pub(super) calls: CallTracker,
    pub(super) blocks: Option<ContinuationScanner>,
    deltas: Deltas,
    pub(super) finish: Option<FinishKind>,
    usage: Option<Usage>,
    /// The provider reported an error.
    error: bool,
}

/// An event, or a whole answer.
pub struct ParsedEvent {
    /// Its bytes as they came, blank line included; empty for a whole answer.
    pub(super) raw: Bytes,
    pub(super) message: SseMessage,
    pub(super) answer: ChatAnswer,
    pub(super) slots: CallSlots,
    /// Where its texts lie in the text of the answer.
    pub(super) text_ranges: SmallVec<[Range<usize>; 1]>,
}

impl ParsedEvent {
    /// `raw`: the bytes as they came, blank line included.
    pub fn new(raw: Bytes, message: SseMessage, answer: ChatAnswer) -> Self {
        Self {
            raw,
            message,
            answer,
            slots: CallSlots::new(),
            text_ranges: SmallVec::new(),
        }
    }

    /// Whether text may overtake it.
    pub(super) fn has_only_calls(&self) -> bool {
        let mut events = self.answer.events.iter();
        events.all(|event| matches!(event, AnswerEvent::Call(_)))
    }

    /// Whether it has calls or reasoning, but no text.
    fn interrupts_text(&self) -> bool {
        let has = |wanted: fn(&AnswerEvent) -> bool| self.answer.events.iter().any(wanted);
        has(|event| matches!(event, AnswerEvent::Call(_) | AnswerEvent::Reasoning(_)))
            && !has(|event| matches!(event, AnswerEvent::Text(_)))
    }

    /// Whether it may go out before held calls.
    pub(super) fn can_overtake(&self) -> bool {
        self.slots.is_empty() && self.answer.find_finish().is_none()
    }
}

impl AnswerState {
    pub(super) fn new(filter: AnswerFilter) -> Self {
        Self {
            has_filter: filter.is_active(),
            calls: CallTracker::new(filter.tools),
            blocks: filter.package.then(ContinuationScanner::default),
            deltas: Deltas::default(),
            finish: None,
            usage: None,
            error: false,
        }
    }

    pub(super) fn take_event(&mut self, event: &mut ParsedEvent) {
        let (json, answer) = (&event.message.data, &event.answer);
        self.take_usage(answer);
        self.error |= answer.has_error();
        if !self.has_filter || answer.first.is_none() {
            return;
        }
        event.slots = self.calls.take_fragments(json, answer.iter_calls());
        self.deltas.push(json, answer, &event.slots);
        if let Some(blocks) = &mut self.blocks {
            // A tag does not continue after a call or reasoning, so nothing has to wait for it.
            if event.interrupts_text() {
                blocks.give_up();
            }
            let texts = answer.iter_texts();
            event.text_ranges = texts
                .map(|text| blocks.push(&json[text.span.range()]))
                .collect();
        }
        if let Some(finish) = answer.find_finish() {
            self.finish = Some(finish.kind);
            self.settle_answer();
        }
    }

    pub(super) fn take_usage(&mut self, answer: &ChatAnswer) {
        for usage in answer.iter_reports().filter_map(|report| report.usage) {
            self.usage = Some(Usage::latest_report(self.usage, usage));
        }
    }

    /// Decides what is undecided, since nothing more comes.
    pub(super) fn settle_answer(&mut self) {
        self.calls.settle_calls();
        if let Some(blocks) = &mut self.blocks {
            blocks.give_up();
        }
    }

    pub(super) fn is_decided(&self, event: &ParsedEvent) -> bool {
        let end = event.text_ranges.last().map_or(0, |range| range.end);
        let blocks = self.blocks.as_ref();
        !self.calls.has_undecided(&event.slots)
            && blocks.is_none_or(|blocks| blocks.is_decided(end))
    }

    fn build_block(&self, has_calls: bool) -> Option<ContinuationBlock> {
        self.blocks.as_ref()?.build_block(has_calls)
    }

    /// Whether the answer, which is over, was for the proxy only, so that another one follows.
    pub(super) fn is_for_proxy(&self) -> bool {
        let (proxy_calls, client_calls) = self.calls.count_by_executor();
        let may_continue =
            !self.error && client_calls == 0 && !self.finish.is_some_and(FinishKind::is_cut_off);
        may_continue
            && (proxy_calls > 0 || self.build_block(false).is_some_and(|block| block.alone))
    }

    pub(super) fn to_assistant_turn(&self) -> AssistantTurn {
        let (proxy_calls, client_calls) = self.calls.count_by_executor();
        let package = self.build_block(proxy_calls + client_calls > 0);
        let assembled = match proxy_calls > 0 || package.is_some() {
            true => self.deltas.assemble_message(),
            false => AssembledMessage::default(),
        };
        AssistantTurn {
            message: assembled.to_message_json().into(),
            proxy_calls: assembled.build_proxy_calls(&self.calls),
            client_calls,
            package,
            usage: self.usage,
        }
    }
}
