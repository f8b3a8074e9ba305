//! Takes proxy-executed calls and continuation blocks out of a stream, and adds to its usage.
//!
//! An event waits only while nobody can say who executes a call in it, or whether a continuation block
//! begins at the end of its text; one that says nothing to be taken out goes on as it came. Where an
//! answer turns out to be for the proxy alone, its end stays behind ([`Rewriter::is_round`]), and
//! the next answer's events go on as if they were the same answer's.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::{
    current::{AnswerState, ParsedEvent},
    edits::JoinedResponse,
};
use crate::{
    conversation::edit::Edits,
    format::{AnswerFilter, AssistantTurn, PrecedingText, ResponseSummarizer},
    wire::sse::SseMessage,
};

/// Bytes of events held back until their calls and texts are decided.
const MAX_HELD: usize = 64 << 10;

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAction {
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
    filter: AnswerFilter,
    pub(super) joined: JoinedResponse,
    pub(super) current: AnswerState,
    held: VecDeque<ParsedEvent>,
    for_proxy: bool,
}

impl Rewriter {
    /// `left_out`: tokens left out of the request, which are added to the prompt tokens of its answer.
    pub fn new(sifting: AnswerFilter, left_out: Option<u32>) -> Self {
        Self {
            filter: sifting,
            joined: JoinedResponse::new(left_out),
            current: AnswerState::new(sifting),
            held: VecDeque::new(),
            for_proxy: false,
        }
    }

    /// Whether the answer was for the proxy alone: what follows of it is looked at, and goes nowhere.
    pub const fn is_for_proxy(&self) -> bool {
        self.for_proxy
    }

    /// What the current answer said.
    pub fn to_assistant_turn(&self) -> AssistantTurn {
        self.current.to_assistant_turn()
    }

    /// What the client saw before the current answer.
    pub const fn preceding_text(&self) -> PrecedingText {
        self.joined.visible.preceding_text()
    }

    /// Another answer comes; gives what the one before said.
    pub fn begin_answer(&mut self, listener: &mut ResponseSummarizer) -> AssistantTurn {
        let spoken = self.to_assistant_turn();
        self.joined.begin_answer(spoken.usage, listener);
        self.current = AnswerState::new(self.filter);
        self.for_proxy = false;
        spoken
    }

    /// What was left out of the request whose answer comes.
    pub fn set_left_out(&mut self, left_out: Option<u32>) {
        self.joined.left_out = left_out.unwrap_or(0);
    }

    /// Takes the next event. What was held and is decided now goes to `ready`, to be sent ahead of it.
    pub fn take_event(
        &mut self,
        mut event: ParsedEvent,
        ready: &mut VecDeque<Bytes>,
        listener: &mut ResponseSummarizer,
    ) -> EventAction {
        if self.for_proxy {
            self.current.take_usage(&event.answer);
            return EventAction::Drop;
        }
        self.current.take_event(&mut event);
        if event.answer.is_end() {
            self.settle_answer(ready, listener);
            // Some providers give no finish reason.
            self.for_proxy = self.current.finish.is_none() && self.current.is_for_proxy();
            if self.for_proxy {
                return EventAction::Drop;
            }
            listener.add_events(&[], &event.answer.events);
            return EventAction::Pass;
        }
        let last = event.answer.find_finish().is_some();
        self.release_held(ready, listener);
        let waits = !self.current.is_decided(&event)
            || !(self.held.is_empty()
                || event.can_overtake() && self.held.iter().all(ParsedEvent::has_only_calls));
        if event.answer.first.is_some() && waits {
            self.held.push_back(event);
            let held: usize = self.held.iter().map(|held| held.raw.len()).sum();
            if held > MAX_HELD {
                self.settle_answer(ready, listener);
            }
            return EventAction::Hold;
        }
        self.for_proxy = last && self.current.is_for_proxy();
        self.rewrite_event(&event, listener)
    }

    /// Nothing more comes of what is still undecided.
    pub fn settle_answer(
        &mut self,
        ready: &mut VecDeque<Bytes>,
        listener: &mut ResponseSummarizer,
    ) {
        self.current.settle_answer();
        self.release_held(ready, listener);
    }

    /// Lets go what was held and is decided.
    fn release_held(&mut self, ready: &mut VecDeque<Bytes>, listener: &mut ResponseSummarizer) {
        while let Some(held) = self.held.pop_front() {
            if !self.current.is_decided(&held) {
                self.held.push_front(held);
                return;
            }
            match self.rewrite_event(&held, listener) {
                EventAction::Pass => ready.push_back(held.raw),
                EventAction::Replace(bytes) => ready.push_back(bytes),
                EventAction::Drop | EventAction::Hold => {}
            }
        }
    }

    /// Takes out of an event what is not for the client.
    fn rewrite_event(
        &mut self,
        event: &ParsedEvent,
        listener: &mut ResponseSummarizer,
    ) -> EventAction {
        let mut edits = Edits::default();
        let kept = self.joined.edit_event(
            event,
            &mut self.current,
            self.for_proxy,
            &mut edits,
            listener,
        );
        if !kept {
            return EventAction::Drop;
        }
        if edits.is_empty() {
            return EventAction::Pass;
        }
        let json = edits.apply(&event.message.data).to_bytes();
        EventAction::Replace(replace_data(&event.raw, &event.message, &json))
    }
}

/// The event with another content; all around that stays.
fn replace_data(raw: &[u8], message: &SseMessage, json: &[u8]) -> Bytes {
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
