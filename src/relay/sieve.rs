//! Takes what is ours out of a stream, without any I/O.
//!
//! Chunks go in; what is not ours comes out as it came, event by event, and what is edited differs
//! in the edited places only. An event is held until its end has come, and then only while nobody
//! can say whose the call in it is. Where an answer turns out to be for us alone, its end stays
//! behind ([`Sieve::round`]), and the next answer's chunks go on as if they were the same answer's.
//! What cannot be read passes as it is.

mod assemble;
mod blocks;
mod calls;
mod chunk;
mod edits;
mod frames;
mod one;
mod visible;
mod whole;

use std::collections::VecDeque;

use bytes::Bytes;

pub(super) use self::whole::{Sifted, Sifter};
use self::{
    chunk::{Chunk, event},
    edits::{Session, Shape},
    frames::{Frames, Part},
    one::One,
};
use super::{
    Before, Heard, Sifting, Spoken,
    passage::Piece,
    tap::{Seen, Tap},
};
use crate::wire::{
    chat::answer::{self, Answer, Said},
    edit::Edits,
    event::Message,
};

/// Bytes of events held back while it is not known whose a call is.
const MAX_HELD: usize = 64 << 10;

pub(super) struct Sieve {
    sifting: Sifting,
    strip_usage: bool,
    /// Nothing can be read: everything passes.
    blind: bool,
    frames: Frames,
    one: One,
    session: Session,
    tap: Tap,
    held: VecDeque<Held>,
    /// The last event with text of which some is held.
    template: Option<(Chunk, Answer)>,
    /// What became of the last event.
    last: Fate,
    /// The last event had no blank line.
    cut: bool,
    round: bool,
    drained: bool,
    ended: bool,
}

/// An event that waits for its calls to be decided.
struct Held {
    chunk: Chunk,
    answer: Answer,
    slots: Vec<Option<usize>>,
    edits: Edits,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Sent,
    Dropped,
    Held,
}

impl Sieve {
    pub(super) fn new(sifting: Sifting, strip_usage: bool, blind: bool) -> Self {
        let mut tap = Tap::new();
        if blind {
            tap.blind();
        }
        Self {
            sifting,
            strip_usage,
            blind,
            frames: Frames::new(),
            one: One::new(sifting),
            session: Session::default(),
            tap,
            held: VecDeque::new(),
            template: None,
            last: Fate::Dropped,
            cut: false,
            round: false,
            drained: false,
            ended: false,
        }
    }

    /// What the client got.
    pub(super) fn heard(&self) -> Heard {
        self.tap.heard()
    }

    pub(super) const fn legible(&self) -> bool {
        !self.blind
    }

    /// Whether the answer was for us alone: what follows of it is looked at, and goes nowhere.
    pub(super) const fn round(&self) -> bool {
        self.round
    }

    /// Whether nothing more is to be learnt from such an answer.
    pub(super) const fn drained(&self) -> bool {
        self.drained
    }

    /// What the current answer said.
    pub(super) fn spoken(&self) -> Spoken {
        let call = |slot| self.one.message.call(slot);
        self.one.spoken(self.one.message.message(), call)
    }

    pub(super) fn before(&self) -> Before {
        self.session.visible.before()
    }

    /// Another answer comes; gives what the one before said.
    pub(super) fn turn(&mut self) -> Spoken {
        let spoken = self.spoken();
        self.session.turn(spoken.usage);
        self.one = One::new(self.sifting);
        self.frames = Frames::new();
        self.tap.turn();
        self.template = None;
        self.last = Fate::Dropped;
        self.round = false;
        self.drained = false;
        spoken
    }

    pub(super) fn push(&mut self, chunk: Bytes, out: &mut VecDeque<Piece>) {
        if self.blind {
            out.push_back(Piece::Bytes(chunk));
            return;
        }
        for part in self.frames.push(chunk) {
            match part {
                Part::LateLf(lf) => match self.last {
                    Fate::Sent => out.push_back(Piece::Bytes(lf)),
                    Fate::Dropped => {}
                    Fate::Held => {
                        if let Some(held) = self.held.back_mut() {
                            held.chunk.raw = [&held.chunk.raw[..], b"\n"].concat().into();
                        }
                    }
                },
                Part::Overlong(bytes) if !self.round => self.send(bytes, out),
                Part::Overlong(_) => {}
                Part::Event { raw, message } => self.event(raw, message, out),
            }
        }
    }

