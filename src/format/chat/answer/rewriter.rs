//! Removes proxy-executed calls and continuation blocks from a stream, and adds to its usage.
//!
//! An event is held only while it is undecided who executes a call in it, or whether a continuation
//! block begins at the end of its text. An event from which nothing is removed goes on as it came.

use std::collections::VecDeque;

use bytes::Bytes;

use super::current::{ChatAnswerState, ChatEvent};
use crate::format::{
    AnswerEvents, EventAction, ResponseSummarizer,
    answer_rewriter::{AnswerState, FormatRewriter},
};

impl FormatRewriter<ChatAnswerState> {
    /// Takes the next event. Held events that are now decided go to `ready`, to be sent before it.
    pub fn take_event(
        &mut self,
        mut event: ChatEvent,
        ready: &mut VecDeque<Bytes>,
        summarizer: &mut ResponseSummarizer,
    ) -> EventAction {
        if self.for_proxy {
            self.current.facts.take_answer(&event.answer);
            return EventAction::Drop;
        }
        self.current.take_event(&mut event);
        if event.answer.is_end() {
            self.settle_answer(ready, summarizer);
            // Some providers give no finish reason.
            self.for_proxy = self.current.facts.finish.is_none() && self.current.is_for_proxy();
            return match self.for_proxy {
                true => EventAction::Drop,
                false => self.rewrite_event(&event, summarizer),
            };
        }
        self.release_held(ready, summarizer);
        let may_pass = self.held.is_empty()
            || (event.can_overtake() && self.held.iter().all(ChatEvent::has_only_calls));
        if event.answer.first.is_some() && !(may_pass && self.current.is_decided(&event)) {
            self.held.push_back(event);
            if self.holds_too_much() {
                self.settle_answer(ready, summarizer);
            }
            return EventAction::Hold;
        }
        self.for_proxy = event.answer.find_finish().is_some() && self.current.is_for_proxy();
        self.rewrite_event(&event, summarizer)
    }
}
