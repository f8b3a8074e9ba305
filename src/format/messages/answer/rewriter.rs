//! Removes proxy-executed calls and continuation blocks from a stream, and adds to its usage.
//!
//! A call is decided where its block begins, by its name. Events of a text are held only while a
//! continuation block may begin at its end, and where it begins, until there is text for the
//! client: a block without any goes as a whole. An event from which nothing is removed goes on as
//! it came, and in its order, but for pings while a text is hidden. If an answer turns out to be for
//! the proxy only ([`Rewriter::is_for_proxy`]), its end is dropped, and the next answer's blocks
//! follow in the same message.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    EventKind,
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

/// Bytes of events held until their texts are decided; beyond it they are decided at once.
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
        let mut turn = self.current.to_assistant_turn();
        if let Some(package) = &mut turn.package {
            // White space before it may be gone with its block.
            let visible = self.joined.visible.answer_chars();
            package.before_chars = package.before_chars.min(visible);
        }
        turn
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
            self.current.take_facts(&event.answer);
            return EventAction::Drop;
        }
        self.current.take_event(&mut event);
        let is_end = event.answer.kind == EventKind::MessageStop;
        let is_finish = event.answer.find_finish().is_some();
        if is_end || is_finish || event.answer.has_error() {
            self.settle_answer(ready, summarizer);
            // Some providers give no stop reason.
            let is_over = is_finish || (is_end && self.current.finish.is_none());
            self.for_proxy = is_over && self.current.is_for_proxy();
            if self.for_proxy {
                return EventAction::Drop;
            }
        }
        // A client waits for pings while a long text is hidden from it.
        let keeps_order = event.slot.is_some() || !self.current.blocks.is_hiding_text();
        if !keeps_order {
            return self.rewrite_event(&event, summarizer);
        }
        if self.held.is_empty()
            && self.current.decide_event(&mut event)
            && self.current.is_released(&event)
        {
            return self.rewrite_event(&event, summarizer);
        }
        self.held.push_back(event);
        self.release_held(ready, summarizer);
        let held: usize = self.held.iter().map(|held| held.raw.len()).sum();
        if held > MAX_HELD {
            self.current.blocks.keep_all();
            self.settle_answer(ready, summarizer);
        }
        EventAction::Hold
    }

    /// Decides what is undecided, since nothing more comes, and releases all held events.
    pub fn settle_answer(
        &mut self,
        ready: &mut VecDeque<Bytes>,
        summarizer: &mut ResponseSummarizer,
    ) {
        self.current.give_up_tag();
        self.decide_held();
        self.current.blocks.end_all();
        self.release_held(ready, summarizer);
    }

    fn decide_held(&mut self) {
        let current = &mut self.current;
        let _ = self.held.iter_mut().all(|held| current.decide_event(held));
        self.held.retain(|held| !held.is_hidden());
    }

    /// Releases held events up to the first that is undecided.
    fn release_held(&mut self, ready: &mut VecDeque<Bytes>, summarizer: &mut ResponseSummarizer) {
        self.decide_held();
        while let Some(held) = self.held.pop_front() {
            if !self.current.is_released(&held) {
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
        let mut edits = Edits::default();
        let joined = &mut self.joined;
        if !joined.edit_event(event, &self.current, &mut edits, summarizer) {
            return EventAction::Drop;
        }
        if edits.is_empty() {
            return EventAction::Pass;
        }
        let json = edits.apply(&event.message.data).to_bytes();
        EventAction::Replace(replace_data(&event.raw, &event.message, &json))
    }
}
