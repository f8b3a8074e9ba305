//! Holds the events of a stream until it is known whose they are, and joins several answers into
//! one.
//!
//! If an answer turns out to be for the proxy only ([`FormatRewriter::is_for_proxy`]), its end is
//! dropped, and the next answer's events follow as part of the same answer.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{AnswerState, EventAction, JoinedResponse, replace_data};
use crate::{
    conversation::edit::Edits,
    format::{AnswerFilter, AssistantTurn, PrecedingText, ResponseSummarizer},
    wire::sse::SseMessage,
};

/// Bytes of events held until their calls and texts are decided; beyond it they are decided at once.
const MAX_HELD: usize = 64 << 10;

/// Rewrites the answers of one response to a client, one after another.
pub struct FormatRewriter<S: AnswerState> {
    filter: AnswerFilter,
    pub(in crate::format) joined: JoinedResponse<S>,
    pub(in crate::format) current: S,
    pub(in crate::format) held: VecDeque<ParsedEvent<S>>,
    pub(in crate::format) for_proxy: bool,
}

/// An event of a stream, or a whole answer.
pub struct ParsedEvent<S: AnswerState> {
    /// Its bytes as they came, blank line included; empty for a whole answer.
    pub(in crate::format) raw: Bytes,
    pub(in crate::format) message: SseMessage,
    pub(in crate::format) answer: S::Answer,
    pub(in crate::format) tracked: S::Tracked,
}

impl<S: AnswerState> ParsedEvent<S> {
    /// `raw`: the bytes as they came, blank line included.
    pub(in crate::format) fn new(raw: Bytes, message: SseMessage, answer: S::Answer) -> Self {
        Self {
            raw,
            message,
            answer,
            tracked: S::Tracked::default(),
        }
    }
}

impl<S: AnswerState> FormatRewriter<S> {
    pub(super) fn new(filter: AnswerFilter, left_out: Option<u32>) -> Self {
        let joined = JoinedResponse::new(left_out);
        Self {
            filter,
            current: S::new(filter, &joined.sent),
            joined,
            held: VecDeque::new(),
            for_proxy: false,
        }
    }

    pub(super) const fn is_for_proxy(&self) -> bool {
        self.for_proxy
    }

    pub(in crate::format) fn to_assistant_turn(&self) -> AssistantTurn {
        let (facts, (proxy_calls, client_calls)) =
            (self.current.facts(), self.current.count_calls());
        let mut package = facts.build_block(proxy_calls + client_calls > 0);
        if let Some(package) = &mut package {
            // White space before it may be gone with its block.
            let visible = self.joined.visible.answer_chars();
            package.before_chars = package.before_chars.min(visible);
        }
        let (message, proxy_calls) = match proxy_calls > 0 || package.is_some() {
            true => self.current.assemble(),
            false => Default::default(),
        };
        AssistantTurn {
            message: message.into(),
            proxy_calls,
            client_calls,
            package,
            usage: facts.usage,
        }
    }

    pub(super) const fn preceding_text(&self) -> PrecedingText {
        self.joined.visible.preceding_text()
    }

    pub(in crate::format) fn begin_answer(
        &mut self,
        summarizer: &mut ResponseSummarizer,
    ) -> AssistantTurn {
        let turn = self.to_assistant_turn();
        self.joined.begin_answer(turn.usage, summarizer);
        self.current = S::new(self.filter, &self.joined.sent);
        self.for_proxy = false;
        turn
    }

    pub(super) fn set_left_out(&mut self, left_out: Option<u32>) {
        self.joined.left_out = left_out.unwrap_or(0);
    }

    /// Whether more is held than may wait.
    pub(in crate::format) fn holds_too_much(&self) -> bool {
        let held: usize = self.held.iter().map(|held| held.raw.len()).sum();
        held > MAX_HELD
    }

    pub(in crate::format) fn settle_answer(
        &mut self,
        ready: &mut VecDeque<Bytes>,
        summarizer: &mut ResponseSummarizer,
    ) {
        self.current.settle(&mut self.held);
        self.release_held(ready, summarizer);
    }

    /// Releases held events up to the first that is undecided.
    pub(in crate::format) fn release_held(
        &mut self,
        ready: &mut VecDeque<Bytes>,
        summarizer: &mut ResponseSummarizer,
    ) {
        self.current.decide_held(&mut self.held);
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
    pub(in crate::format) fn rewrite_event(
        &mut self,
        event: &ParsedEvent<S>,
        summarizer: &mut ResponseSummarizer,
    ) -> EventAction {
        let (current, joined) = (&mut self.current, &mut self.joined);
        let mut edits = Edits::default();
        if !current.edit_event(joined, event, self.for_proxy, &mut edits, summarizer) {
            return EventAction::Drop;
        }
        if edits.is_empty() {
            return EventAction::Pass;
        }
        let json = edits.apply(&event.message.data).to_bytes();
        EventAction::Replace(replace_data(&event.raw, &event.message, &json))
    }
}
