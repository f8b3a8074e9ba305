//! The state of one answer while it comes, and its events.

use std::{collections::VecDeque, ops::Range};

use smallvec::SmallVec;

use super::{
    ChatAnswer,
    assemble::Deltas,
    calls::{CallSlots, CallTracker},
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerEvent, AnswerEvents, AnswerFilter, ProxyToolCall, ResponseSummarizer,
        answer_rewriter::{AnswerFacts, AnswerState, JoinedResponse, ParsedEvent},
    },
};

/// What is known of the current answer.
pub struct ChatAnswerState {
    pub(super) facts: AnswerFacts,
    pub(super) calls: CallTracker,
    deltas: Deltas,
}

/// What is known of an event.
#[derive(Default)]
pub struct TrackedChunk {
    pub(super) slots: CallSlots,
    /// Where its texts lie in the text of the answer.
    pub(super) text_ranges: SmallVec<[Range<usize>; 1]>,
}

/// What the client has of the answers so far.
#[derive(Default)]
pub struct SentMessage {
    pub(super) role: bool,
}

pub(super) type ChatEvent = ParsedEvent<ChatAnswerState>;

impl ChatEvent {
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
        self.tracked.slots.is_empty() && self.answer.find_finish().is_none()
    }
}

impl AnswerState for ChatAnswerState {
    type Answer = ChatAnswer;
    type Tracked = TrackedChunk;
    type Sent = SentMessage;

    const TEXTS_ARE_APART: bool = false;

    fn new(filter: AnswerFilter, _sent: &SentMessage) -> Self {
        Self {
            facts: AnswerFacts::new(filter),
            calls: CallTracker::new(filter.tools),
            deltas: Deltas::default(),
        }
    }

    fn facts(&self) -> &AnswerFacts {
        &self.facts
    }

    fn count_calls(&self) -> (u32, u32) {
        self.calls.count_by_executor()
    }

    fn assemble(&self) -> (String, Vec<ProxyToolCall>) {
        let assembled = self.deltas.assemble_message();
        let proxy_calls = assembled.build_proxy_calls(&self.calls);
        (assembled.to_message_json(), proxy_calls)
    }

    fn settle(&mut self, _held: &mut VecDeque<ChatEvent>) {
        self.settle_calls();
    }

    fn is_decided(&self, event: &ChatEvent) -> bool {
        let end = event
            .tracked
            .text_ranges
            .last()
            .map_or(0, |range| range.end);
        let scanner = self.facts.scanner.as_ref();
        !self.calls.has_undecided(&event.tracked.slots)
            && scanner.is_none_or(|scanner| scanner.is_decided(end))
    }

    fn edit_event(
        &mut self,
        joined: &mut JoinedResponse<Self>,
        event: &ChatEvent,
        closing: bool,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) -> bool {
        joined.edit_event(event, self, closing, edits, summarizer)
    }
}

impl ChatAnswerState {
    pub(super) fn take_event(&mut self, event: &mut ChatEvent) {
        let (json, answer) = (&event.message.data, &event.answer);
        self.facts.take_answer(answer);
        if !self.facts.has_filter || answer.first.is_none() {
            return;
        }
        let slots = self.calls.take_fragments(json, answer.iter_calls());
        self.deltas.push(json, answer, &slots);
        event.tracked.slots = slots;
        if let Some(scanner) = &mut self.facts.scanner {
            // A tag does not continue after a call or reasoning, so nothing has to wait for it.
            if event.interrupts_text() {
                scanner.give_up();
            }
            let texts = event.answer.iter_texts();
            event.tracked.text_ranges = texts
                .map(|text| scanner.push(&json[text.span.range()]))
                .collect();
        }
        if answer.find_finish().is_some() {
            self.settle_calls();
        }
    }

    /// Decides what is undecided, since nothing more comes.
    pub(super) fn settle_calls(&mut self) {
        self.calls.settle_calls();
        self.facts.give_up_tag();
    }
}
