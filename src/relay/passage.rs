//! The way of a stream's bytes through the proxy, without any I/O.
//!
//! Chunks go in, the same bytes come out, with the place where the answer ends marked; only the
//! usage chunk that we asked for stays behind. Bytes of an event are held while it may still be
//! that chunk or `[DONE]`, never longer: a `"choices":[` that is not empty or [`MAX_HELD`] bytes
//! release them.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    decode::Decoder,
    tap::{Heard, Seen, Tap},
};
use crate::wire::event::Splitter;

/// Bytes of one event that the splitter keeps.
const MAX_EVENT: usize = 2 << 20;

/// Bytes held back of one event; a usage chunk is far smaller.
const MAX_HELD: usize = 16 << 10;

/// What goes on to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Bytes(Bytes),
    /// Here the answer ends; what follows tells the client so.
    End,
}

pub(super) struct Passage {
    splitter: Splitter,
    tap: Tap,
    decoder: Option<Decoder>,
    held: Held,
    ended: bool,
}

/// The bytes of an event that may still be one of those that matter.
#[derive(Default)]
struct Held {
    /// The usage chunk is to be taken out.
    strip_usage: bool,
    pieces: Vec<Bytes>,
    len: usize,
    /// Bytes of the current event went out already.
    released: bool,
    choices: Choices,
    done: Done,
    /// The chunk that was taken out ended with a CR whose LF may still come.
    dropped_cr: bool,
}

impl Passage {
    pub(super) fn new(decoder: Option<Decoder>, strip_usage: bool) -> Self {
        Self {
            splitter: Splitter::new(MAX_EVENT),
            tap: Tap::new(),
            held: Held {
                // What is compressed cannot be cut.
                strip_usage: strip_usage && decoder.is_none(),
                ..Held::default()
            },
            decoder,
            ended: false,
        }
    }

    /// Whether text of ours can be put between the bytes.
    pub(super) fn legible(&self) -> bool {
        self.decoder.is_none()
    }

    pub(super) fn heard(&self) -> Heard {
        self.tap.heard()
    }

    pub(super) fn push(&mut self, chunk: Bytes, out: &mut VecDeque<Piece>) {
        // It would stand between a CR and its LF.
        if chunk.is_empty() {
            return;
        }
        if self.decoder.is_some() {
            self.look(chunk.clone(), out);
            out.push_back(Piece::Bytes(chunk));
            return;
        }
        // The LF of a line end whose CR closed the event before goes where that went.
        let late_lf =
            self.splitter.after_cr() && self.held.len == 0 && chunk.first() == Some(&b'\n');
        let dropped = std::mem::take(&mut self.held.dropped_cr);
        let mut from = usize::from(late_lf && dropped);
        // Where the current event begins in this chunk.
        let mut begin = usize::from(late_lf);
        self.splitter.push(chunk.clone());
        while let Some(event) = self.splitter.next_event() {
            let seen = event.message.map_or(Seen::Other, |m| self.tap.message(&m));
            if seen == Seen::UsageOnly && self.held.may_drop(&chunk[begin..event.end]) {
                give(out, &chunk, from, begin);
                from = event.end;
                self.held.pieces.clear();
                self.held.dropped_cr = event.end == chunk.len() && self.splitter.after_cr();
            } else if seen == Seen::Done && !std::mem::replace(&mut self.ended, true) {
                let last = &chunk[begin..event.end];
                let mut to = begin;
                if !self.held.may_hold(last) {
                    // Some of it may be gone already: it ends after all of it.
                    self.held.release(out);
                    to = event.end - late(last);
                }
                give(out, &chunk, from, to);
                from = to;
                out.push_back(Piece::End);
            }
            self.held.release(out);
            self.held.begin_event();
            begin = event.end;
        }
        if self.held.hold(&chunk[begin..]) {
            give(out, &chunk, from, begin);
            if begin < chunk.len() {
                self.held.pieces.push(chunk.slice(begin..));
            }
        } else {
            self.held.release(out);
            give(out, &chunk, from, chunk.len());
        }
    }

    /// The provider's stream is over.
    pub(super) fn finish(&mut self, out: &mut VecDeque<Piece>) {
        let last = self.splitter.finish().and_then(|event| event.message);
        let seen = last.map_or(Seen::Other, |message| self.tap.message(&message));
        if seen == Seen::UsageOnly && self.held.may_drop(b"") {
            self.held.pieces.clear();
        }
        if seen == Seen::Done
            && self.held.may_hold(b"")
            && !std::mem::replace(&mut self.ended, true)
        {
            out.push_back(Piece::End);
        }
        self.held.release(out);
        if !std::mem::replace(&mut self.ended, true) {
            out.push_back(Piece::End);
        }
    }

