//! Takes proxy-executed calls and continuation blocks out of a stream, and adds to its usage.
//!
//! An event waits only while nobody can say who executes a call in it, or whether a continuation block
//! begins at the end of its text; one that says nothing to be taken out goes on as it came. Where an
//! answer turns out to be for the proxy alone, its end stays behind ([`Rewriter::is_round`]), and
//! the next answer's events go on as if they were the same answer's.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::{
    current::{Current, TakenEvent},
    edits::Joined,
};
use crate::{
    conversation::edit::Edits,
    format::{Before, Listener, Sifting, Spoken},
    wire::event::Message,
};

/// Bytes of events held back until their calls and texts are decided.
const MAX_HELD: usize = 64 << 10;

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on as it came.
    Pass,
    /// These bytes go on in its place.
    Replace(Bytes),
    Drop,
    /// It waits in the rewriter.
    Hold,
}

/// Rewrites the answers of one response to a client, one after another.
pub struct Rewriter {
    sifting: Sifting,
    pub(super) joined: Joined,
    pub(super) current: Current,
    held: VecDeque<TakenEvent>,
    round: bool,
}

impl Rewriter {
    /// `left_out`: tokens left out of the request, which are added to the prompt tokens of its answer.
    pub fn new(sifting: Sifting, left_out: Option<u32>) -> Self {
        Self {
            sifting,
            joined: Joined::new(left_out),
            current: Current::new(sifting),
            held: VecDeque::new(),
            round: false,
        }
    }

    /// Whether the answer was for the proxy alone: what follows of it is looked at, and goes nowhere.
    pub const fn is_round(&self) -> bool {
        self.round
    }

    /// What the current answer said.
    pub fn spoken(&self) -> Spoken {
        self.current.spoken()
    }

    /// What the client saw before the current answer.
    pub const fn before(&self) -> Before {
        self.joined.visible.before()
    }

    /// Another answer comes; gives what the one before said.
    pub fn begin_answer(&mut self, listener: &mut Listener) -> Spoken {
        let spoken = self.spoken();
        self.joined.begin_answer(spoken.usage, listener);
        self.current = Current::new(self.sifting);
        self.round = false;
        spoken
    }

    /// What was left out of the request whose answer comes.
    pub fn set_left_out(&mut self, left_out: Option<u32>) {
        self.joined.left_out = left_out.unwrap_or(0);
    }

    /// Takes the next event. What was held and is decided now goes to `ready`, to be sent ahead of it.
    pub fn take_event(
        &mut self,
        mut event: TakenEvent,
        ready: &mut VecDeque<Bytes>,
        listener: &mut Listener,
    ) -> Verdict {
        if self.round {
            self.current.report(&event.answer);
            return Verdict::Drop;
        }
        self.current.take_event(&mut event);
        if event.answer.is_end() {
            self.settle(ready, listener);
            // Some providers give no finish reason.
            self.round = self.current.finish.is_none() && self.current.is_own();
            if self.round {
                return Verdict::Drop;
            }
            listener.hear(&[], &event.answer.events);
            return Verdict::Pass;
        }
        let last = event.answer.finish().is_some();
        self.release(ready, listener);
        let waits = !self.current.is_decided(&event)
            || !(self.held.is_empty()
                || event.overtakes() && self.held.iter().all(TakenEvent::only_calls));
        if event.answer.first.is_some() && waits {
            self.held.push_back(event);
            let held: usize = self.held.iter().map(|held| held.raw.len()).sum();
            if held > MAX_HELD {
                self.settle(ready, listener);
            }
            return Verdict::Hold;
        }
        self.round = last && self.current.is_own();
        self.rewrite(&event, listener)
    }

    /// Nothing more comes of what is still undecided.
    pub fn settle(&mut self, ready: &mut VecDeque<Bytes>, listener: &mut Listener) {
        self.current.settle();
        self.release(ready, listener);
    }

    /// Lets go what was held and is decided.
    fn release(&mut self, ready: &mut VecDeque<Bytes>, listener: &mut Listener) {
        while let Some(held) = self.held.pop_front() {
            if !self.current.is_decided(&held) {
                self.held.push_front(held);
                return;
            }
            match self.rewrite(&held, listener) {
                Verdict::Pass => ready.push_back(held.raw),
                Verdict::Replace(bytes) => ready.push_back(bytes),
                Verdict::Drop | Verdict::Hold => {}
            }
        }
    }

    /// Takes out of an event what is not for the client.
    fn rewrite(&mut self, event: &TakenEvent, listener: &mut Listener) -> Verdict {
        let mut edits = Edits::default();
        let kept =
            self.joined
                .edit_event(event, &mut self.current, self.round, &mut edits, listener);
        if !kept {
            return Verdict::Drop;
        }
        if edits.is_empty() {
            return Verdict::Pass;
        }
        let json = edits.apply(&event.message.data).to_bytes();
        Verdict::Replace(replace_data(&event.raw, &event.message, &json))
    }
}

/// The event with another content; all around that stays.
fn replace_data(raw: &[u8], message: &Message, json: &[u8]) -> Bytes {
    if let Some(at) = memchr::memmem::find(raw, &message.data) {
        let after = &raw[at + message.data.len()..];
        return [&raw[..at], json, after].concat().into();
    }
    // Data on several lines does not lie in the event as it is read.
    let mut event = BytesMut::with_capacity(json.len() + 16);
    if !message.name.is_empty() {
        event.extend_from_slice(b"event: ");
        event.extend_from_slice(&message.name);
        event.extend_from_slice(b"\n");
    }
    for line in json.split(|byte| *byte == b'\n') {
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(line);
        event.extend_from_slice(b"\n");
    }
    event.extend_from_slice(b"\n");
    event.freeze()
}
