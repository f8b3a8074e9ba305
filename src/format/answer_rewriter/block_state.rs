//! The state of the current answer: who gets its blocks and texts.
//!
//! The name of a call decides who gets it. In a list, the event that begins the block has the name; in a message, the
//! name may come in fragments.
//!
//! An event with text is held while the end of the text may begin a continuation block. In a list, the event that begins
//! a text block is held too, until there is text for the client. If there is none, then the whole block is removed.
//!
//! An event that needs no edit is passed on as it came. Events keep their order, except those that may overtake
//! ([`BlockAnswer::may_overtake`]).

use std::{collections::VecDeque, ops::Range};

use smallvec::SmallVec;

use super::{
    BlockAnswer, BlockAssembler, BlockStep, JoinedResponse, NewBlock, ParsedEvent, WholeBlock,
    block_tracker::{BlockFate, BlockTracker, TrackedBlock},
    whole_blocks::CutTexts,
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerFilter, ContinuationBlock, FinishKind, ProxyToolCall,
        answer::{MAX_ARGUMENT_BYTES, continuation::ContinuationScanner, usage::Usage},
    },
    json::{scan::Span, text::decode_text},
};

/// What is known of the current answer.
pub struct BlockState<A: BlockAnswer> {
    has_filter: bool,
    /// `None` where continuation blocks stay in the text.
    scanner: Option<ContinuationScanner>,
    pub(super) finish: Option<FinishKind>,
    pub(super) usage: Option<Usage>,
    /// The provider reported an error.
    has_error: bool,
    pub(in crate::format) blocks: BlockTracker,
    /// Blocks that the client got of the answers before.
    pub(in crate::format) earlier_blocks: u64,
    pub(in crate::format) assembler: A::Assembler,
}

/// What is known of an event.
#[derive(Default)]
pub struct TrackedEvent {
    /// The block that the event is about.
    pub(in crate::format) slot: Option<usize>,
    /// For each call in an event of a message, its block.
    pub(in crate::format) calls: SmallVec<[Option<usize>; 2]>,
    pub(in crate::format) is_part: bool,
    pub(in crate::format) ends_block: bool,
    /// The ranges of the event's texts in the text of the answer, until it is decided who gets them.
    pub(in crate::format) text_ranges: SmallVec<[Range<usize>; 1]>,
    /// What the client gets of each text, once that is known. `None`: the whole text.
    pub(in crate::format) visible: SmallVec<[Option<Vec<u8>>; 1]>,
}

impl<A: BlockAnswer> ParsedEvent<A> {
    /// Whether the event is a piece of text of which the client gets nothing.
    fn is_hidden(&self) -> bool {
        let visible = &self.tracked.visible[..];
        self.tracked.is_part && matches!(visible, [Some(text)] if text.is_empty())
    }
}

impl<A: BlockAnswer> JoinedResponse<A> {
    /// Gives a block the index that it has for the client. `begins`: the client gets the block's beginning.
    pub(in crate::format) fn edit_index(
        &mut self,
        index: Option<(u64, Span)>,
        begins: bool,
        current: &BlockState<A>,
        edits: &mut Edits,
    ) {
        let Some((index, span)) = index else { return };
        let renumbered = current.blocks.renumber(index);
        let renumbered = renumbered.saturating_add(current.earlier_blocks);
        if begins {
            self.next_index = self.next_index.max(renumbered.saturating_add(1));
        }
        if renumbered != index {
            edits.replace(span, renumbered.to_string());
        }
    }
}

impl<A: BlockAnswer> BlockState<A> {
    pub(in crate::format) fn new(filter: AnswerFilter, earlier_blocks: u64) -> Self {
        Self {
            has_filter: filter.is_active(),
            scanner: filter.package.then(ContinuationScanner::default),
            finish: None,
            usage: None,
            has_error: false,
            blocks: BlockTracker::new(filter.tools),
            earlier_blocks,
            assembler: A::Assembler::default(),
        }
    }

    /// Takes usage, error and finish reason.
    pub(super) fn take_reports(&mut self, answer: &A) {
        self.has_error |= answer.has_error();
        for usage in answer.iter_reports().filter_map(|report| report.usage) {
            self.usage = Some(Usage::latest_report(self.usage, usage));
        }
        if let Some(finish) = answer.find_finish() {
            self.finish = Some(finish.kind);
        }
    }

    /// Treats a partial tag as text, since no more of the tag comes.
    pub(in crate::format) fn give_up_tag(&mut self) {
        if let Some(scanner) = &mut self.scanner {
            scanner.give_up();
        }
    }

    pub(super) fn build_block(&self, has_calls: bool) -> Option<ContinuationBlock> {
        self.scanner.as_ref()?.build_block(has_calls)
    }

    pub(in crate::format) fn take_event(&mut self, event: &mut ParsedEvent<A>) {
        self.take_reports(&event.answer);
        if !self.has_filter {
            return;
        }
        self.assembler.take_answer(&event.answer);
        event.tracked = A::track_blocks(event, self);
        if let Some(scanner) = &mut self.scanner
            && (!A::IS_LIST || event.tracked.slot.is_some())
        {
            let texts = event.answer.iter_texts();
            let texts = texts.map(|text| scanner.push(&event.message.data[text.span.range()]));
            event.tracked.text_ranges = texts.collect();
        }
    }

