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
mod pass;
mod visible;
mod whole;

use std::collections::VecDeque;

use bytes::Bytes;

pub(super) use self::whole::{Sifted, Sifter};
use self::{
    chunk::Chunk,
    edits::Session,
    frames::{Frames, Part},
    one::One,
};
use super::{Before, Heard, Sifting, Spoken, passage::Piece, tap::Tap};
use crate::wire::{
    chat::answer::{self, Answer},
    edit::Edits,
    event::Message,
};

pub(super) struct Sieve {
    sifting: Sifting,
    strip_usage: bool,
    /// Nothing can be read: everything passes.
    blind: bool,
    frames: Frames,
    one: One,
    session: Session,
    tap: Tap,
    /// Events that wait for their calls to be decided.
    held: VecDeque<Taken>,
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

/// An event that was read.
struct Taken {
    chunk: Chunk,
    answer: Answer,
    /// The calls that its fragments belong to.
    slots: Vec<Option<usize>>,
    /// Edits that are settled.
    edits: Edits,
    /// It had text, and none of it is left.
    hides: bool,
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
            // Half an event is no event, and may be half a call of ours; what is whole may lack its
            // blank line.
            let whole = message.as_ref().map_or(!broken, |message| {
                message.data.trim_ascii() == b"[DONE]" || answer::read(&message.data).is_ok()
            });
            if whole {
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
}

#[cfg(test)]
mod tests;
