//! The trait by which a format describes the blocks of its answers.
//!
//! A block is an element of the list that an answer of Messages or Responses is. An answer of chat
//! completions is one message: only its calls are blocks, and a chunk may have parts of several.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    BlockState, FormatRewriter, JoinedResponse, ParsedEvent, RewrittenAnswer,
    block_state::TrackedEvent,
    block_tracker::{BlockTracker, TrackedBlock},
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerEvent, UsageReport,
        answer::{AnswerEvents, MAX_MESSAGE_BYTES},
    },
    json::scan::{JsonString, Span},
};

/// An event of a stream, or a whole answer.
pub trait BlockAnswer: AnswerEvents + Sized {
    type Assembler: BlockAssembler<Self>;
    /// What the client has received of all answers so far, in addition to the number of blocks.
    type Sent: Default;

    /// Whether the answer is a list of blocks. Otherwise it is one message: then a blank line separates its text from the
    /// text of the next answer, and its last chunk may have more than the finish reason.
    const IS_LIST: bool = true;

    /// For a format in which an answer without blocks cannot be sent back: the text that an answer gets if the client
    /// would get no block of it. The elements are the text itself, the block, and the events of a stream that bring the
    /// block.
    const ONLY_BLOCK: Option<[&'static str; 3]> = None;

    /// The finish reason of an answer without calls, in a format in which the finish reason says that there are calls.
    const END_REASON: Option<&'static str> = None;

    /// Reads a whole answer; `None` if it cannot be read.
    fn read_whole(json: &[u8]) -> Option<Self>;

    /// Returns the index of the block that the event is about, and what the event says of the block.
    fn block_step<'a>(&self, _json: &'a [u8]) -> Option<(Option<u64>, BlockStep<'a>)> {
        None
    }

    /// Updates `current` by what the event says of blocks.
    fn track_blocks(event: &ParsedEvent<Self>, current: &mut BlockState<Self>) -> TrackedEvent {
        current.track_step(event)
    }

    /// Whether this is the last event of a stream.
    fn is_last(&self) -> bool {
        self.is_end()
    }

    /// The id of a whole answer.
    fn id(&self) -> Option<JsonString>;

    /// The model's name, in an event that has it or in a whole answer.
    fn model(&self) -> Option<JsonString>;

    /// The list of a whole answer, brackets included, and its blocks.
    fn whole_blocks<'a>(&self, _json: &'a [u8]) -> Option<(Span, Vec<WholeBlock<'a>>)> {
        None
    }

    /// Whether an event may be passed on before those that are held.
    fn may_overtake(
        event: &ParsedEvent<Self>,
        _held: &VecDeque<ParsedEvent<Self>>,
        blocks: &BlockTracker,
    ) -> bool {
        // A client waits for pings while a long text is hidden from it.
        event.tracked.slot.is_none() && blocks.is_hiding_text()
    }

    /// Edits an event for the client and reports to the summarizer what the client gets of it.
    /// Returns whether anything is left. With `closing`, another answer follows.
    fn edit_event(
        joined: &mut JoinedResponse<Self>,
        event: &ParsedEvent<Self>,
        current: &BlockState<Self>,
        closing: bool,
        edits: &mut Edits,
    ) -> bool;

    /// Adds the tokens left out of the request, and the completion tokens of earlier answers, to the counts of a report.
    fn edit_usage(
        &self,
        _json: &[u8],
        report: &UsageReport,
        joined: &JoinedResponse<Self>,
        edits: &mut Edits,
    ) {
        joined.edit_usage(report, edits);
    }

    /// Edits finish reason and usage, and reports every part of the answer except its texts to the summarizer.
    fn edit_reports(
        &self,
        json: &[u8],
        joined: &mut JoinedResponse<Self>,
        current: &BlockState<Self>,
        edits: &mut Edits,
    ) {
        for part in self.events() {
            match part {
                AnswerEvent::Text(_) => {}
                AnswerEvent::Usage(report) => {
                    self.edit_usage(json, report, joined, edits);
                    let usage = report.usage.map(|usage| joined.add_completions(usage));
                    joined.summarizer.add_usage(usage);
                }
                part => {
                    if let (AnswerEvent::Finish(finish), Some(reason)) = (part, Self::END_REASON)
                        && current.has_lost_calls()
                    {
                        edits.replace(finish.reason.span, reason);
                    }
                    let events = std::slice::from_ref(part);
                    joined.summarizer.add_events(json, events);
                }
            }
        }
    }

    /// Keeps what later answers need of the last event of an answer that was for the proxy only. The client does not get
    /// this event.
    fn keep_last_event(
        _joined: &mut JoinedResponse<Self>,
        _event: &ParsedEvent<Self>,
        _current: &BlockState<Self>,
    ) {
    }

    /// Takes the next answer in one piece; `None` if it cannot be read.
    fn take_whole(rewriter: &mut FormatRewriter<Self>, json: &Bytes) -> Option<RewrittenAnswer> {
        rewriter.take_blocks(json)
    }
}

/// What an event says of a block.
pub enum BlockStep<'a> {
    Begin(NewBlock<'a>),
    Part,
    /// A part that makes the block the client's, whatever the texts of the block are.
    ClientPart,
    /// The text of the block, or of a part of it, ends.
    TextEnd,
    End,
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
    fn take_event(&mut self, _slot: usize, _json: &[u8], _answer: &A) {}

    /// Takes a block of a whole answer.
    fn take_block(&mut self, _slot: usize, _block: &[u8]) {}

    /// Returns the answer as a request would carry it (empty if it was too long or is not JSON), and the calls in
    /// `calls`.
    fn assemble(&self, calls: &[&TrackedBlock]) -> (String, Vec<AssembledCall>);
}

/// The parts that are kept of the blocks of one answer, by their slots. Nothing is kept once the answer is too long.
#[derive(Default)]
pub struct KeptBlocks<T> {
    pub(in crate::format) blocks: Vec<T>,
    bytes: usize,
    pub(in crate::format) is_overlong: bool,
}

impl<T: Default> KeptBlocks<T> {
    /// Counts bytes that are to be kept. Returns whether they may be.
    pub(in crate::format) fn take_bytes(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_MESSAGE_BYTES {
            self.is_overlong = true;
            self.blocks.clear();
        }
        !self.is_overlong
    }

    pub(in crate::format) fn block_mut(&mut self, slot: usize) -> &mut T {
        if self.blocks.len() <= slot {
            self.blocks.resize_with(slot + 1, T::default);
        }
        &mut self.blocks[slot]
    }
}

/// The arguments of a call, and the call as JSON; `None` if they are not known.
#[derive(Default)]
pub struct AssembledCall {
    pub(in crate::format) arguments: Option<String>,
    pub(in crate::format) json: Option<String>,
}
