//! The current answer of a format in which answers are lists of blocks, each with an index.
//!
//! A call is decided where its block begins, by its name. Events of a text are held only while a
//! continuation block may begin at its end, and where it begins, until there is text for the
//! client: a block without any goes as a whole. An event from which nothing is removed goes on as
//! it came, and in its order, but for pings while a text is hidden.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use super::{
    AnswerFacts, AnswerState, EventAction, FormatRewriter, JoinedResponse, ParsedEvent,
    block_tracker::{BlockFate, BlockTracker, TrackedKind},
    whole_blocks::CutTexts,
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerEvent, AnswerFilter, FinishKind, ProxyToolCall, ResponseSummarizer, UsageReport,
        answer::{AnswerEvents, MAX_ARGUMENT_BYTES},
        continuation::ContinuationScanner,
    },
    json::{
        scan::{JsonString, Span},
        text::decode_text,
    },
};

/// An event of a stream, or a whole answer, that is about blocks.
pub trait BlockAnswer: AnswerEvents + Sized {
    type Assembler: BlockAssembler<Self>;
    /// What the client has of all answers so far, beside the number of blocks.
    type Sent: Default;

    /// The finish reason of an answer without calls, in a format where that of calls says so.
    const END_REASON: Option<&'static str> = None;

    /// Reads a whole answer; `None` if it cannot be read.
    fn read_whole(json: &[u8]) -> Option<Self>;

    /// What the event says of a block.
    fn block_step<'a>(&self, json: &'a [u8]) -> BlockStep<'a>;

    /// Whether this is the last event of a stream.
    fn is_last(&self) -> bool;

    /// The id of a whole answer.
    fn id(&self) -> Option<JsonString>;

    /// The list of a whole answer, brackets included, and its blocks.
    fn whole_blocks<'a>(&self, json: &'a [u8]) -> Option<(Span, Vec<WholeBlock<'a>>)>;

    /// Edits an event for the client and reports to the summarizer what the client gets of it.
    /// Returns whether anything is left.
    fn edit_event(
        joined: &mut JoinedResponse<BlockState<Self>>,
        event: &BlockEvent<Self>,
        current: &BlockState<Self>,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) -> bool;

    /// Adds to the counts of a report.
    fn edit_usage(
        &self,
        _json: &[u8],
        report: &UsageReport,
        joined: &JoinedResponse<BlockState<Self>>,
        edits: &mut Edits,
    ) {
        joined.edit_usage(report, edits);
    }

    /// Edits finish reason and usage, and reports all but texts and calls of the proxy to the
    /// summarizer.
    fn edit_reports(
        &self,
        json: &[u8],
        joined: &JoinedResponse<BlockState<Self>>,
        current: &BlockState<Self>,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) {
        for part in self.events() {
            match part {
                AnswerEvent::Text(_) => {}
                AnswerEvent::Usage(report) => {
                    self.edit_usage(json, report, joined, edits);
                    summarizer.add_usage(report.usage.map(|usage| joined.add_completions(usage)));
                }
                part => {
                    if let (AnswerEvent::Finish(finish), Some(reason)) = (part, Self::END_REASON)
                        && current.has_lost_calls()
                    {
                        edits.replace(finish.reason.span, reason);
                    }
                    summarizer.add_events(json, std::slice::from_ref(part));
                }
            }
        }
    }

    /// Takes the last event of an answer that was for the proxy only. The client does not get it.
    fn keep_last_event(
        _joined: &mut JoinedResponse<BlockState<Self>>,
        _event: &BlockEvent<Self>,
        _current: &BlockState<Self>,
    ) {
    }
}

/// What an event says of a block, named by its index.
pub enum BlockStep<'a> {
    None,
    Begin(Option<u64>, NewBlock<'a>),
    Part(Option<u64>),
    /// A part that is for the client, whatever the texts of the block are.
    ClientPart(Option<u64>),
    /// No more text comes, of the block or of a part of it.
    TextEnd(Option<u64>),
    End(Option<u64>),
}

