//! Removes proxy-executed calls and continuation blocks from a stream, and adds to its usage.
//!
//! An event is held only while it is undecided who executes a call in it, or whether a continuation
//! block begins at the end of its text. An event from which nothing is removed goes on as it came.
//! If an answer turns out to be for the proxy only ([`Rewriter::is_for_proxy`]), its end is dropped,
//! and the next answer's events follow as part of the same answer.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    current::{AnswerState, ParsedEvent},
    edits::JoinedResponse,
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerFilter, AssistantTurn, EventAction, PrecedingText, ResponseSummarizer,
        answer_rewriter::replace_data,
    },
};

/// Bytes of events held until their calls and texts are decided; beyond it they are decided at once.
const MAX_HELD: usize = 64 << 10;

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
    pub fn new(filter: AnswerFilter, left_out: Option<u32>) -> Self {
        Self {
            filter,
            joined: JoinedResponse::new(left_out),
            current: AnswerState::new(filter),
            held: VecDeque::new(),
            for_proxy: false,
        }
    }

    /// Whether the current answer was for the proxy only: what follows of it is read and dropped.
    pub const fn is_for_proxy(&self) -> bool {
        self.for_proxy
    }

    /// The current answer as the model gave it.
    pub fn to_assistant_turn(&self) -> AssistantTurn {
        self.current.to_assistant_turn()
    }

    pub const fn preceding_text(&self) -> PrecedingText {
        self.joined.visible.preceding_text()
    }

    /// Begins another answer; returns the one before.
    pub fn begin_answer(&mut self, summarizer: &mut ResponseSummarizer) -> AssistantTurn {
        let turn = self.to_assistant_turn();
        self.joined.begin_answer(turn.usage, summarizer);
        self.current = AnswerState::new(self.filter);
        self.for_proxy = false;
        turn
    }

    /// Sets the tokens left out of the request of the next answer.
    pub fn set_left_out(&mut self, left_out: Option<u32>) {
        self.joined.left_out = left_out.unwrap_or(0);
    }

    /// Takes the next event. Held events that are now decided go to `ready`, to be sent before it.
    pub fn take_event(
        &mut self,
        mut event: ParsedEvent,
        ready: &mut VecDeque<Bytes>,
        summarizer: &mut ResponseSummarizer,
    ) -> EventAction {
        if self.for_proxy {
            self.current.take_usage(&event.answer);
            return EventAction::Drop;
        }
        self.current.take_event(&mut event);
        if event.answer.is_end() {
            self.settle_answer(ready, summarizer);
            // Some providers give no finish reason.
            self.for_proxy = self.current.finish.is_none() && self.current.is_for_proxy();
            if self.for_proxy {
                return EventAction::Drop;
            }
            summarizer.add_events(&[], &event.answer.events);
            return EventAction::Pass;
        }
        self.release_held(ready, summarizer);
        let may_pass = self.held.is_empty()
            || (event.can_overtake() && self.held.iter().all(ParsedEvent::has_only_calls));
        if event.answer.first.is_some() && !(may_pass && self.current.is_decided(&event)) {
            self.held.push_back(event);
            let held: usize = self.held.iter().map(|held| held.raw.len()).sum();
            if held > MAX_HELD {
                self.settle_answer(ready, summarizer);
            }
            return EventAction::Hold;
        }
        self.for_proxy = event.answer.find_finish().is_some() && self.current.is_for_proxy();
        self.rewrite_event(&event, summarizer)
    }

    /// Decides what is undecided, since nothing more comes, and releases all held events.
    pub fn settle_answer(
        &mut self,
        ready: &mut VecDeque<Bytes>,
        summarizer: &mut ResponseSummarizer,
    ) {
        self.current.settle_answer();
        self.release_held(ready, summarizer);
    }

    /// Releases held events up to the first that is undecided.
    fn release_held(&mut self, ready: &mut VecDeque<Bytes>, summarizer: &mut ResponseSummarizer) {
        while let Some(held) = self.held.pop_front() {
            if !self.current.is_decided(&held) {
                self.held.push_front(held);
                return;
            }
            match self.rewrite_event(&held, summarizer) {
                EventAction::Pass => ready.push_back(held.raw),
                EventAction::Replace(bytes) => ready.push_back(bytes),
                EventAction::Drop | EventAction::Hold => {}
            }
        }
    }

    /// Removes from an event what is not for the client.
    fn rewrite_event(
        &mut self,
        event: &ParsedEvent,
        summarizer: &mut ResponseSummarizer,
    ) -> EventAction {
        let (joined, closing) = (&mut self.joined, self.for_proxy);
        let mut edits = Edits::default();
        if !joined.edit_event(event, &mut self.current, closing, &mut edits, summarizer) {
            return EventAction::Drop;
        }
        if edits.is_empty() {
            return EventAction::Pass;
        }
        let json = edits.apply(&event.message.data).to_bytes();
        EventAction::Replace(replace_data(&event.raw, &event.message, &json))
    }
}
