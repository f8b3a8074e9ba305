//! The stream pipeline: splits bytes into events, reads, rewrites and passes them on, without I/O.
//!
//! An event that does not change goes on as the bytes that came. The end of the answer is marked
//! before the end marker (`[DONE]`, `message_stop`, the last event of Responses), or at the end of
//! the stream if none comes; there the state is stored, and a comment may be inserted.
//!
//! Without a rewriter, incomplete events pass at once, unless they may be the end marker or a usage
//! chunk to remove (`FormatRules::max_whole_event` at most). With a rewriter, events are held
//! until they are complete (2 MiB at most), and then only while it is undecided who executes a call,
//! or whether a continuation block begins at the end of a text (64 KiB at most). The summary covers
//! what the client gets, but prompt tokens are those of the provider.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{StreamOptions, decode::Decoder};
use crate::{
    format::{
        AnswerEvents, AnswerReader, AnswerRewriter, EventAction, ModelAnswer, PrecedingText,
        ResponseSummarizer, ResponseSummary, SentEvents, StreamEvent,
    },
    wire::sse::{SseEvent, SseSplitter},
};

/// Bytes of one event that are read.
const MAX_EVENT: usize = 2 << 20;
/// So many first bytes of an event nearly always have its type.
const LONG_BEGINNING: usize = 4 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PipelineOutput {
    Bytes(Bytes),
    /// The end of the answer, before the end marker.
    End,
}

impl StreamOptions {
    /// Whether anything may be changed in the stream.
    pub(super) fn has_edits(&self) -> bool {
        self.strip_usage || self.needs_rewriter()
    }

    fn needs_rewriter(&self) -> bool {
        self.filter.is_active()
            || self.left_out.is_some_and(|tokens| tokens > 0)
            || self.asked_model.is_some()
    }
}

pub(super) struct Pipeline {
    options: StreamOptions,
    splitter: SseSplitter,
    reader: AnswerReader,
    rewriter: Option<Box<AnswerRewriter>>,
    /// Sums up what the client gets, if nothing is rewritten.
    summarizer: ResponseSummarizer,
    /// Decompresses a copy of a compressed stream, which passes as it is.
    copy_decoder: Option<Decoder>,
    /// What the client has, if nothing is rewritten.
    passed: SentEvents,
    /// Bytes of the incomplete event that went out already.
    sent: usize,
    /// When the incomplete event has so many bytes, it is decided again whether it must wait.
    looked_at_from: usize,
    /// Released events that go out before the current one.
    ready: VecDeque<Bytes>,
    /// Whether the end marker of the current answer came.
    pub(super) drained: bool,
    ended: bool,
}

/// The output while a chunk is read.
struct OutputQueue<'a> {
    pieces: &'a mut VecDeque<PipelineOutput>,
    chunk: &'a Bytes,
}