/// The beginning of a block.
pub enum NewBlock<'a> {
    Text,
    /// A call of a tool that has a name. Raw texts.
    Call {
        id: &'a [u8],
        name: &'a [u8],
    },
    /// A call that only the client can answer.
    ClientCall,
    Other,
}

/// A block of a whole answer.
pub struct WholeBlock<'a> {
    pub(in crate::format) span: Span,
    pub(in crate::format) new: NewBlock<'a>,
    pub(in crate::format) texts: Vec<JsonString>,
}

/// Puts the blocks of one answer together, by their slots.
pub trait BlockAssembler<A>: Default {
    /// Takes what an event, or a whole answer, says of the answer itself.
    fn take_answer(&mut self, _answer: &A) {}

    /// Takes an event about the block.
    fn take_event(&mut self, slot: usize, json: &[u8], answer: &A);

    /// Takes a block of a whole answer.
    fn take_block(&mut self, slot: usize, block: &[u8]);

    /// The answer as a request would carry it; empty if it was too long or is not JSON.
    fn to_message_json(&self) -> String;

    /// The arguments of a call, and the call as JSON.
    fn build_call(&self, slot: usize) -> (Option<String>, Option<String>);
}

/// What is known of the current answer.
pub struct BlockState<A: BlockAnswer> {
    pub(in crate::format) facts: AnswerFacts,
    pub(in crate::format) blocks: BlockTracker,
    /// Blocks that the client got of the answers before.
    pub(in crate::format) earlier_blocks: u64,
    pub(in crate::format) assembler: A::Assembler,
}

/// What is known of an event.
#[derive(Default)]
pub struct TrackedEvent {
    /// The block that it is about.
    pub(in crate::format) slot: Option<usize>,
    is_part: bool,
    ends_block: bool,
    /// Where its text lies in the text of the answer.
    text_range: Option<Range<usize>>,
    /// What the client gets of its text, once that is known, if it is not the whole text.
    pub(in crate::format) visible: Option<Vec<u8>>,
}

/// What the client has of the answers so far.
#[derive(Default)]
pub struct SentBlocks<T> {
    /// The index behind that of the newest block.
    next_index: u64,
    pub(in crate::format) more: T,
}

pub(in crate::format) type BlockEvent<A> = ParsedEvent<BlockState<A>>;

impl<A: BlockAnswer> BlockEvent<A> {
    /// The raw text that the client gets of it.
    pub(in crate::format) fn visible_text(&self) -> &[u8] {
        let visible = self.tracked.visible.as_deref();
        visible.unwrap_or_else(|| self.raw_text())
    }

    fn raw_text(&self) -> &[u8] {
        let text = self.answer.iter_texts().next();
        text.map_or(&b""[..], |text| &self.message.data[text.span.range()])
    }

    /// Whether nothing of a piece of text is for the client.
    pub(in crate::format) fn is_hidden(&self) -> bool {
        self.tracked.is_part && self.tracked.visible.as_ref().is_some_and(Vec::is_empty)
    }
}

impl<A: BlockAnswer> JoinedResponse<BlockState<A>> {
    /// The index of a block for the client. `begins`: the client gets the block's beginning.
    pub(in crate::format) fn renumber(
        &mut self,
        index: u64,
        begins: bool,
        current: &BlockState<A>,
    ) -> u64 {
        let renumbered = current.blocks.renumber(index);
        let renumbered = renumbered.saturating_add(current.earlier_blocks);
        if begins {
            self.sent.next_index = self.sent.next_index.max(renumbered.saturating_add(1));
        }
        renumbered
    }
}

impl<A: BlockAnswer> AnswerState for BlockState<A> {
    type Answer = A;
    type Tracked = TrackedEvent;
    type Sent = SentBlocks<A::Sent>;

    const TEXTS_ARE_APART: bool = true;

    fn new(filter: AnswerFilter, sent: &SentBlocks<A::Sent>) -> Self {
        Self {
            facts: AnswerFacts::new(filter),
            blocks: BlockTracker::new(filter.tools),
            earlier_blocks: sent.next_index,
            assembler: A::Assembler::default(),
        }
    }

    fn facts(&self) -> &AnswerFacts {
        &self.facts
    }

