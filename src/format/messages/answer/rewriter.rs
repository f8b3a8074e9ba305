//! Removes proxy-executed calls and continuation blocks from a stream, and adds to its usage.
//!
//! A call is decided where its block begins, by its name. Events of a text are held only while a
//! continuation block may begin at its end, and where it begins, until there is text for the
//! client: a block without any goes as a whole. An event from which nothing is removed goes on as
//! it came, and in its order, but for pings while a text is hidden.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    EventKind,
    current::{MessagesAnswerState, MessagesEvent},
};
use crate::format::{
    AnswerEvents, EventAction, ResponseSummarizer,
    answer_rewriter::{AnswerState, FormatRewriter},
};

impl FormatRewriter<MessagesAnswerState> {
    /// Takes the next event. Held events that are now decided go to `ready`, to be sent before it.
    pub fn take_event(
        &mut self,
        mut event: MessagesEvent,
        ready: &mut VecDeque<Bytes>,
        summarizer: &mut ResponseSummarizer,
    ) -> EventAction {
        if self.for_proxy {
            self.current.facts.take_answer(&event.answer);
            return EventAction::Drop;
        }
        self.current.take_event(&mut event);
        let is_end = event.answer.kind == EventKind::MessageStop;
        let is_finish = event.answer.find_finish().is_some();
        if is_end || is_finish || event.answer.has_error() {
            self.settle_answer(ready, summarizer);
            // Some providers give no stop reason.
            let is_over = is_finish || (is_end && self.current.facts.finish.is_none());
            self.for_proxy = is_over && self.current.is_for_proxy();
            if self.for_proxy {
                return EventAction::Drop;
            }
        }
        // A client waits for pings while a long text is hidden from it.
        let keeps_order = event.tracked.slot.is_some() || !self.current.blocks.is_hiding_text();
        if !keeps_order {
            return self.rewrite_event(&event, summarizer);
        }
        if self.held.is_empty()
            && self.current.decide_event(&mut event)
            && self.current.is_decided(&event)
        {
            return self.rewrite_event(&event, summarizer);
        }
        self.held.push_back(event);
        self.release_held(ready, summarizer);
        if self.holds_too_much() {
            self.current.blocks.keep_all();
            self.settle_answer(ready, summarizer);
        }
        EventAction::Hold
    }
}
