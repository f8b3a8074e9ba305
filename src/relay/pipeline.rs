//! The bytes of a stream through the proxy, without any I/O.
//!
//! Bytes go in, are split into events, read, rewritten where that is wanted, and come out, with the place
//! where the answer ends marked. An event that nobody changes goes on as the bytes that it came as. Of
//! an event whose end has not come, nothing is held unless something in it may have to change, or it
//! may be the marker behind the last one; a rewriter needs events whole, 2 MiB of one at most.
//!
//! The end is marked before `data: [DONE]`, or at the very end where none comes; there the state is stored, and a
//! comment may be put in. Without a rewriter 16 KiB of an event are held at most. A rewriter holds back what is the
//! client's only while nobody can say who executes a call, or whether a continuation block begins at the end of a
//! text, 64 KiB at most. The listener hears what the client gets, but for the prompt tokens: of these it hears what
//! the provider said.

use std::collections::VecDeque;

use bytes::Bytes;

use super::decode::Decoder;
use crate::{
    format::{
        AnswerEvent, AnswerFilter, AssistantTurn, PrecedingText, ResponseSummarizer,
        ResponseSummary,
        chat::answer::{self, ChatAnswer, EventAction, ParsedEvent, Rewriter},
    },
    wire::sse::{SseEvent, SseMessage, SseSplitter},
};

/// Bytes of one event that are read.
const MAX_EVENT: usize = 2 << 20;

/// Bytes held of an event that may be the marker at the end, or a usage chunk: both are far smaller.
const MAX_HELD: usize = 16 << 10;

/// What goes on to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PipelineOutput {
    Bytes(Bytes),
    /// Here the answer ends; what follows tells the client so.
    End,
}

/// What is changed in a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamEdits {
    pub(super) sifting: AnswerFilter,
    /// Take out the chunk with usage that the client did not ask for.
    pub(super) strip_usage: bool,
    /// Tokens left out of the request, to be added to the prompt tokens that the client reads.
    pub(super) left_out: Option<u32>,
}

impl StreamEdits {
    pub(super) fn has_any(&self) -> bool {
        self.strip_usage || self.needs_rewriter()
    }

    fn needs_rewriter(&self) -> bool {
        self.sifting.is_active() || self.left_out.is_some_and(|tokens| tokens > 0)
    }
}

pub(super) struct Pipeline {
    changes: StreamEdits,
    splitter: SseSplitter,
    listener: ResponseSummarizer,
    rewriter: Option<Box<Rewriter>>,
    /// Unpacks a copy of a compressed stream, which itself goes on as it is.
    decoder: Option<Decoder>,
    /// Bytes of the event without an end that went out already.
    sent: usize,
    /// Held events that go out before the current one.
    ready: VecDeque<Bytes>,
    drained: bool,
    ended: bool,
}

/// What goes out while a chunk is read.
struct OutputQueue<'a> {
    pieces: &'a mut VecDeque<PipelineOutput>,
    chunk: &'a Bytes,
}

impl OutputQueue<'_> {
    /// Bytes of the chunk that follow on those before go on in one piece with them.
    fn push_bytes(&mut self, bytes: Bytes) {
        let place = |bytes: &Bytes| {
            let at = (bytes.as_ptr() as usize).checked_sub(self.chunk.as_ptr() as usize)?;
            (at + bytes.len() <= self.chunk.len()).then_some(at..at + bytes.len())
        };
        if bytes.is_empty() {
            return;
        }
        if let (Some(PipelineOutput::Bytes(last)), Some(more)) =
            (self.pieces.back_mut(), place(&bytes))
            && let Some(before) = place(last)
            && before.end == more.start
        {
            *last = self.chunk.slice(before.start..more.end);
            return;
        }
        self.pieces.push_back(PipelineOutput::Bytes(bytes));
    }

    fn push_all(&mut self, ready: &mut VecDeque<Bytes>) {
        ready.drain(..).for_each(|bytes| self.push_bytes(bytes));
    }
}

impl Pipeline {
    /// With a decoder, nothing of the stream can be changed.
    pub(super) fn new(changes: StreamEdits, decoder: Option<Decoder>) -> Self {
        let changes = match decoder {
            None => changes,
            Some(_) => StreamEdits::default(),
        };
        let rewriter = || Rewriter::new(changes.sifting, changes.left_out);
        Self {
            rewriter: changes.needs_rewriter().then(rewriter).map(Box::new),
            changes,
            splitter: SseSplitter::new(MAX_EVENT),
            listener: ResponseSummarizer::default(),
            decoder,
            sent: 0,
            ready: VecDeque::new(),
            drained: false,
            ended: false,
        }
    }

    /// Whether the proxy's text can be put between the bytes.
    pub(super) fn is_legible(&self) -> bool {
        self.decoder.is_none()
    }

    /// What the client got.
    pub(super) fn response_summary(&self) -> ResponseSummary {
        self.listener.to_summary()
    }

    /// Whether the answer was for the proxy alone: what follows of it is looked at, and goes nowhere.
    pub(super) fn is_for_proxy(&self) -> bool {
        self.rewriter.as_ref().is_some_and(|it| it.is_for_proxy())
    }

    /// Whether nothing more is to be learnt from such an answer.
    pub(super) fn is_drained(&self) -> bool {
        self.drained
    }

    /// What the current answer said, where anything is taken out of it.
    pub(super) fn assistant_turn(&self) -> AssistantTurn {
        let rewriter = self.rewriter.as_ref();
        rewriter.map_or_else(AssistantTurn::default, |rewriter| {
            rewriter.to_assistant_turn()
        })
    }

