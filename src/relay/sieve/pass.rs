//! What becomes of one chunk: it goes on, edited or not, it waits, or it stays behind.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    Fate, Sieve, Taken,
    blocks::Blocks,
    chunk::{Chunk, event},
    edits::Shape,
};
use crate::{
    relay::{passage::Piece, tap::Seen},
    wire::{
        chat::answer::{self, Answer, Said},
        edit::Edits,
    },
};

/// Bytes of events held back while it is not known whose a call is.
pub(super) const MAX_HELD: usize = 64 << 10;

impl Sieve {
    pub(super) fn chunk(&mut self, chunk: Chunk, answer: Answer, out: &mut VecDeque<Piece>) {
        self.one.report(&answer);
        let mut taken = Taken {
            chunk,
            answer,
            slots: Vec::new(),
            edits: Edits::default(),
            hides: false,
        };
        let json = taken.chunk.json().clone();
        self.session.as_one(&json, &taken.answer, &mut taken.edits);
        let Some(first) = &taken.answer.first else {
            self.emit(taken, Shape::Sifted, out);
            return;
        };
        let empty = Said::default();
        let said = first.said.as_ref().unwrap_or(&empty);
        taken.slots = self.one.calls.take(&json, &said.calls);
        self.one.message.push(&json, said, &taken.slots);
        let last = first.finish.is_some();
        if let Some(finish) = first.finish {
            self.one.finish = String::from_utf8_lossy(&json[finish.span.range()]).into();
            self.one.calls.settle();
            if said.texts.is_empty() {
                self.flush_text(out);
            }
        }
        taken.hides = self.texts(&json, said, last, &mut taken.edits);
        if !said.texts.is_empty() && self.one.blocks.as_ref().is_some_and(Blocks::holds) {
            self.template = Some((taken.chunk.clone(), taken.answer.clone()));
        }
        self.place(taken, last, out);
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

    fn place(&mut self, taken: Taken, last: bool, out: &mut VecDeque<Piece>) {
        if last && self.one.is_ours() {
            self.release(out);
            self.emit(taken, Shape::Closing, out);
            self.round = true;
        } else if taken.slots.is_empty() && !last {
            self.emit(taken, Shape::Sifted, out);
        } else if self.one.calls.open_ones() {
            self.hold(taken, out);
        } else {
            self.release(out);
            self.emit(taken, Shape::Sifted, out);
        }
    }

    /// Keeps a chunk back until its calls are decided; what else it says goes on.
    fn hold(&mut self, taken: Taken, out: &mut VecDeque<Piece>) {
        if self.session.only_calls(&taken) {
            self.last = Fate::Held;
            self.held.push_back(taken);
        } else {
            let message = taken.chunk.edited(&self.session.calls_only(&taken));
            let slots = taken.slots.clone();
            self.emit(taken, Shape::WithoutCalls, out);
            if let Ok(answer) = answer::read(&message.data) {
                self.held.push_back(Taken {
                    chunk: Chunk {
                        raw: event(&message),
                        message,
                    },
                    answer,
                    slots,
                    edits: Edits::default(),
                    hides: false,
                });
            }
        }
        let held: usize = self.held.iter().map(|held| held.chunk.raw.len()).sum();
        if held > MAX_HELD {
            self.one.calls.settle();
            self.release(out);
        }
    }

    /// Nothing more comes of what is still undecided.
    pub(super) fn settle(&mut self, out: &mut VecDeque<Piece>) {
        self.one.calls.settle();
        self.flush_text(out);
        self.release(out);
    }

    /// Sends held text that turned out to be no tag, in an event like the one that it was in.
    fn flush_text(&mut self, out: &mut VecDeque<Piece>) {
        let held = self.one.blocks.as_mut().map(Blocks::finish);
        let held = self.session.visible.say(held.unwrap_or_default());
        let Some((chunk, answer)) = self.template.take().filter(|_| !held.is_empty()) else {
            return;
        };
        let message = chunk.edited(&self.session.content_only(chunk.json(), &answer, &held));
        self.tap.message(&message);
        self.close_cut(out);
        out.push_back(Piece::Bytes(event(&message)));
    }

    /// Lets go what was held, now that all is decided.
    fn release(&mut self, out: &mut VecDeque<Piece>) {
        let last = self.last;
        while let Some(held) = self.held.pop_front() {
            self.close_cut(out);
            self.emit(held, Shape::Sifted, out);
        }
        if last != Fate::Held {
            self.last = last;
        }
    }

    /// The blank line that the last event lacked, before another follows.
    fn close_cut(&mut self, out: &mut VecDeque<Piece>) {
        if std::mem::take(&mut self.cut) {
            out.push_back(Piece::Bytes(Bytes::from_static(b"\n\n")));
        }
    }

    fn emit(&mut self, mut taken: Taken, shape: Shape, out: &mut VecDeque<Piece>) {
        self.last = Fate::Dropped;
        if !self.session.sift(&mut taken, &self.one.calls, shape) {
            return;
        }
        let (chunk, edits) = (taken.chunk, taken.edits);
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
