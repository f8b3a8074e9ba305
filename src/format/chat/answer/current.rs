//! What is known of one answer while it comes.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    Answer,
    assemble::{Assembled, Deltas},
    calls::{Calls, Slots},
};
use crate::{
    format::{AnswerEvent, FinishKind, Sifting, Spoken, UsageReport, blocks::Blocks, usage::Usage},
    wire::event::Message,
};

/// What is known of the current answer.
pub(super) struct Current {
    /// Something may be taken out of it.
    sifts: bool,
    pub(super) calls: Calls,
    pub(super) blocks: Option<Blocks>,
    deltas: Deltas,
    pub(super) finish: Option<FinishKind>,
    usage: Option<Usage>,
    /// The provider reported an error.
    error: bool,
}

/// An event, or a whole answer, that was read.
pub struct TakenEvent {
    /// As it came, blank line included; empty for a whole answer.
    pub(super) raw: Bytes,
    pub(super) message: Message,
    pub(super) answer: Answer,
    /// The calls that its fragments belong to.
    pub(super) slots: Slots,
    /// Where its texts lie in the text of the answer.
    pub(super) places: SmallVec<[Range<usize>; 1]>,
}

impl TakenEvent {
    /// `raw`: its bytes as they came, blank line included.
    pub fn new(raw: Bytes, message: Message, answer: Answer) -> Self {
        Self {
            raw,
            message,
            answer,
            slots: Slots::new(),
            places: SmallVec::new(),
        }
    }

    /// Whether it says nothing but calls, so that text may overtake it.
    pub(super) fn only_calls(&self) -> bool {
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
    pub(super) fn overtakes(&self) -> bool {
        self.slots.is_empty() && self.answer.finish().is_none()
    }
}

impl Current {
    pub(super) fn new(sifting: Sifting) -> Self {
        Self {
            sifts: sifting.any(),
            calls: Calls::new(sifting.tools),
            blocks: sifting.package.then(Blocks::default),
            deltas: Deltas::default(),
            finish: None,
            usage: None,
            error: false,
        }
    }

    /// Takes what an event says.
    pub(super) fn take_event(&mut self, event: &mut TakenEvent) {
        let (json, answer) = (&event.message.data, &event.answer);
        self.report(answer);
        self.error |= answer.has_error();
        if !self.sifts || answer.first.is_none() {
            return;
        }
        event.slots = self.calls.take_parts(json, answer.calls());
        self.deltas.push(json, answer, &event.slots);
        if let Some(blocks) = &mut self.blocks {
            // No tag goes on behind a call or a thought, so that nothing has to wait for it.
            if event.interrupts_text() {
                blocks.give_up();
            }
            let texts = answer.texts();
            event.places = texts
                .map(|text| blocks.push(&json[text.span.range()]))
                .collect();
        }
        if let Some(finish) = answer.finish() {
            self.finish = Some(finish.kind);
            self.settle();
        }
    }

    pub(super) fn report(&mut self, answer: &Answer) {
        for event in &answer.events {
            if let AnswerEvent::Usage(UsageReport {
                usage: Some(usage), ..
            }) = event
            {
                self.usage = Some(Usage::later(self.usage, *usage));
            }
        }
    }

    /// Nothing more comes of what is still undecided.
    pub(super) fn settle(&mut self) {
        self.calls.settle();
        if let Some(blocks) = &mut self.blocks {
            blocks.give_up();
        }
    }

    pub(super) fn is_decided(&self, event: &TakenEvent) -> bool {
        let end = event.places.last().map_or(0, |place| place.end);
        let blocks = self.blocks.as_ref();
        !self.calls.is_open(&event.slots) && blocks.is_none_or(|blocks| blocks.is_decided(end))
    }

    /// Whether the answer, which is over, was for the proxy alone and is to be gone on with.
    pub(super) fn is_own(&self) -> bool {
        let (own, theirs) = self.calls.count();
        if self.error || theirs > 0 || self.finish == Some(FinishKind::CutOff) {
            return false;
        }
        let package = self.blocks.as_ref().and_then(|it| it.package(false));
        own > 0 || package.is_some_and(|package| package.alone)
    }

    pub(super) fn spoken(&self) -> Spoken {
        let (own, theirs) = self.calls.count();
        let package = self.blocks.as_ref();
        let package = package.and_then(|blocks| blocks.package(own + theirs > 0));
        let assembled = match own > 0 || package.is_some() {
            true => self.deltas.assemble(),
            false => Assembled::default(),
        };
        Spoken {
            message: assembled.message().into(),
            own: assembled.own(&self.calls),
            theirs,
            package,
            usage: self.usage,
        }
    }
}
