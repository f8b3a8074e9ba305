//! Holds the events of a stream until it is known who gets them, and joins several answers into one.
//!
//! If an answer turns out to be for the proxy only (`for_proxy`), its end is
//! dropped, and the next answer's events follow as part of the same answer.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    BlockAnswer, BlockState, EventAction, JoinedResponse, block_state::TrackedEvent,
    block_tracker::TrackedBlock, replace_data,
};
use crate::{
    conversation::edit::Edits,
    format::{AnswerFilter, ModelAnswer},
    wire::sse::SseMessage,
};

/// Bytes of events that are held until it is decided who gets their calls and texts. Above this limit, they are decided
/// at once.
const MAX_HELD: usize = 64 << 10;

/// Rewrites the answers of one response to a client, one after another.
pub struct FormatRewriter<A: BlockAnswer> {
    filter: AnswerFilter,
    pub(in crate::format) joined: JoinedResponse<A>,
    pub(in crate::format) current: BlockState<A>,
    held: VecDeque<ParsedEvent<A>>,
    /// The current answer was for the proxy only. The rest of it is read and dropped.
    pub(super) for_proxy: bool,
}

/// An event of a stream, or a whole answer.
pub struct ParsedEvent<A: BlockAnswer> {
    /// Its bytes as they came, blank line included; empty for a whole answer.
    pub(in crate::format) raw: Bytes,
    pub(in crate::format) message: SseMessage,
    pub(in crate::format) answer: A,
    pub(in crate::format) tracked: TrackedEvent,
}

impl<A: BlockAnswer> ParsedEvent<A> {
    /// `raw`: the bytes as they came, blank line included.
    pub(in crate::format) fn new(raw: Bytes, message: SseMessage, answer: A) -> Self {
        Self {
            raw,
            message,
            answer,
            tracked: TrackedEvent::default(),
        }
    }
}

impl<A: BlockAnswer> FormatRewriter<A> {
    pub(super) fn new(filter: AnswerFilter, left_out: Option<u32>) -> Self {
        let joined = JoinedResponse::new(left_out);
        Self {
            filter,
            current: BlockState::new(filter, joined.next_index),
            joined,
            held: VecDeque::new(),
            for_proxy: false,
        }
    }

    pub(in crate::format) fn to_model_answer(&self) -> ModelAnswer {
        let (proxy_calls, client_calls) = self.current.blocks.count_calls();
        let mut package = self.current.build_block(proxy_calls + client_calls > 0);
        if let Some(package) = &mut package {
            // White space before the continuation block may have been removed with the block that it was in.
            let visible = self.joined.visible.answer_chars();
            package.before_chars = package.before_chars.min(visible);
        }
        let (message, proxy_calls) = if proxy_calls > 0 || package.is_some() {
            self.current.assemble()
        } else {
            Default::default()
        };
        ModelAnswer {
            message: message.into(),
            proxy_calls,
            client_calls,
            package,
            usage: self.current.usage,
        }
    }

    pub(in crate::format) fn begin_answer(&mut self) -> ModelAnswer {
        let said = self.to_model_answer();
        self.joined.begin_answer(said.usage);
        self.current = BlockState::new(self.filter, self.joined.next_index);
        self.for_proxy = false;
        said
    }

    /// Takes the next event. Held events that are now decided go to `ready`, to be sent before it.
    pub(super) fn take_event(
        &mut self,
        mut event: ParsedEvent<A>,
        ready: &mut VecDeque<Bytes>,
    ) -> EventAction {
        if self.for_proxy {
            self.current.take_reports(&event.answer);
            return EventAction::Drop;
        }
        self.current.take_event(&mut event);
        let is_last = event.answer.is_last();
        let is_finish = event.answer.find_finish().is_some();
        if is_last || is_finish || (A::IS_LIST && event.answer.has_error()) {
            self.release_all(ready);
            // Some providers give no reason why an answer ended.
            let is_over = is_finish || (is_last && self.current.finish.is_none());
            self.for_proxy = is_over && self.current.is_for_proxy();
            if self.for_proxy && (A::IS_LIST || is_last) {
                A::keep_last_event(&mut self.joined, &event, &self.current);
                return EventAction::Drop;
            }
        }
        let is_next =
            self.held.is_empty() || A::may_overtake(&event, &self.held, &self.current.blocks);
        if is_next && self.current.decide_event(&mut event) && self.current.is_decided(&event) {
            return self.rewrite_event(&event);
        }
        self.held.push_back(event);
        self.release_held(ready);
        let held: usize = self.held.iter().map(|held| held.raw.len()).sum();
        if held > MAX_HELD {
            self.current.blocks.keep_texts();
            self.release_all(ready);
        }
        EventAction::Hold
    }

    /// Decides what is undecided, since nothing more comes, and releases all held events.
    pub(super) fn release_all(&mut self, ready: &mut VecDeque<Bytes>) {
        self.current.settle(&mut self.held);
        self.release_held(ready);
    }

    /// Releases held events up to the first that is undecided.
    fn release_held(&mut self, ready: &mut VecDeque<Bytes>) {
        self.current.decide_held(&mut self.held);
        while let Some(held) = self.held.pop_front() {
            if !self.current.is_decided(&held) {
                self.held.push_front(held);
                return;
            }
            match self.rewrite_event(&held) {
                EventAction::Pass => ready.push_back(held.raw),
                EventAction::Replace(bytes) => ready.push_back(bytes),
                EventAction::Drop | EventAction::Hold => {}
            }
        }
    }

    /// Removes from an event what is not for the client.
    fn rewrite_event(&mut self, event: &ParsedEvent<A>) -> EventAction {
        let (current, joined) = (&self.current, &mut self.joined);
        let mut edits = Edits::default();
        if current.is_removed(event)
            || !A::edit_event(joined, event, current, self.for_proxy, &mut edits)
        {
            return EventAction::Drop;
        }
        joined.edit_model(&event.message.data, &event.answer, &mut edits);
        let only = A::ONLY_BLOCK.filter(|_| {
            let blocks = &current.blocks.blocks;
            let had_any = joined.continued || !blocks.is_empty();
            let has_none = joined.next_index == 0 && blocks.iter().all(TrackedBlock::is_removed);
            event.answer.find_finish().is_some() && had_any && has_none
        });
        if edits.is_empty() && only.is_none() {
            return EventAction::Pass;
        }
        let json = edits.apply(&event.message.data).to_bytes();
        let edited = replace_data(&event.raw, &event.message, &json);
        EventAction::Replace(match only {
            Some([text, _, events]) => {
                let text = text.as_bytes().into();
                joined.visible.push_text(text, &mut joined.summarizer);
                [events.as_bytes(), &edited].concat().into()
            }
            None => edited,
        })
    }
}
