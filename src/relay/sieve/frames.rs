//! The bytes of a stream, event by event.
//!
//! Of an event without its end everything is held, since only the whole tells whether anything of
//! ours is in it; one that passes [`MAX_EVENT`] goes on as it is.

use bytes::Bytes;

use crate::wire::{
    event::{Message, Splitter},
    gather::Gather,
};

/// Bytes of one event that are held.
const MAX_EVENT: usize = 2 << 20;

#[derive(Debug)]
pub(super) enum Part {
    /// An event, or what is none (`message` is `None`): all its bytes.
    Event {
        raw: Bytes,
        message: Option<Message>,
    },
    /// Bytes of an event that is too long.
    Overlong(Bytes),
    /// The LF of a line end whose CR closed the event before.
    LateLf(Bytes),
}

pub(super) struct Frames {
    splitter: Splitter,
    pending: Gather,
    overlong: bool,
}

impl Frames {
    pub(super) fn new() -> Self {
        Self {
            splitter: Splitter::new(MAX_EVENT),
            pending: Gather::default(),
            overlong: false,
        }
    }

    pub(super) fn push(&mut self, chunk: Bytes) -> Vec<Part> {
        let mut parts = Vec::new();
        let between = self.pending.is_empty() && !self.overlong;
        let mut begin = 0;
        if between && self.splitter.after_cr() && chunk.first() == Some(&b'\n') {
            parts.push(Part::LateLf(chunk.slice(..1)));
            begin = 1;
        }
        self.splitter.push(chunk.clone());
        while let Some(event) = self.splitter.next_event() {
            let piece = chunk.slice(begin..event.end);
            begin = event.end;
            if std::mem::take(&mut self.overlong) {
                parts.push(Part::Overlong(piece));
                continue;
            }
            self.pending.push(piece);
            parts.push(Part::Event {
                raw: std::mem::take(&mut self.pending).finish(),
                message: event.message,
            });
        }
        let rest = chunk.slice(begin..);
        if rest.is_empty() {
            return parts;
        }
        if !self.overlong {
            self.pending.push(rest);
            self.overlong = self.pending.len() > MAX_EVENT;
            if self.overlong {
                let held = std::mem::take(&mut self.pending).finish();
                parts.push(Part::Overlong(held));
            }
        } else {
            parts.push(Part::Overlong(rest));
        }
        parts
    }

    /// What was begun when the stream ended.
    pub(super) fn finish(&mut self) -> Option<(Bytes, Option<Message>)> {
        let message = self.splitter.finish().and_then(|event| event.message);
        let raw = std::mem::take(&mut self.pending).finish();
        (!raw.is_empty()).then_some((raw, message))
    }
}
