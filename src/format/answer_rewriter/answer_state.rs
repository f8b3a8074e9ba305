//! What a rewriter knows of the current answer, and what each format adds to that.

use std::collections::VecDeque;

use super::{JoinedResponse, ParsedEvent};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerEvent, AnswerFilter, ContinuationBlock, FinishKind, ProxyToolCall,
        ResponseSummarizer, answer::AnswerEvents, continuation::ContinuationScanner, usage::Usage,
    },
};

/// The current answer in one format: whose its calls and texts are.
pub trait AnswerState: Sized {
    /// An event of a stream, or a whole answer, as it was read.
    type Answer: AnswerEvents;
    /// What is known of an event until it is released.
    type Tracked: Default;
    /// What the client has of all answers of the response so far.
    type Sent: Default;

    /// The format keeps the texts of two answers apart, so that no blank line is added.
    const TEXTS_ARE_APART: bool;

    fn new(filter: AnswerFilter, sent: &Self::Sent) -> Self;

    fn facts(&self) -> &AnswerFacts;

    /// How many calls are the proxy's, and how many the client's.
    fn count_calls(&self) -> (u32, u32);

    /// The message as a request would carry it, empty if it was too long or is not JSON, and the
    /// calls of proxy-executed tools.
    fn assemble(&self) -> (String, Vec<ProxyToolCall>);

    /// Decides all calls and texts, since nothing more comes or can be waited for.
    fn settle(&mut self, held: &mut VecDeque<ParsedEvent<Self>>);

    /// Decides held events in their order, up to the first that is undecided.
    fn decide_held(&mut self, _held: &mut VecDeque<ParsedEvent<Self>>) {}

    /// Whether it is known what the client gets of an event.
    fn is_decided(&self, event: &ParsedEvent<Self>) -> bool;

    /// Edits an event for the client and reports to the summarizer what the client gets of it.
    /// Returns whether anything is left. With `closing`, another answer follows.
    fn edit_event(
        &mut self,
        joined: &mut JoinedResponse<Self>,
        event: &ParsedEvent<Self>,
        closing: bool,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) -> bool;

    /// Whether the answer, which is over, was for the proxy only, so that another one follows.
    fn is_for_proxy(&self) -> bool {
        let (facts, (proxy_calls, client_calls)) = (self.facts(), self.count_calls());
        let is_cut_off = facts.finish.is_some_and(FinishKind::is_cut_off);
        let is_block_only = || facts.build_block(false).is_some_and(|block| block.alone);
        !facts.error && client_calls == 0 && !is_cut_off && (proxy_calls > 0 || is_block_only())
    }
}

/// What is known of an answer in any format.
pub struct AnswerFacts {
    pub(in crate::format) has_filter: bool,
    /// `None` where continuation blocks stay in the text.
    pub(in crate::format) scanner: Option<ContinuationScanner>,
    pub(in crate::format) finish: Option<FinishKind>,
    pub(super) usage: Option<Usage>,
    /// The provider reported an error.
    error: bool,
}

impl AnswerFacts {
    pub(in crate::format) fn new(filter: AnswerFilter) -> Self {
        Self {
            has_filter: filter.is_active(),
            scanner: filter.package.then(ContinuationScanner::default),
            finish: None,
            usage: None,
            error: false,
        }
    }

    /// Takes usage, error and finish reason.
    pub(in crate::format) fn take_answer(&mut self, answer: &impl AnswerEvents) {
        self.error |= answer.has_error();
        for event in answer.events() {
            if let AnswerEvent::Usage(report) = event
                && let Some(usage) = report.usage
            {
                self.usage = Some(Usage::latest_report(self.usage, usage));
            }
        }
        if let Some(finish) = answer.find_finish() {
            self.finish = Some(finish.kind);
        }
    }

    /// Takes half a tag for text, since nothing more of it comes.
    pub(in crate::format) fn give_up_tag(&mut self) {
        if let Some(scanner) = &mut self.scanner {
            scanner.give_up();
        }
    }

    pub(super) fn build_block(&self, has_calls: bool) -> Option<ContinuationBlock> {
        self.scanner.as_ref()?.build_block(has_calls)
    }
}
