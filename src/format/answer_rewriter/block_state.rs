//! The current answer of a format: whose its blocks and texts are.
//!
//! In a list, a call is decided where its block begins, by its name; in a message, as soon as its
//! name is whole. Events of a text are held only while a continuation block may begin at its end,
//! and in a list where it begins, until there is text for the client: a block without any goes as a
//! whole. An event from which nothing is removed goes on as it came, and in its order, but for those
//! that may overtake ([`BlockAnswer::may_overtake`]).

use std::{collections::VecDeque, ops::Range};

use smallvec::SmallVec;

use super::{
    AnswerFacts, BlockAnswer, BlockAssembler, BlockStep, JoinedResponse, NewBlock, ParsedEvent,
    WholeBlock,
    block_tracker::{BlockFate, BlockTracker, TrackedBlock},
    whole_blocks::CutTexts,
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerFilter, FinishKind, ProxyToolCall,
        answer::{MAX_ARGUMENT_BYTES, continuation::ContinuationScanner},
    },
    json::{
        scan::{JsonString, Span},
        text::decode_text,
    },
};

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
    /// For each call in an event of a message, its block.
    pub(in crate::format) calls: SmallVec<[Option<usize>; 2]>,
    pub(in crate::format) is_part: bool,
    pub(in crate::format) ends_block: bool,
    /// Where its texts lie in the text of the answer, until they are decided.
    pub(in crate::format) text_ranges: SmallVec<[Range<usize>; 1]>,
    /// What the client gets of each text, once that is known, where it is not the whole text.
    pub(in crate::format) visible: SmallVec<[Option<Vec<u8>>; 1]>,
}

/// What the client has of the answers so far.
#[derive(Default)]
pub(in crate::format) struct SentBlocks<T> {
    /// The index behind that of the newest block.
    next_index: u64,
    pub(in crate::format) more: T,
}

impl<A: BlockAnswer> ParsedEvent<A> {
    /// The texts, each with what the client gets of it.
    pub(super) fn visible_texts(&self) -> impl Iterator<Item = (JsonString, &[u8])> {
        let texts = self.answer.iter_texts().enumerate();
        texts.map(|(at, text)| {
            let visible = self.tracked.visible.get(at).and_then(Option::as_deref);
            let visible = visible.unwrap_or_else(|| &self.message.data[text.span.range()]);
            (text, visible)
        })
    }

    /// Whether nothing of a piece of text is for the client.
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
            self.sent.next_index = self.sent.next_index.max(renumbered.saturating_add(1));
        }
        if renumbered != index {
            edits.replace(span, renumbered.to_string());
        }
    }
}

impl<A: BlockAnswer> BlockState<A> {
    pub(in crate::format) fn new(filter: AnswerFilter, sent: &SentBlocks<A::Sent>) -> Self {
        Self {
            facts: AnswerFacts::new(filter),
            blocks: BlockTracker::new(filter.tools),
            earlier_blocks: sent.next_index,
            assembler: A::Assembler::default(),
        }
    }

    pub(in crate::format) fn take_event(&mut self, event: &mut ParsedEvent<A>) {
        self.facts.take_answer(&event.answer);
        if !self.facts.has_filter {
            return;
        }
        self.assembler.take_answer(&event.answer);
        event.tracked = A::track_blocks(event, self);
        if let Some(scanner) = &mut self.facts.scanner
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
        let (mut is_part, mut ends_text, mut ends_block) = (false, false, false);
        let slot = match answer.block_step(json) {
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
                slot.inspect(|slot| self.blocks.set_fate(*slot, BlockFate::Client))
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
            if let (true, Some(scanner)) = (ends_text, &mut self.facts.scanner) {
                scanner.end_text();
            }
        }
        TrackedEvent {
            slot,
            is_part,
            ends_block,
            ..TrackedEvent::default()
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

    /// Decides all calls and texts, since nothing more comes or can be waited for.
    pub(in crate::format) fn settle(&mut self, held: &mut VecDeque<ParsedEvent<A>>) {
        self.facts.give_up_tag();
        self.decide_held(held);
        self.blocks.end_all();
    }

    /// Decides held events in their order, up to the first that is undecided.
    pub(super) fn decide_held(&mut self, held: &mut VecDeque<ParsedEvent<A>>) {
        let _ = held.iter_mut().all(|held| self.decide_event(held));
        held.retain(|held| !held.is_hidden());
    }

    /// Finds what the client gets of an event, and of its block as far as the event decides it.
    /// Events must be asked about in their order, until one is undecided.
    pub(in crate::format) fn decide_event(&mut self, event: &mut ParsedEvent<A>) -> bool {
        let tracked = &mut event.tracked;
        if let (Some(last), Some(scanner)) = (tracked.text_ranges.last(), &mut self.facts.scanner) {
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
        let (facts, (proxy_calls, client_calls)) = (&self.facts, self.blocks.count_calls());
        let is_cut_off = facts.finish.is_some_and(FinishKind::is_cut_off);
        let is_block_only = || facts.build_block(false).is_some_and(|block| block.alone);
        !facts.error && client_calls == 0 && !is_cut_off && (proxy_calls > 0 || is_block_only())
    }

    /// Whether the answer ends with calls, but none of them is left for the client.
    pub(super) fn has_lost_calls(&self) -> bool {
        let (proxy_calls, client_calls) = self.blocks.count_calls();
        self.facts.finish == Some(FinishKind::Calls) && proxy_calls > 0 && client_calls == 0
    }

    /// The answer as a request would carry it, empty if it was too long or is not JSON, and the
    /// calls of proxy-executed tools.
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
