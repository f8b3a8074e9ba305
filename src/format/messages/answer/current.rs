//! The state of one answer while it comes, and its events.

use std::{collections::VecDeque, ops::Range};

use super::{
    EventKind, MessagesAnswer, ObjectSpans,
    assemble::BlockAssembler,
    blocks::{BlockFate, BlockTracker},
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerFilter, FinishKind, ProxyToolCall, ResponseSummarizer,
        answer_rewriter::{AnswerFacts, AnswerState, JoinedResponse, ParsedEvent},
    },
};

/// What is known of the current answer.
pub struct MessagesAnswerState {
    pub(super) facts: AnswerFacts,
    pub(super) blocks: BlockTracker,
    /// Blocks that the client got of the answers before.
    pub(super) earlier_blocks: u64,
    assembler: BlockAssembler,
}

/// What is known of an event.
#[derive(Default)]
pub struct TrackedEvent {
    /// The block that it is about.
    pub(super) slot: Option<usize>,
    /// Where its text lies in the text of the answer.
    text_range: Option<Range<usize>>,
    /// What the client gets of its text, once that is known, if it is not the whole text.
    pub(super) visible: Option<Vec<u8>>,
}

/// What the client has of the answers so far.
#[derive(Default)]
pub struct SentBlocks {
    /// The index behind that of the newest block.
    pub(super) next_index: u64,
}

pub(super) type MessagesEvent = ParsedEvent<MessagesAnswerState>;

impl MessagesEvent {
    /// The raw text that the client gets of it.
    pub(super) fn visible_text(&self) -> &[u8] {
        let visible = self.tracked.visible.as_deref();
        visible.unwrap_or_else(|| self.raw_text())
    }

    fn raw_text(&self) -> &[u8] {
        let text = self.answer.find_text();
        text.map_or(&b""[..], |text| &self.message.data[text.span.range()])
    }

    /// Whether nothing of a piece of text is for the client.
    pub(super) fn is_hidden(&self) -> bool {
        let is_piece = self.answer.kind == EventKind::BlockDelta;
        is_piece && self.tracked.visible.as_ref().is_some_and(Vec::is_empty)
    }
}

impl AnswerState for MessagesAnswerState {
    type Answer = MessagesAnswer;
    type Tracked = TrackedEvent;
    type Sent = SentBlocks;

    const TEXTS_ARE_APART: bool = true;

    fn new(filter: AnswerFilter, sent: &SentBlocks) -> Self {
        Self {
            facts: AnswerFacts::new(filter),
            blocks: BlockTracker::new(filter.tools),
            earlier_blocks: sent.next_index,
            assembler: BlockAssembler::default(),
        }
    }

    fn facts(&self) -> &AnswerFacts {
        &self.facts
    }

    fn count_calls(&self) -> (u32, u32) {
        self.blocks.count_calls()
    }

    fn assemble(&self) -> (String, Vec<ProxyToolCall>) {
        let proxy_calls = self.assembler.build_proxy_calls(&self.blocks);
        (self.assembler.to_message_json(), proxy_calls)
    }

    fn settle(&mut self, held: &mut VecDeque<MessagesEvent>) {
        self.facts.give_up_tag();
        self.decide_held(held);
        self.blocks.end_all();
    }

    fn decide_held(&mut self, held: &mut VecDeque<MessagesEvent>) {
        let _ = held.iter_mut().all(|held| self.decide_event(held));
        held.retain(|held| !held.is_hidden());
    }

    fn is_decided(&self, event: &MessagesEvent) -> bool {
        event.tracked.text_range.is_none()
            && self.blocks.fate(event.tracked.slot) != BlockFate::Undecided
    }

    fn edit_event(
        &mut self,
        joined: &mut JoinedResponse<Self>,
        event: &MessagesEvent,
        _closing: bool,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) -> bool {
        joined.edit_event(event, self, edits, summarizer)
    }
}

impl MessagesAnswerState {
    pub(super) fn take_event(&mut self, event: &mut MessagesEvent) {
        let (json, answer) = (&event.message.data, &event.answer);
        self.facts.take_answer(answer);
        if !self.facts.has_filter {
            return;
        }
        match (answer.kind, &answer.part) {
            (EventKind::BlockStart, Some(block)) => {
                let index = answer.index.map(|(index, _)| index);
                event.tracked.slot = self.begin_block(json, block, index);
            }
            // Any other event with an index is about a block too.
            _ if answer.index.is_some() || answer.kind == EventKind::BlockDelta => {
                event.tracked.slot = self.blocks.find_block(answer.index.map(|(index, _)| index));
                if let (EventKind::BlockDelta, Some(slot)) = (answer.kind, event.tracked.slot) {
                    self.assembler.add_delta(slot, json, answer);
                }
            }
            _ => {}
        }
        if let Some(scanner) = &mut self.facts.scanner
            && event.tracked.slot.is_some()
        {
            match answer.find_text() {
                Some(text) => {
                    event.tracked.text_range = Some(scanner.push(&json[text.span.range()]))
                }
                // A tag does not continue in another block.
                None => scanner.give_up(),
            }
        }
        if self.facts.finish.is_some() || answer.kind == EventKind::MessageStop {
            self.facts.give_up_tag();
        }
    }

    pub(super) fn begin_block(
        &mut self,
        json: &[u8],
        block: &ObjectSpans,
        index: Option<u64>,
    ) -> Option<usize> {
        let decides_texts = self.facts.scanner.is_none();
        let slot = self.blocks.begin_block(json, block, index, decides_texts)?;
        self.assembler.begin_block(slot, &json[block.span.range()]);
        Some(slot)
    }

    /// Finds what the client gets of an event, and of its block as far as the event decides it.
    /// Events must be asked about in their order, until one is undecided.
    pub(super) fn decide_event(&mut self, event: &mut MessagesEvent) -> bool {
        if let (Some(range), Some(scanner)) = (&event.tracked.text_range, &mut self.facts.scanner) {
            if !scanner.is_decided(range.end) {
                return false;
            }
            let raw = event.raw_text();
            let visible = scanner.visible_part(raw, range);
            let is_cut = *visible != *raw;
            self.blocks.add_text(event.tracked.slot, &visible, is_cut);
            event.tracked.visible = is_cut.then(|| visible.into_owned());
            event.tracked.text_range = None;
        }
        if let (EventKind::BlockStop, Some(slot)) = (event.answer.kind, event.tracked.slot) {
            self.blocks.end_block(slot);
        }
        true
    }

    /// What the client gets of a block's text in a whole answer, if it is not the whole text.
    pub(super) fn cut_whole_text(&mut self, slot: usize, raw: &[u8]) -> Option<Vec<u8>> {
        let scanner = self.facts.scanner.as_mut()?;
        let range = scanner.push(raw);
        scanner.give_up();
        let visible = scanner.visible_part(raw, &range);
        let is_cut = *visible != *raw;
        self.blocks.add_text(Some(slot), &visible, is_cut);
        is_cut.then(|| visible.into_owned())
    }

    pub(super) fn is_removed(&self, event: &MessagesEvent) -> bool {
        self.blocks.fate(event.tracked.slot) == BlockFate::Removed
    }

    /// Whether the answer ends with calls, but none of them is left for the client.
    pub(super) fn has_lost_calls(&self) -> bool {
        let (proxy_calls, client_calls) = self.blocks.count_calls();
        self.facts.finish == Some(FinishKind::Calls) && proxy_calls > 0 && client_calls == 0
    }
}
