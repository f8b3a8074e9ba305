//! The state of one answer while it comes, and its events.

use std::ops::Range;

use bytes::Bytes;

use super::{
    EventKind, MessagesAnswer, ObjectSpans,
    assemble::BlockAssembler,
    blocks::{BlockFate, BlockTracker},
};
use crate::{
    format::{
        AnswerFilter, AssistantTurn, ContinuationBlock, FinishKind,
        continuation::ContinuationScanner, usage::Usage,
    },
    wire::sse::SseMessage,
};

/// What is known of the current answer.
pub(super) struct AnswerState {
    has_filter: bool,
    pub(super) blocks: BlockTracker,
    scanner: Option<ContinuationScanner>,
    assembler: BlockAssembler,
    pub(super) finish: Option<FinishKind>,
    usage: Option<Usage>,
    /// The provider reported an error.
    error: bool,
}

/// An event of a stream.
pub struct ParsedEvent {
    /// Its bytes as they came, blank line included.
    pub(super) raw: Bytes,
    pub(super) message: SseMessage,
    pub(super) answer: MessagesAnswer,
    /// The block that it is about.
    pub(super) slot: Option<usize>,
    /// Where its text lies in the text of the answer.
    text_range: Option<Range<usize>>,
    /// What the client gets of its text, once that is known, if it is not the whole text.
    pub(super) visible: Option<Vec<u8>>,
}

impl ParsedEvent {
    /// `raw`: the bytes as they came, blank line included.
    pub fn new(raw: Bytes, message: SseMessage, answer: MessagesAnswer) -> Self {
        Self {
            raw,
            message,
            answer,
            slot: None,
            text_range: None,
            visible: None,
        }
    }

    /// The raw text that the client gets of it.
    pub(super) fn visible_text(&self) -> &[u8] {
        let text = self.answer.find_text();
        let raw = text.map_or(&b""[..], |text| &self.message.data[text.span.range()]);
        self.visible.as_deref().unwrap_or(raw)
    }

    /// Whether nothing of a piece of text is for the client.
    pub(super) fn is_hidden(&self) -> bool {
        let is_piece = self.answer.kind == EventKind::BlockDelta;
        is_piece && self.visible.as_ref().is_some_and(Vec::is_empty)
    }
}

impl AnswerState {
    pub(super) fn new(filter: AnswerFilter) -> Self {
        Self {
            has_filter: filter.is_active(),
            blocks: BlockTracker::new(filter.tools),
            scanner: filter.package.then(ContinuationScanner::default),
            assembler: BlockAssembler::default(),
            finish: None,
            usage: None,
            error: false,
        }
    }

    pub(super) fn take_event(&mut self, event: &mut ParsedEvent) {
        let (json, answer) = (&event.message.data, &event.answer);
        self.take_facts(answer);
        if !self.has_filter {
            return;
        }
        match (answer.kind, &answer.part) {
            (EventKind::BlockStart, Some(block)) => {
                let index = answer.index.map(|(index, _)| index);
                event.slot = self.begin_block(json, block, index);
            }
            // Any other event with an index is about a block too.
            _ if answer.index.is_some() || answer.kind == EventKind::BlockDelta => {
                event.slot = self.blocks.find_block(answer.index.map(|(index, _)| index));
                if let (EventKind::BlockDelta, Some(slot)) = (answer.kind, event.slot) {
                    self.assembler.add_delta(slot, json, answer);
                }
            }
            _ => {}
        }
        if let Some(scanner) = &mut self.scanner
            && event.slot.is_some()
        {
            match answer.find_text() {
                Some(text) => event.text_range = Some(scanner.push(&json[text.span.range()])),
                // A tag does not continue in another block.
                None => scanner.give_up(),
            }
        }
        if self.finish.is_some() || answer.kind == EventKind::MessageStop {
            self.give_up_tag();
        }
    }

    pub(super) fn begin_block(
        &mut self,
        json: &[u8],
        block: &ObjectSpans,
        index: Option<u64>,
    ) -> Option<usize> {
        let decides_texts = self.scanner.is_none();
        let slot = self.blocks.begin_block(json, block, index, decides_texts)?;
        self.assembler.begin_block(slot, &json[block.span.range()]);
        Some(slot)
    }