    /// The provider's stream is over. `broken`: not by its own will.
    pub(super) fn finish(&mut self, broken: bool, out: &mut VecDeque<Piece>) {
        if let Some((raw, message)) = self.frames.finish() {
            // Half an event is no event; what is whole may lack its blank line.
            let data = message.as_ref().map_or(&b""[..], |message| &message.data);
            if !broken || data.trim_ascii() == b"[DONE]" || answer::read(data).is_ok() {
                self.event(raw, message, out);
                self.cut = self.last == Fate::Sent;
            }
        }
        if !self.round && !std::mem::replace(&mut self.ended, true) {
            self.settle(out);
            out.push_back(Piece::End);
        }
    }

    fn send(&mut self, raw: Bytes, out: &mut VecDeque<Piece>) {
        self.last = Fate::Sent;
        if !raw.is_empty() {
            out.push_back(Piece::Bytes(raw));
        }
    }

    fn event(&mut self, raw: Bytes, message: Option<Message>, out: &mut VecDeque<Piece>) {
        self.last = Fate::Dropped;
        let Some(message) = message else {
            if !self.round {
                self.send(raw, out);
            }
            return;
        };
        if message.data.trim_ascii() == b"[DONE]" {
            self.done(raw, &message, out);
            return;
        }
        let chunk = Chunk { raw, message };
        let read = answer::read(chunk.json());
        if let (true, Ok(answer)) = (self.round, &read) {
            self.one.report(answer);
        }
        if self.round {
            return;
        }
        match read {
            Ok(answer) if !answer.error && chunk.message.name != "error" => {
                self.chunk(chunk, answer, out);
            }
            read => {
                self.one.error |=
                    read.is_ok_and(|answer| answer.error) || chunk.message.name == "error";
                self.tap.message(&chunk.message);
                self.send(chunk.raw, out);
            }
        }
    }

    fn done(&mut self, raw: Bytes, message: &Message, out: &mut VecDeque<Piece>) {
        self.drained = true;
        if self.round {
            return;
        }
        if !self.ended {
            self.settle(out);
            // Some providers give no finish reason.
            self.round = self.one.finish.is_empty() && self.one.is_ours();
            if self.round {
                return;
            }
        }
        self.tap.message(message);
        if !std::mem::replace(&mut self.ended, true) {
            out.push_back(Piece::End);
        }
        self.send(raw, out);
    }

    /// Nothing more comes of what is still undecided.
    fn settle(&mut self, out: &mut VecDeque<Piece>) {
        self.one.calls.settle();
        self.flush_text(out);
        self.release(out);
    }

    fn chunk(&mut self, chunk: Chunk, answer: Answer, out: &mut VecDeque<Piece>) {
        let json = chunk.json().clone();
        self.one.report(&answer);
        let mut edits = Edits::default();
        self.session.as_one(&json, &answer, &mut edits);
        let Some(first) = &answer.first else {
            self.emit(chunk, &answer, &[], edits, Shape::Whole, out);
            return;
        };
        let mut slots = Vec::new();
        if let Some(said) = &first.said {
            slots = self.one.calls.take(&json, &said.calls);
            self.one.message.push(&json, said, &slots);
        }
        if let Some(finish) = first.finish {
            let finish = String::from_utf8_lossy(&json[finish.span.range()]);
            self.one.finish = finish.into();
            self.one.calls.settle();
        }
        let last = first.finish.is_some();
        if last && first.said.as_ref().is_none_or(|said| said.texts.is_empty()) {
            self.flush_text(out);
        }
        let texts = first
            .said
            .as_ref()
            .map(|said| self.texts(&json, said, last, &mut edits));
        let hides = texts.unwrap_or(false);
        let held = self.one.blocks.as_ref().is_some_and(blocks::Blocks::holds);
        if held
            && first
                .said
                .as_ref()
                .is_some_and(|said| !said.texts.is_empty())
        {
            self.template = Some((chunk.clone(), answer.clone()));
        }
        if last && self.one.is_ours() {
            self.release(out);
            let shape = Shape::Closing { hides };
            self.emit(chunk, &answer, &slots, edits, shape, out);
            self.round = true;
            return;
        }
        if slots.is_empty() || !self.one.calls.open_ones() {
            if !slots.is_empty() || last {
                self.release(out);
            }
            self.emit(chunk, &answer, &slots, edits, Shape::Sifted { hides }, out);
        } else {
            self.hold(chunk, answer, slots, edits, hides, out);
        }
    }