    fn count_calls(&self) -> (u32, u32) {
        self.blocks.count_calls()
    }

    fn assemble(&self) -> (String, Vec<ProxyToolCall>) {
        (self.assembler.to_message_json(), self.build_proxy_calls())
    }

    fn settle(&mut self, held: &mut VecDeque<BlockEvent<A>>) {
        self.facts.give_up_tag();
        self.decide_held(held);
        self.blocks.end_all();
    }

    fn decide_held(&mut self, held: &mut VecDeque<BlockEvent<A>>) {
        let _ = held.iter_mut().all(|held| self.decide_event(held));
        held.retain(|held| !held.is_hidden());
    }

    fn is_decided(&self, event: &BlockEvent<A>) -> bool {
        event.tracked.text_range.is_none()
            && self.blocks.fate(event.tracked.slot) != BlockFate::Undecided
    }

    fn edit_event(
        &mut self,
        joined: &mut JoinedResponse<Self>,
        event: &BlockEvent<A>,
        _closing: bool,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) -> bool {
        if self.is_removed(event) || event.is_hidden() {
            return false;
        }
        A::edit_event(joined, event, self, edits, summarizer)
    }
}

impl<A: BlockAnswer> BlockState<A> {
    pub(in crate::format) fn take_event(&mut self, event: &mut BlockEvent<A>) {
        let (json, answer) = (&event.message.data, &event.answer);
        self.facts.take_answer(answer);
        if !self.facts.has_filter {
            return;
        }
        self.assembler.take_answer(answer);
        let step = answer.block_step(json);
        let (mut is_part, mut ends_text, mut ends_block) = (false, false, false);
        let slot = match step {
            BlockStep::None => None,
            BlockStep::Begin(index, block) => {
                ends_text = true;
                self.begin_block(index, &block)
            }
            BlockStep::Part(index) => {
                is_part = true;
                self.blocks.find_block(index)
            }
            BlockStep::ClientPart(index) => {
                is_part = true;
                let slot = self.blocks.find_block(index);
                slot.inspect(|slot| self.blocks.keep_block(*slot))
            }
            BlockStep::TextEnd(index) => {
                ends_text = true;
                self.blocks.find_block(index)
            }
            BlockStep::End(index) => {
                (ends_text, ends_block) = (true, true);
                self.blocks.find_block(index)
            }
        };
        if let Some(slot) = slot {
            self.assembler.take_event(slot, json, answer);
        }
        let mut text_range = None;
        if let Some(scanner) = &mut self.facts.scanner
            && slot.is_some()
        {
            if ends_text {
                scanner.end_text();
            }
            let text = answer.iter_texts().next();
            text_range = text.map(|text| scanner.push(&json[text.span.range()]));
        }
        event.tracked = TrackedEvent {
            slot,
            is_part,
            ends_block,
            text_range,
            visible: None,
        };
        if self.facts.finish.is_some() || event.answer.is_last() {
            self.facts.give_up_tag();
        }
    }

    fn begin_block(&mut self, index: Option<u64>, block: &NewBlock<'_>) -> Option<usize> {
        let decides_texts = self.facts.scanner.is_none();
        self.blocks.begin_block(index, block, decides_texts)
    }

    /// Takes a block of a whole answer; its slot, and what the client gets of its texts where it
    /// is not all.
    pub(super) fn take_whole_block(
        &mut self,
        json: &[u8],
        block: &WholeBlock<'_>,
    ) -> (Option<usize>, CutTexts) {
        let Some(slot) = self.begin_block(None, &block.new) else {
            return (None, Vec::new());
        };
        self.assembler.take_block(slot, &json[block.span.range()]);
        let mut cut_texts = Vec::new();
        if let Some(scanner) = &mut self.facts.scanner {
            for text in &block.texts {
                let raw = &json[text.span.range()];
                let range = scanner.push(raw);
                scanner.end_text();
                let visible = scanner.visible_part(raw, &range);
                let is_cut = *visible != *raw;
                self.blocks.add_text(Some(slot), &visible, is_cut);
                if is_cut {
                    cut_texts.push((text.span, visible.into_owned()));
                }
            }
        }
        self.blocks.end_block(slot);
        (Some(slot), cut_texts)
    }