    /// Looks at a decoded copy.
    fn look(&mut self, chunk: Bytes, out: &mut VecDeque<Piece>) {
        let Some(text) = self.decoder.as_mut().and_then(|d| d.push(chunk)) else {
            self.tap.blind();
            return;
        };
        self.splitter.push(text.into());
        while let Some(event) = self.splitter.next_event() {
            let seen = event.message.map_or(Seen::Other, |m| self.tap.message(&m));
            if seen == Seen::Done && !std::mem::replace(&mut self.ended, true) {
                out.push_back(Piece::End);
            }
        }
    }
}

/// The LF of a CRLF at the end of an event, which ends with the CR where a cut comes between them.
fn late(last: &[u8]) -> usize {
    usize::from(last.ends_with(b"\r\n"))
}

fn give(out: &mut VecDeque<Piece>, chunk: &Bytes, from: usize, to: usize) {
    if from < to {
        out.push_back(Piece::Bytes(chunk.slice(from..to)));
    }
}

impl Held {
    fn begin_event(&mut self) {
        self.len = 0;
        self.released = false;
        self.choices = Choices::default();
        self.done = Done::default();
    }

    /// Whether the current event, which ends with these bytes, can be taken out whole.
    fn may_drop(&mut self, last: &[u8]) -> bool {
        self.strip_usage && self.may_hold(last) && !self.choices.some
    }

    /// Whether all of the event that ends with these bytes would be held wherever it was cut: so what becomes
    /// of one that came in one piece is the same.
    fn may_hold(&mut self, last: &[u8]) -> bool {
        // A cut between the last CR and its LF ends the event before that.
        let len = self.len + last.len() - late(last);
        let maybe = self.done.possible(last) | self.may_be_usage(last);
        !self.released && len <= MAX_HELD && maybe
    }

    fn may_be_usage(&mut self, bytes: &[u8]) -> bool {
        self.strip_usage && !self.choices.has_some(bytes)
    }

    fn release(&mut self, out: &mut VecDeque<Piece>) {
        out.extend(self.pieces.drain(..).map(Piece::Bytes));
    }

    /// Whether these bytes of an event without an end are to be kept back with those before.
    fn hold(&mut self, bytes: &[u8]) -> bool {
        self.len += bytes.len();
        let maybe = self.done.possible(bytes) | self.may_be_usage(bytes);
        self.released |= self.len > MAX_HELD || !maybe;
        !self.released
    }
}

/// Follows an event as long as it may be `data: [DONE]`, over any cut. Lines of other fields may stand beside
/// it; a comment goes out at once, since somebody may wait for it.
#[derive(Default)]
struct Done {
    line: Line,
    /// A line said it.
    said: bool,
    other: bool,
}

/// A line as far as it came, with the bytes matched.
#[derive(Clone, Copy, Default)]
enum Line {
    #[default]
    Begins,
    Field(usize),
    Data(usize),
    Aside,
}

impl Done {
    const FIELD: &[u8] = b"data";
    const TEXT: &[u8] = b"[DONE]";

    fn possible(&mut self, bytes: &[u8]) -> bool {
        for &byte in bytes {
            if self.other {
                break;
            }
            self.line = match (self.line, byte) {
                (line, b'\r' | b'\n') => {
                    if let Line::Data(matched) = line {
                        self.said |= matched == Self::TEXT.len();
                        self.other = matched > 0 && matched != Self::TEXT.len();
                    }
                    Line::Begins
                }
                (Line::Begins, b':') => {
                    self.other = true;
                    Line::Aside
                }
                (Line::Field(4), b':') => Line::Data(0),
                (Line::Data(matched), _) if byte.is_ascii_whitespace() => Line::Data(matched),
                (Line::Data(matched), _) => {
                    self.other = self.said || Self::TEXT.get(matched) != Some(&byte);
                    Line::Data(matched + 1)
                }
                (Line::Begins, _) if byte == Self::FIELD[0] => Line::Field(1),
                (Line::Field(matched), _) if Self::FIELD.get(matched) == Some(&byte) => {
                    Line::Field(matched + 1)
                }
                (Line::Begins | Line::Field(_) | Line::Aside, _) => Line::Aside,
            };
        }
        !self.other
    }
}

/// Looks for `"choices":[` with something in it, byte by byte, over any cut.
#[derive(Default)]
struct Choices {
    /// Bytes of [`Choices::KEY`] matched.
    matched: usize,
    some: bool,
}

impl Choices {
    const KEY: &[u8] = b"\"choices\":[";
    /// From here on white space may stand between the bytes.
    const LOOSE: usize = b"\"choices\"".len();

    fn has_some(&mut self, bytes: &[u8]) -> bool {
        for &byte in bytes {
            if self.some {
                break;
            }
            if self.matched >= Self::LOOSE && byte.is_ascii_whitespace() {
                continue;
            }
            if self.matched == Self::KEY.len() {
                if byte != b']' {
                    self.some = true;
                }
                self.matched = 0;
            } else if byte == Self::KEY[self.matched] {
                self.matched += 1;
            } else {
                self.matched = usize::from(byte == b'"');
            }
        }
        self.some
    }
}

#[cfg(test)]
pub(super) mod recorded;
#[cfg(test)]
mod tests;