    /// Takes blocks out of the texts of a delta; gives whether there was text and none is left.
    fn texts(&mut self, json: &[u8], said: &Said, last: bool, edits: &mut Edits) -> bool {
        let (mut came, mut left) = (false, false);
        for (at, text) in said.texts.iter().enumerate() {
            let raw = &json[text.span.range()];
            let visible = self.one.visible(raw, last && at + 1 == said.texts.len());
            let visible = self.session.visible.say(visible);
            came |= !raw.is_empty();
            left |= !visible.is_empty();
            if visible != raw {
                edits.replace(text.span, visible);
            }
        }
        came && !left
    }

    /// Sends held text that turned out to be no tag, in an event like the one that it was in.
    fn flush_text(&mut self, out: &mut VecDeque<Piece>) {
        let held = self.one.blocks.as_mut().map(blocks::Blocks::finish);
        let held = self.session.visible.say(held.unwrap_or_default());
        let Some((chunk, answer)) = self.template.take().filter(|_| !held.is_empty()) else {
            return;
        };
        let message = chunk.edited(&self.session.content_only(chunk.json(), &answer, &held));
        self.tap.message(&message);
        if std::mem::take(&mut self.cut) {
            out.push_back(Piece::Bytes(Bytes::from_static(b"\n\n")));
        }
        out.push_back(Piece::Bytes(event(&message)));
    }

    /// Keeps a chunk back until its calls are decided; what else it says goes on.
    fn hold(
        &mut self,
        mut chunk: Chunk,
        mut answer: Answer,
        slots: Vec<Option<usize>>,
        mut edits: Edits,
        hides: bool,
        out: &mut VecDeque<Piece>,
    ) {
        if !self.session.only_calls(chunk.json(), &answer, hides) {
            let message = chunk.edited(&self.session.calls_only(chunk.json(), &answer));
            self.emit(
                chunk,
                &answer,
                &slots,
                edits,
                Shape::WithoutCalls { hides },
                out,
            );
            let Ok(rest) = answer::read(&message.data) else {
                return;
            };
            let raw = event(&message);
            (chunk, answer, edits) = (Chunk { raw, message }, rest, Edits::default());
        } else {
            self.last = Fate::Held;
        }
        self.held.push_back(Held {
            chunk,
            answer,
            slots,
            edits,
        });
        let held: usize = self.held.iter().map(|held| held.chunk.raw.len()).sum();
        if held > MAX_HELD {
            self.one.calls.settle();
            self.release(out);
        }
    }

    /// Lets go what was held, now that all is decided.
    fn release(&mut self, out: &mut VecDeque<Piece>) {
        let last = self.last;
        while let Some(held) = self.held.pop_front() {
            if std::mem::take(&mut self.cut) {
                out.push_back(Piece::Bytes(Bytes::from_static(b"\n\n")));
            }
            let shape = Shape::Sifted { hides: false };
            self.emit(
                held.chunk,
                &held.answer,
                &held.slots,
                held.edits,
                shape,
                out,
            );
        }
        if last != Fate::Held {
            self.last = last;
        }
    }

    fn emit(
        &mut self,
        chunk: Chunk,
        answer: &Answer,
        slots: &[Option<usize>],
        mut edits: Edits,
        shape: Shape,
        out: &mut VecDeque<Piece>,
    ) {
        let calls = &self.one.calls;
        self.last = Fate::Dropped;
        if !self
            .session
            .sift(chunk.json(), answer, (calls, slots), shape, &mut edits)
        {
            return;
        }
        let (raw, seen) = if edits.is_empty() {
            let seen = self.tap.message(&chunk.message);
            (chunk.raw, seen)
        } else {
            let message = chunk.edited(&edits);
            (chunk.with(&message), self.tap.message(&message))
        };
        if seen != Seen::UsageOnly || !self.strip_usage {
            self.send(raw, out);
        }
    }
}

#[cfg(test)]
mod tests;
