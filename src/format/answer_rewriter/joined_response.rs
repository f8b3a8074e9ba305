//! The state of one response to the client over all its answers.

use std::borrow::Cow;

use bytes::Bytes;

use super::{BlockAnswer, ParsedEvent};
use crate::{
    conversation::edit::Edits,
    format::{
        ResponseSummarizer, UsageCount, UsageCountKind, UsageReport,
        answer::{usage::Usage, visible_text::VisibleText},
    },
    json::scan::JsonString,
};

pub struct JoinedResponse<A: BlockAnswer> {
    pub(in crate::format) visible: VisibleText,
    /// Tokens left out of the request of the current answer.
    pub(in crate::format) left_out: u32,
    /// The model's name as the client asked for it, in quotes, where the provider was sent another one.
    pub(in crate::format) asked_model: Option<Bytes>,
    /// The raw id of the first answer, without quotes.
    pub(in crate::format) first_id: Option<Bytes>,
    /// This is not the first answer.
    pub(in crate::format) continued: bool,
    /// Completion tokens of the answers before.
    pub(in crate::format) earlier_completion_tokens: u32,
    /// What earlier whole answers have for the client: raw text, or blocks that are inserted before the blocks of the
    /// last answer.
    pub(in crate::format) earlier_content: Vec<u8>,
    /// The index that follows the index of the newest block that the client has.
    pub(super) next_index: u64,
    pub(in crate::format) sent: A::Sent,
    /// Sums up what the client gets.
    pub(in crate::format) summarizer: ResponseSummarizer,
}

impl<A: BlockAnswer> JoinedResponse<A> {
    /// `left_out`: tokens left out of the request, which are added to the prompt tokens of its answer.
    pub(in crate::format) fn new(left_out: Option<u32>) -> Self {
        Self {
            visible: VisibleText::new(A::IS_LIST),
            left_out: left_out.unwrap_or(0),
            asked_model: None,
            first_id: None,
            continued: false,
            earlier_completion_tokens: 0,
            earlier_content: Vec::new(),
            next_index: 0,
            sent: A::Sent::default(),
            summarizer: ResponseSummarizer::default(),
        }
    }

    /// Begins the next answer. `usage` is that of the answer before.
    pub(super) fn begin_answer(&mut self, usage: Option<Usage>) {
        let tokens = usage.and_then(|usage| usage.completion_tokens);
        let sum = self.earlier_completion_tokens;
        self.earlier_completion_tokens = sum.saturating_add(tokens.unwrap_or(0));
        self.continued = true;
        self.visible.begin_answer(&self.summarizer);
        self.summarizer.begin_answer();
    }

    /// Reports the texts of an event to the summarizer. Returns each text with what the client gets of it.
    pub(in crate::format) fn take_texts<'a>(
        &mut self,
        event: &'a ParsedEvent<A>,
    ) -> impl Iterator<Item = (JsonString, Cow<'a, [u8]>)> {
        let texts = event.answer.iter_texts().enumerate();
        texts.map(|(at, text)| {
            let visible = event.tracked.visible.get(at).and_then(Option::as_deref);
            let visible = visible.unwrap_or_else(|| text.raw_bytes(&event.message.data));
            let visible = self.visible.push_text(visible.into(), &mut self.summarizer);
            if A::IS_LIST || self.earlier_content.is_empty() {
                return (text, visible);
            }
            let mut joined = std::mem::take(&mut self.earlier_content);
            joined.extend_from_slice(&visible);
            (text, joined.into())
        })
    }

    /// Removes from an event the texts that are not for the client, and reports the others to the
    /// summarizer. Returns whether the event had text, but has none for the client.
    pub(in crate::format) fn edit_texts(
        &mut self,
        event: &ParsedEvent<A>,
        edits: &mut Edits,
    ) -> bool {
        let (mut had_text, mut has_text) = (false, false);
        for (text, visible) in self.take_texts(event) {
            let raw = &event.message.data[text.span.range()];
            had_text |= !raw.is_empty();
            has_text |= !visible.is_empty();
            if *visible != *raw {
                edits.replace(text.span, visible.into_owned());
            }
        }
        had_text && !has_text
    }

    /// Sets the model's name to the name that the client used: some clients take their own thinking for another model's
    /// if the name differs.
    pub(in crate::format) fn edit_model(&self, json: &[u8], answer: &A, edits: &mut Edits) {
        if let (Some(asked), Some(named)) = (&self.asked_model, answer.model())
            && json[named.quoted_span().range()] != asked[..]
        {
            edits.replace(named.quoted_span(), asked.clone());
        }
    }

    /// Returns a report to which the completion tokens of earlier answers are added, since the client pays for these too.
    pub(in crate::format) fn add_completions(&self, usage: Usage) -> Usage {
        let add = |tokens: u32| tokens.saturating_add(self.earlier_completion_tokens);
        Usage {
            completion_tokens: usage.completion_tokens.map(add),
            ..usage
        }
    }

    /// Adds to a report the tokens that were left out of the request, and the completion tokens of earlier answers, since
    /// the client pays for these too.
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