    /// What the client gets of a text that came before in pieces, if it is not the whole text.
    pub(in crate::format) fn cut_repeated_text(&self, raw: &[u8]) -> Option<Vec<u8>> {
        self.facts.scanner.as_ref()?;
        let mut scanner = ContinuationScanner::default();
        let range = scanner.push(raw);
        scanner.end_text();
        let visible = scanner.visible_part(raw, &range);
        (*visible != *raw).then(|| visible.into_owned())
    }

    /// Finds what the client gets of an event, and of its block as far as the event decides it.
    /// Events must be asked about in their order, until one is undecided.
    fn decide_event(&mut self, event: &mut BlockEvent<A>) -> bool {
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
        if let (true, Some(slot)) = (event.tracked.ends_block, event.tracked.slot) {
            self.blocks.end_block(slot);
        }
        true
    }

    fn is_removed(&self, event: &BlockEvent<A>) -> bool {
        self.blocks.fate(event.tracked.slot) == BlockFate::Removed
    }

    /// Whether the answer ends with calls, but none of them is left for the client.
    fn has_lost_calls(&self) -> bool {
        let (proxy_calls, client_calls) = self.blocks.count_calls();
        self.facts.finish == Some(FinishKind::Calls) && proxy_calls > 0 && client_calls == 0
    }

    fn build_proxy_calls(&self) -> Vec<ProxyToolCall> {
        let (mut calls, mut before) = (Vec::new(), 0);
        for (slot, block) in self.blocks.iter().enumerate() {
            match &block.kind {
                TrackedKind::ClientCall => before += 1,
                TrackedKind::ProxyCall { id, name } => {
                    let (arguments, json) = self.assembler.build_call(slot);
                    let arguments = arguments.filter(|text| text.len() <= MAX_ARGUMENT_BYTES);
                    calls.push(ProxyToolCall {
                        id: decode_text(id).unwrap_or_default().into(),
                        name: (*name).into(),
                        overlong: arguments.is_none(),
                        arguments: arguments.unwrap_or_default().into(),
                        before,
                        json: json.unwrap_or_default().into(),
                        legacy: false,
                    });
                }
                TrackedKind::Text | TrackedKind::Other => {}
            }
        }
        calls
    }
}

impl<A: BlockAnswer> FormatRewriter<BlockState<A>> {
    /// Takes the next event. Held events that are now decided go to `ready`, to be sent before it.
    pub fn take_event(
        &mut self,
        mut event: BlockEvent<A>,
        ready: &mut VecDeque<Bytes>,
        summarizer: &mut ResponseSummarizer,
    ) -> EventAction {
        if self.for_proxy {
            self.current.facts.take_answer(&event.answer);
            return EventAction::Drop;
        }
        self.current.take_event(&mut event);
        let is_end = event.answer.is_last();
        let is_finish = event.answer.find_finish().is_some();
        if is_end || is_finish || event.answer.has_error() {
            self.settle_answer(ready, summarizer);
            // Some providers give no reason why an answer ended.
            let is_over = is_finish || (is_end && self.current.facts.finish.is_none());
            self.for_proxy = is_over && self.current.is_for_proxy();
            if self.for_proxy {
                A::keep_last_event(&mut self.joined, &event, &self.current);
                return EventAction::Drop;
            }
        }
        // A client waits for pings while a long text is hidden from it.
        let keeps_order = event.tracked.slot.is_some() || !self.current.blocks.is_hiding_text();
        if !keeps_order {
            return self.rewrite_event(&event, summarizer);
        }
        if self.held.is_empty()
            && self.current.decide_event(&mut event)
            && self.current.is_decided(&event)
        {
            return self.rewrite_event(&event, summarizer);
        }
        self.held.push_back(event);
        self.release_held(ready, summarizer);
        if self.holds_too_much() {
            self.current.blocks.keep_all();
            self.settle_answer(ready, summarizer);
        }
        EventAction::Hold
    }
}