    /// Takes what an event says of one block.
    pub(super) fn track_step(&mut self, event: &ParsedEvent<A>) -> TrackedEvent {
        let (json, answer) = (&event.message.data, &event.answer);
        let Some((index, step)) = answer.block_step(json) else {
            return TrackedEvent::default();
        };
        let slot = match &step {
            BlockStep::Begin(block) => self.begin_block(index, block),
            _ => self.blocks.find_block(index),
        };
        let is_part = matches!(step, BlockStep::Part | BlockStep::ClientPart);
        if let Some(slot) = slot {
            if matches!(step, BlockStep::ClientPart) {
                self.blocks.set_fate(slot, BlockFate::Client);
            }
            self.assembler.take_event(slot, json, answer);
            if let (false, Some(scanner)) = (is_part, &mut self.scanner) {
                scanner.end_text();
            }
        }
        TrackedEvent {
            slot,
            is_part,
            ends_block: matches!(step, BlockStep::End),
            ..TrackedEvent::default()
        }
    }

    fn begin_block(&mut self, index: Option<u64>, block: &NewBlock<'_>) -> Option<usize> {
        let decides_texts = self.scanner.is_none();
        self.blocks.begin_block(index, block, decides_texts)
    }

    /// Takes a block of a whole answer. Returns its slot, and the texts of which the client does not get all.
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
        if let Some(scanner) = &mut self.scanner {
            for text in &block.texts {
                let raw = text.raw_bytes(json);
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

    /// Returns what the client gets of a text that repeats earlier pieces; `None` if it gets the whole text.
    pub(in crate::format) fn cut_repeated_text(&self, raw: &[u8]) -> Option<Vec<u8>> {
        self.scanner.as_ref()?;
        let mut scanner = ContinuationScanner::default();
        let range = scanner.push(raw);
        scanner.end_text();
        let visible = scanner.visible_part(raw, &range);
        (*visible != *raw).then(|| visible.into_owned())
    }

    /// Decides all calls and texts, since nothing more comes or can be waited for.
    pub(in crate::format) fn settle(&mut self, held: &mut VecDeque<ParsedEvent<A>>) {
        self.give_up_tag();
        self.decide_held(held);
        self.blocks.end_all();
    }

    /// Decides held events in their order, up to the first that stays undecided.
    pub(super) fn decide_held(&mut self, held: &mut VecDeque<ParsedEvent<A>>) {
        let _ = held.iter_mut().all(|held| self.decide_event(held));
        held.retain(|held| !held.is_hidden());
    }

    /// Finds what the client gets of an event, and of its block as far as the event decides it. Returns whether that is
    /// decided. The caller must ask for events in their order, until one is undecided.
    pub(in crate::format) fn decide_event(&mut self, event: &mut ParsedEvent<A>) -> bool {
        let tracked = &mut event.tracked;
        if let (Some(last), Some(scanner)) = (tracked.text_ranges.last(), &mut self.scanner) {
            if !scanner.is_decided(last.end) {
                return false;
            }
            for (text, range) in event.answer.iter_texts().zip(tracked.text_ranges.drain(..)) {
                let raw = &event.message.data[text.span.range()];
                let visible = scanner.visible_part(raw, &range);
                let is_cut = *visible != *raw;
                self.blocks.add_text(tracked.slot, &visible, is_cut);
                tracked.visible.push(is_cut.then(|| visible.into_owned()));
            }
        }
        if let (true, Some(slot)) = (tracked.ends_block, tracked.slot) {
            self.blocks.end_block(slot);
        }
        true
    }

    /// Whether it is known what the client gets of an event.
    pub(super) fn is_decided(&self, event: &ParsedEvent<A>) -> bool {
        let tracked = &event.tracked;
        let mut slots = tracked.calls.iter().chain([&tracked.slot]);
        tracked.text_ranges.is_empty()
            && slots.all(|slot| self.blocks.fate(*slot) != BlockFate::Undecided)
    }

    pub(super) fn is_removed(&self, event: &ParsedEvent<A>) -> bool {
        self.blocks.is_removed(event.tracked.slot) || event.is_hidden()
    }

    /// Whether the answer, which is over, was for the proxy only, so that another one follows.
    pub(in crate::format) fn is_for_proxy(&self) -> bool {
        let (proxy_calls, client_calls) = self.blocks.count_calls();
        let is_cut_off = self.finish.is_some_and(FinishKind::is_cut_off);
        let is_block_only = || self.build_block(false).is_some_and(|block| block.alone);
        !self.has_error && client_calls == 0 && !is_cut_off && (proxy_calls > 0 || is_block_only())
    }

    /// Whether the answer ends with calls, but none of them is left for the client.
    pub(super) fn has_lost_calls(&self) -> bool {
        let (proxy_calls, client_calls) = self.blocks.count_calls();
        self.finish == Some(FinishKind::Calls) && proxy_calls > 0 && client_calls == 0
    }

    /// Returns the answer as a request would carry it (empty if it was too long or is not JSON), and the calls of
    /// proxy-executed tools.
    pub(in crate::format) fn assemble(&self) -> (String, Vec<ProxyToolCall>) {
        let calls: Vec<_> = self.blocks.iter_calls().collect();
        let is_removed = |call: &&TrackedBlock| call.is_removed();
        let proxy: Vec<_> = calls.iter().copied().filter(is_removed).collect();
        let (message, assembled) = self.assembler.assemble(&proxy);
        let proxy = proxy.into_iter().zip(assembled);
        let proxy = proxy.map(|(call, assembled)| {
            let earlier = calls.iter().take_while(|it| it.slot < call.slot);
            let arguments = assembled.arguments;
            let arguments = arguments.filter(|text| text.len() <= MAX_ARGUMENT_BYTES);
            let decode = |raw| decode_text(raw).unwrap_or_default().into();
            ProxyToolCall {
                id: decode(&call.id),
                name: decode(&call.name),
                overlong: arguments.is_none(),
                arguments: arguments.unwrap_or_default().into(),
                before: earlier.filter(|it| !it.is_removed()).count() as u32,
                json: assembled.json.unwrap_or_default().into(),
                legacy: call.legacy,
            }
        });
        (message, proxy.collect())
    }
}
