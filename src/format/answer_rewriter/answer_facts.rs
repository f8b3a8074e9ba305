//! What is known of an answer in any format.

use crate::format::{
    AnswerEvent, AnswerFilter, ContinuationBlock, FinishKind,
    answer::{AnswerEvents, continuation::ContinuationScanner, usage::Usage},
};

pub(in crate::format) struct AnswerFacts {
    pub(super) has_filter: bool,
    /// `None` where continuation blocks stay in the text.
    pub(in crate::format) scanner: Option<ContinuationScanner>,
    pub(super) finish: Option<FinishKind>,
    pub(super) usage: Option<Usage>,
    /// The provider reported an error.
    pub(super) error: bool,
}

impl AnswerFacts {
    pub(super) fn new(filter: AnswerFilter) -> Self {
        Self {
            has_filter: filter.is_active(),
            scanner: filter.package.then(ContinuationScanner::default),
            finish: None,
            usage: None,
            error: false,
        }
    }

    /// Takes usage, error and finish reason.
    pub(super) fn take_answer(&mut self, answer: &impl AnswerEvents) {
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