    /// Takes usage, error and finish reason.
    pub(super) fn take_facts(&mut self, answer: &MessagesAnswer) {
        self.error |= answer.has_error();
        if let Some(usage) = answer.find_report().and_then(|report| report.usage) {
            self.usage = Some(Usage::latest_report(self.usage, usage));
        }
        if let Some(finish) = answer.find_finish() {
            self.finish = Some(finish.kind);
        }
    }

    /// Takes a half tag for text, since nothing more of it comes.
    pub(super) fn give_up_tag(&mut self) {
        if let Some(scanner) = &mut self.scanner {
            scanner.give_up();
        }
    }

    /// Finds what the client gets of an event, and of its block as far as the event decides it.
    /// Events must be asked about in their order, until one is undecided.
    pub(super) fn decide_event(&mut self, event: &mut ParsedEvent) -> bool {
        if let (Some(range), Some(scanner)) = (&event.text_range, &mut self.scanner) {
            if !scanner.is_decided(range.end) {
                return false;
            }
            let text = event.answer.find_text();
            let raw = text.map_or(&b""[..], |text| &event.message.data[text.span.range()]);
            let visible = scanner.visible_part(raw, range);
            let is_cut = *visible != *raw;
            self.blocks.add_text(event.slot, &visible, is_cut);
            event.visible = is_cut.then(|| visible.into_owned());
            event.text_range = None;
        }
        if let (EventKind::BlockStop, Some(slot)) = (event.answer.kind, event.slot) {
            self.blocks.end_block(slot);
        }
        true
    }

    /// What the client gets of a block's text in a whole answer, if it is not the whole text.
    pub(super) fn cut_whole_text(&mut self, slot: usize, raw: &[u8]) -> Option<Vec<u8>> {
        let scanner = self.scanner.as_mut()?;
        let range = scanner.push(raw);
        scanner.give_up();
        let visible = scanner.visible_part(raw, &range);
        let is_cut = *visible != *raw;
        self.blocks.add_text(Some(slot), &visible, is_cut);
        is_cut.then(|| visible.into_owned())
    }

    /// Whether it is known if the client gets an event that was decided.
    pub(super) fn is_released(&self, event: &ParsedEvent) -> bool {
        event.text_range.is_none() && self.blocks.fate(event.slot) != BlockFate::Undecided
    }

    pub(super) fn is_removed(&self, event: &ParsedEvent) -> bool {
        self.blocks.fate(event.slot) == BlockFate::Removed
    }

    fn build_block(&self, has_calls: bool) -> Option<ContinuationBlock> {
        self.scanner.as_ref()?.build_block(has_calls)
    }

    /// Whether the answer, which is over, was for the proxy only, so that another one follows.
    pub(super) fn is_for_proxy(&self) -> bool {
        let (proxy_calls, client_calls) = self.blocks.count_calls();
        let may_continue =
            !self.error && client_calls == 0 && !self.finish.is_some_and(FinishKind::is_cut_off);
        may_continue
            && (proxy_calls > 0 || self.build_block(false).is_some_and(|block| block.alone))
    }

    /// Whether the answer ends with calls, but none of them is left for the client.
    pub(super) fn has_lost_calls(&self) -> bool {
        let (proxy_calls, client_calls) = self.blocks.count_calls();
        self.finish == Some(FinishKind::Calls) && proxy_calls > 0 && client_calls == 0
    }

    pub(super) fn to_assistant_turn(&self) -> AssistantTurn {
        let (proxy_calls, client_calls) = self.blocks.count_calls();
        let package = self.build_block(proxy_calls + client_calls > 0);
        let message = match proxy_calls > 0 || package.is_some() {
            true => self.assembler.to_message_json(),
            false => String::new(),
        };
        AssistantTurn {
            message: message.into(),
            proxy_calls: self.assembler.build_proxy_calls(&self.blocks),
            client_calls,
            package,
            usage: self.usage,
        }
    }
}
