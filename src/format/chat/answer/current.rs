//! What is known of one answer while it comes.

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
        AnswerEvent, AnswerFilter, AssistantTurn, FinishKind, UsageReport,
        continuation::ContinuationScanner, usage::Usage,
    },
    wire::sse::SseMessage,
};

/// What is known of the current answer.
pub(super) struct AnswerState {
    /// Something may be taken out of it.
    has_filter: bool,
    pub(super) calls: CallTracker,
    pub(super) blocks: Option<ContinuationScanner>,
    deltas: Deltas,
    pub(super) finish: Option<FinishKind>,
    usage: Option<Usage>,
    /// The provider reported an error.
    error: bool,
}

/// An event, or a whole answer, that was read.
pub struct ParsedEvent {
    /// As it came, blank line included; empty for a whole answer.
    pub(super) raw: Bytes,
    pub(super) message: SseMessage,
    pub(super) answer: ChatAnswer,
    /// The calls that its fragments belong to.
    pub(super) slots: CallSlots,
    /// Where its texts lie in the text of the answer.
    pub(super) places: SmallVec<[Range<usize>; 1]>,
}

impl ParsedEvent {
    /// `raw`: its bytes as they came, blank line included.
    pub fn new(raw: Bytes, message: SseMessage, answer: ChatAnswer) -> Self {
        Self {
            raw,
            message,
            answer,
            slots: CallSlots::new(),
            places: SmallVec::new(),
        }
    }

    /// Whether it says nothing but calls, so that text may overtake it.
    pub(super) fn has_only_calls(&self) -> bool {
        let mut events = self.answer.events.iter();
        events.all(|event| matches!(event, AnswerEvent::Call(_)))
    }

    /// Whether it calls or thinks, and says no text.
    fn interrupts_text(&self) -> bool {
        let has = |wanted: fn(&AnswerEvent) -> bool| self.answer.events.iter().any(wanted);
        has(|event| matches!(event, AnswerEvent::Call(_) | AnswerEvent::Reasoning(_)))
            && !has(|event| matches!(event, AnswerEvent::Text(_)))
    }

    /// Whether it says nothing that must keep its place among held calls.
    pub(super) fn can_overtake(&self) -> bool {
        self.slots.is_empty() && self.answer.find_finish().is_none()
    }
}

impl AnswerState {
    pub(super) fn new(sifting: AnswerFilter) -> Self {
        Self {
            has_filter: sifting.is_active(),
            calls: CallTracker::new(sifting.tools),
            blocks: sifting.package.then(ContinuationScanner::default),
            deltas: Deltas::default(),
            finish: None,
            usage: None,
            error: false,
        }
    }

    /// Takes what an event says.
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
            // No tag goes on behind a call or a thought, so that nothing has to wait for it.
            if event.interrupts_text() {
                blocks.give_up();
            }
            let texts = answer.iter_texts();
            event.places = texts
                .map(|text| blocks.push(&json[text.span.range()]))
                .collect();
        }
        if let Some(finish) = answer.find_finish() {
            self.finish = Some(finish.kind);
            self.settle_answer();
        }
    }

    pub(super) fn take_usage(&mut self, answer: &ChatAnswer) {
        for event in &answer.events {
            if let AnswerEvent::Usage(UsageReport {
                usage: Some(usage), ..
            }) = event
            {
                self.usage = Some(Usage::latest_report(self.usage, *usage));
            }
        }
    }

    /// Nothing more comes of what is still undecided.
    pub(super) fn settle_answer(&mut self) {
        self.calls.settle_calls();
        if let Some(blocks) = &mut self.blocks {
            blocks.give_up();
        }
    }

    pub(super) fn is_decided(&self, event: &ParsedEvent) -> bool {
        let end = event.places.last().map_or(0, |place| place.end);
        let blocks = self.blocks.as_ref();
        !self.calls.has_undecided(&event.slots)
            && blocks.is_none_or(|blocks| blocks.is_decided(end))
    }

    /// Whether the answer, which is over, was for the proxy alone and is to be gone on with.
    pub(super) fn is_for_proxy(&self) -> bool {
        let (own, theirs) = self.calls.count_by_executor();
        if self.error || theirs > 0 || self.finish == Some(FinishKind::CutOff) {
            return false;
        }
        let package = self.blocks.as_ref().and_then(|it| it.build_block(false));
        own > 0 || package.is_some_and(|package| package.alone)
    }

    pub(super) fn to_assistant_turn(&self) -> AssistantTurn {
        let (own, theirs) = self.calls.count_by_executor();
        let package = self.blocks.as_ref();
        let package = package.and_then(|blocks| blocks.build_block(own + theirs > 0));
        let assembled = match own > 0 || package.is_some() {
            true => self.deltas.assemble_message(),
            false => AssembledMessage::default(),
        };
        AssistantTurn {
            message: assembled.to_message_json().into(),
            proxy_calls: assembled.build_proxy_calls(&self.calls),
            client_calls: theirs,
            package,
            usage: self.usage,
        }
    }
}
