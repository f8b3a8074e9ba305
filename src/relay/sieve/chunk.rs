//! One event of a stream that may have to be edited: its bytes, and the JSON in them.

use bytes::{Bytes, BytesMut};

use crate::wire::{edit::Edits, event::Message};

#[derive(Clone)]
pub(super) struct Chunk {
    /// The event as it came, blank line included.
    pub(super) raw: Bytes,
    pub(super) message: Message,
}

impl Chunk {
    pub(super) fn json(&self) -> &Bytes {
        &self.message.data
    }

    /// The content with the edits made.
    pub(super) fn edited(&self, edits: &Edits) -> Message {
        Message {
            name: self.message.name.clone(),
            data: edits.apply(self.json()).to_bytes(),
        }
    }

    /// The event with another content; all around that stays.
    pub(super) fn with(&self, message: &Message) -> Bytes {
        let Some(at) = memchr::memmem::find(&self.raw, self.json()) else {
            // Data on several lines does not lie in the event as it is read.
            return event(message);
        };
        let after = &self.raw[at + self.json().len()..];
        [&self.raw[..at], &message.data[..], after].concat().into()
    }
}

/// An event of our own making.
pub(super) fn event(message: &Message) -> Bytes {
    let mut event = BytesMut::with_capacity(message.data.len() + 16);
    if !message.name.is_empty() {
        event.extend_from_slice(b"event: ");
        event.extend_from_slice(&message.name);
        event.extend_from_slice(b"\n");
    }
    for line in message.data.split(|byte| *byte == b'\n') {
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(line);
        event.extend_from_slice(b"\n");
    }
    event.extend_from_slice(b"\n");
    event.freeze()
}
