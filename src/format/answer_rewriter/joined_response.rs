//! What one response to the client keeps over its answers.

use bytes::Bytes;

use super::AnswerState;
use crate::{
    conversation::edit::Edits,
    format::{
        ResponseSummarizer, UsageCount, UsageCountKind, UsageReport, usage::Usage,
        visible_text::VisibleText,
    },
};

pub struct JoinedResponse<S: AnswerState> {
    pub(in crate::format) visible: VisibleText,
    /// Tokens left out of the request of the current answer.
    pub(in crate::format) left_out: u32,
    /// The raw id of the first answer, without quotes.
    pub(in crate::format) first_id: Option<Bytes>,
    /// This is not the first answer.
    pub(in crate::format) continued: bool,
    /// Completion tokens of the answers before.
    pub(in crate::format) earlier_completion_tokens: u32,
    /// What earlier whole answers have for the client, as raw text or blocks that go before those of
    /// the last answer.
    pub(in crate::format) earlier_content: Vec<u8>,
    pub(in crate::format) sent: S::Sent,
}

impl<S: AnswerState> JoinedResponse<S> {
    /// `left_out`: tokens left out of the request, which are added to the prompt tokens of its answer.
    pub(in crate::format) fn new(left_out: Option<u32>) -> Self {
        Self {
            visible: VisibleText::new(S::TEXTS_ARE_APART),
            left_out: left_out.unwrap_or(0),
            first_id: None,
            continued: false,
            earlier_completion_tokens: 0,
            earlier_content: Vec::new(),
            sent: S::Sent::default(),
        }
    }

    /// Begins the next answer. `usage` is that of the answer before.
    pub(super) fn begin_answer(
        &mut self,
        usage: Option<Usage>,
        summarizer: &mut ResponseSummarizer,
    ) {
        let tokens = usage.and_then(|usage| usage.completion_tokens);
        let sum = self.earlier_completion_tokens;
        self.earlier_completion_tokens = sum.saturating_add(tokens.unwrap_or(0));
        self.continued = true;
        self.visible.begin_answer(summarizer);
        summarizer.begin_answer();
    }

    /// A report with the completion tokens of earlier answers, which the client pays for too.
    pub(in crate::format) fn add_completions(&self, usage: Usage) -> Usage {
        let add = |tokens: u32| tokens.saturating_add(self.earlier_completion_tokens);
        Usage {
            completion_tokens: usage.completion_tokens.map(add),
            ..usage
        }
    }

    /// Adds the tokens that were left out of the request and the completion tokens of earlier
    /// answers, which the client pays for too.
    pub(in crate::format) fn edit_usage(&self, report: &UsageReport, edits: &mut Edits) {
        // Some providers report a prompt of 0 before they know the count.
        let is_unknown =
            |count: &UsageCount| count.kind == UsageCountKind::Prompt && count.tokens == 0;
        if report.counts.iter().any(is_unknown) {
            return;
        }
        let left_out = u64::from(self.left_out);
        let completion = u64::from(self.earlier_completion_tokens);
        for count in &report.counts {
            let more = match count.kind {
                UsageCountKind::Prompt => left_out,
                UsageCountKind::Completion => completion,
                UsageCountKind::Total => left_out + completion,
            };
            if more > 0 && (count.tokens > 0 || count.kind == UsageCountKind::Completion) {
                edits.replace(count.span, (u64::from(count.tokens) + more).to_string());
            }
        }
    }
}