impl OutputQueue<'_> {
    /// Joins slices that are adjacent in the chunk.
    fn push_bytes(&mut self, bytes: Bytes) {
        let range_in_chunk = |bytes: &Bytes| {
            let at = (bytes.as_ptr() as usize).checked_sub(self.chunk.as_ptr() as usize)?;
            (at + bytes.len() <= self.chunk.len()).then_some(at..at + bytes.len())
        };
        if bytes.is_empty() {
            return;
        }
        if let Some(PipelineOutput::Bytes(last)) = self.pieces.back_mut()
            && let (Some(before), Some(more)) = (range_in_chunk(last), range_in_chunk(&bytes))
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
    /// With a decoder, the stream passes without changes.
    pub(super) fn new(options: StreamOptions, decoder: Option<Decoder>) -> Self {
        let format = options.format;
        let options = match decoder {
            None => options,
            Some(_) => StreamOptions {
                format,
                sent: options.sent,
                ..StreamOptions::default()
            },
        };
        let rewriter = || {
            let mut rewriter = AnswerRewriter::new(format, options.filter, options.left_out);
            rewriter.set_asked_model(options.asked_model.clone());
            Box::new(rewriter)
        };
        Self {
            rewriter: options.needs_rewriter().then(rewriter),
            options,
            splitter: SseSplitter::new(MAX_EVENT),
            reader: AnswerReader::new(format),
            summarizer: ResponseSummarizer::default(),
            copy_decoder: decoder,
            passed: SentEvents::default(),
            sent: 0,
            looked_at_from: 0,
            ready: VecDeque::new(),
            drained: false,
            ended: false,
        }
    }

    /// Whether text of the proxy can be inserted into the bytes.
    pub(super) fn can_insert(&self) -> bool {
        self.copy_decoder.is_none()
    }

    /// What the client has of the response, in whole events.
    pub(super) fn sent_events(&self) -> SentEvents {
        let rewriter = self.rewriter.as_ref();
        let sent = rewriter.map_or_else(|| self.passed.clone(), |it| it.sent_events());
        sent.or_model(&self.options.sent)
    }

    /// What the client got.
    pub(super) fn response_summary(&mut self) -> ResponseSummary {
        self.summarizer().to_summary()
    }

    fn summarizer(&mut self) -> &mut ResponseSummarizer {
        match &mut self.rewriter {
            Some(rewriter) => rewriter.summarizer(),
            None => &mut self.summarizer,
        }
    }

    /// Whether the current answer was for the proxy only. If it was, the rest of it is read and dropped.
    pub(super) fn is_for_proxy(&self) -> bool {
        self.rewriter.as_ref().is_some_and(|it| it.is_for_proxy())
    }

    /// The current answer as the model gave it; empty without a rewriter.
    pub(super) fn model_answer(&self) -> ModelAnswer {
        let rewriter = self.rewriter.as_ref();
        rewriter.map(|it| it.to_model_answer()).unwrap_or_default()
    }

    pub(super) fn preceding_text(&self) -> PrecedingText {
        let rewriter = self.rewriter.as_ref();
        rewriter.map(|it| it.preceding_text()).unwrap_or_default()
    }

    /// Begins another answer; returns the one before.
    pub(super) fn begin_answer(&mut self) -> ModelAnswer {
        self.splitter = SseSplitter::new(MAX_EVENT);
        self.reader = AnswerReader::new(self.options.format);
        self.sent = 0;
        self.looked_at_from = 0;
        self.drained = false;
        let rewriter = self.rewriter.as_mut();
        rewriter.map(|it| it.begin_answer()).unwrap_or_default()
    }

    /// Sets the tokens left out of the request of the next answer.
    pub(super) fn set_left_out(&mut self, left_out: Option<u32>) {
        if let Some(rewriter) = &mut self.rewriter {
            rewriter.set_left_out(left_out);
        }
    }

    pub(super) fn push(&mut self, chunk: Bytes, out: &mut VecDeque<PipelineOutput>) {
        let Some(decoder) = &mut self.copy_decoder else {
            return self.read_chunk(chunk, out);
        };
        // A decompressed copy is only read.
        let mut copy = VecDeque::new();
        match decoder.push(chunk.clone()) {
            Some(text) => self.read_chunk(text.into(), &mut copy),
            None => self.summarizer.mark_unreadable(),
        }
        copy.retain(|piece| *piece == PipelineOutput::End);
        out.append(&mut copy);
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
        let incomplete = self.splitter.unfinished_bytes();
        let length = incomplete.len();
        if length <= self.sent || self.sent == 0 && length < self.looked_at_from {
            return;
        }
        if self.sent == 0 && self.must_wait(incomplete) {
            self.looked_at_from = match length {
                ..LONG_BEGINNING => 0,
                // Looked at with every chunk, it would be read as often.
                _ => (2 * length).min(self.options.format.rules().max_whole_event + 1),
            };
            return;
        }
        out.push_bytes(Bytes::copy_from_slice(&incomplete[self.sent..]));
        self.sent = length;
    }

    fn take_event(&mut self, event: SseEvent, out: &mut OutputQueue<'_>) {
        let rest = event.raw.slice(std::mem::take(&mut self.sent)..);
        self.looked_at_from = 0;
        let Some(message) = event.message else {
            if self.is_overlong_end(&event.raw) {
                self.summarizer().mark_unreadable();
            }
            if !self.is_for_proxy() {
                out.push_bytes(rest);
            }
            return;
        };
        let answer = self.reader.read_event(&message);
        self.drained |= answer.is_end();
        // An event that went out in part stays, and so does one that is too long to be held: how the
        // stream is cut must not matter.
        let was_held = || rest.len() == event.raw.len() && self.must_wait(&event.raw);
        let is_end = answer.is_end() && was_held();
        let is_stripped = self.options.strip_usage && answer.is_usage_only() && was_held();
        let action = match &mut self.rewriter {
            Some(rewriter) => {
                let raw = event.raw;
                let event = StreamEvent {
                    raw,
                    message,
                    answer,
                };
                rewriter.take_event(event, &mut self.ready)
            }
            None => {
                answer.note_sent(&message.data, &mut self.passed);
                self.summarizer.add_events(&message.data, answer.events());
                EventAction::Pass
            }
        };
        out.push_all(&mut self.ready);
        let goes_on = matches!(action, EventAction::Pass | EventAction::Replace(_));
        if is_end && goes_on && !is_stripped && !std::mem::replace(&mut self.ended, true) {
            out.pieces.push_back(PipelineOutput::End);
        }
        match action {
            _ if is_stripped => {}
            EventAction::Pass => out.push_bytes(rest),
            EventAction::Replace(bytes) => out.push_bytes(bytes),
            EventAction::Drop | EventAction::Hold => {}
        }
    }

    /// Whether an unread event begins as the end of the answer does, and is too long to be read.
    fn is_overlong_end(&self, raw: &[u8]) -> bool {
        raw.len() > MAX_EVENT
            && (raw.starts_with(b"event:") || raw.starts_with(b"data:"))
            && self.options.format.may_need_whole_event(raw, false)
    }

    /// Whether the beginning of an event is held until its end. If it is, so is every shorter
    /// beginning: how the stream is cut must not matter.
    fn must_wait(&self, beginning: &[u8]) -> bool {
        let (format, usage) = (self.options.format, self.options.strip_usage);
        self.rewriter.is_some()
            || (beginning.len() <= format.rules().max_whole_event
                && format.may_need_whole_event(beginning, usage))
    }

    /// Ends the provider's stream. `broken`: it broke off.
    pub(super) fn finish_stream(&mut self, broken: bool, out: &mut VecDeque<PipelineOutput>) {
        let mut pieces = VecDeque::new();
        let mut last = OutputQueue {
            pieces: &mut pieces,
            chunk: &Bytes::new(),
        };
        if let Some(event) = self.splitter.finish() {
            // Half an event may be half of what must be removed; a whole one may lack its blank line.
            let (format, message) = (self.options.format, event.message.as_ref());
            let is_whole = message.map_or(!broken, |it| format.read_answer(&it.data).is_ok());
            if is_whole || !self.options.filter.is_active() {
                self.take_event(event, &mut last);
            }
        }
        let ends = !self.is_for_proxy() && !std::mem::replace(&mut self.ended, true);
        if let (Some(rewriter), true) = (&mut self.rewriter, ends) {
            rewriter.release_all(&mut self.ready);
        }
        // The event may lack its blank line, and other bytes follow.
        if !last.pieces.is_empty() && (self.is_for_proxy() || !self.ready.is_empty()) {
            last.push_bytes(Bytes::from_static(b"\n\n"));
        }
        last.push_all(&mut self.ready);
        if ends {
            last.pieces.push_back(PipelineOutput::End);
        }
        pieces.retain(|piece| self.copy_decoder.is_none() || *piece == PipelineOutput::End);
        out.append(&mut pieces);
    }
}

#[cfg(test)]
mod tests;