    pub(super) fn preceding_text(&self) -> PrecedingText {
        let rewriter = self.rewriter.as_ref();
        rewriter.map_or_else(PrecedingText::default, |rewriter| rewriter.preceding_text())
    }

    /// Another answer comes; gives what the one before said.
    pub(super) fn begin_answer(&mut self) -> AssistantTurn {
        self.splitter = SseSplitter::new(MAX_EVENT);
        self.sent = 0;
        self.drained = false;
        let rewriter = self.rewriter.as_mut();
        rewriter.map_or_else(AssistantTurn::default, |it| {
            it.begin_answer(&mut self.listener)
        })
    }

    /// What was left out of the request that the next answer is for.
    pub(super) fn set_left_out(&mut self, left_out: Option<u32>) {
        if let Some(rewriter) = &mut self.rewriter {
            rewriter.set_left_out(left_out);
        }
    }

    pub(super) fn push(&mut self, chunk: Bytes, out: &mut VecDeque<PipelineOutput>) {
        let Some(decoder) = &mut self.decoder else {
            self.read_chunk(chunk, out);
            return;
        };
        // A decoded copy is only looked at.
        let mut read = VecDeque::new();
        match decoder.push(chunk.clone()) {
            Some(text) => self.read_chunk(text.into(), &mut read),
            None => self.listener.mark_unreadable(),
        }
        out.extend(
            read.into_iter()
                .filter(|piece| *piece == PipelineOutput::End),
        );
        out.push_back(PipelineOutput::Bytes(chunk));
    }

    fn read_chunk(&mut self, chunk: Bytes, out: &mut VecDeque<PipelineOutput>) {
        let mut out = OutputQueue {
            pieces: out,
            chunk: &chunk,
        };
        self.splitter.push(chunk.clone());
        while let Some(event) = self.splitter.next_event() {
            self.take_event(event, &mut out);
        }
        let open = self.splitter.unfinished_bytes();
        if open.len() > self.sent && (self.sent > 0 || !self.must_wait(open)) {
            out.push_bytes(Bytes::copy_from_slice(&open[self.sent..]));
            self.sent = open.len();
        }
    }

    fn take_event(&mut self, event: SseEvent, out: &mut OutputQueue<'_>) {
        let rest = event.raw.slice(std::mem::take(&mut self.sent)..);
        let Some(message) = event.message else {
            if !self.is_for_proxy() {
                out.push_bytes(rest);
            }
            return;
        };
        let answer = read_event(&message);
        self.drained |= answer.is_end();
        // What went out in part stays, and whatever cannot be held is treated as if it had gone out in part.
        let is_whole = || rest.len() == event.raw.len() && self.must_wait(&event.raw);
        let ends = answer.is_end() && is_whole();
        let strips = self.changes.strip_usage && answer.is_usage_only() && is_whole();
        let verdict = match &mut self.rewriter {
            Some(rewriter) => {
                let taken = ParsedEvent::new(event.raw, message, answer);
                rewriter.take_event(taken, &mut self.ready, &mut self.listener)
            }
            None => {
                self.listener.add_events(&message.data, &answer.events);
                EventAction::Pass
            }
        };
        out.push_all(&mut self.ready);
        match verdict {
            _ if strips => {}
            EventAction::Pass => {
                if ends && !std::mem::replace(&mut self.ended, true) {
                    out.pieces.push_back(PipelineOutput::End);
                }
                out.push_bytes(rest);
            }
            EventAction::Replace(bytes) => out.push_bytes(bytes),
            EventAction::Drop | EventAction::Hold => {}
        }
    }

    /// Whether bytes that an event begins with are held until its end. What holds for them holds for every
    /// shorter beginning, so that no cut changes what becomes of an event.
    fn must_wait(&self, beginning: &[u8]) -> bool {
        let strips = self.changes.strip_usage;
        self.rewriter.is_some()
            || (beginning.len() <= MAX_HELD && answer::may_need_whole_event(beginning, strips))
    }

    /// The provider's stream is over. `broken`: not by its own will.
    pub(super) fn finish_stream(&mut self, broken: bool, out: &mut VecDeque<PipelineOutput>) {
        let mut pieces = VecDeque::new();
        let mut last = OutputQueue {
            pieces: &mut pieces,
            chunk: &Bytes::new(),
        };
        if let Some(event) = self.splitter.finish() {
            // Half an event may be half of what is to be taken out; what is whole may lack its blank line.
            let message = event.message.as_ref();
            let whole = message.map_or(!broken, |it| answer::read_answer(&it.data).is_ok());
            if whole || !self.changes.sifting.is_active() {
                self.take_event(event, &mut last);
            }
        }
        let ends = !self.is_for_proxy() && !std::mem::replace(&mut self.ended, true);
        if let (Some(rewriter), true) = (&mut self.rewriter, ends) {
            rewriter.settle_answer(&mut self.ready, &mut self.listener);
        }
        // What follows an event without its blank line begins with that.
        if !last.pieces.is_empty() && (self.is_for_proxy() || !self.ready.is_empty()) {
            last.push_bytes(Bytes::from_static(b"\n\n"));
        }
        last.push_all(&mut self.ready);
        if ends {
            last.pieces.push_back(PipelineOutput::End);
        }
        let looks = self.decoder.is_some();
        let goes = |piece: &PipelineOutput| !looks || *piece == PipelineOutput::End;
        out.extend(pieces.into_iter().filter(goes));
    }
}

/// What an event says; nothing where it cannot be read.
fn read_event(message: &SseMessage) -> ChatAnswer {
    let mut answer = answer::read_answer(&message.data).unwrap_or_default();
    if message.name == "error" && !answer.has_error() {
        answer.events.push(AnswerEvent::Error);
    }
    answer
}

#[cfg(test)]
mod tests;
