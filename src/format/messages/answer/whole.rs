//! Removes from whole answers what is not for the client, and adds to their usage.

use bytes::Bytes;

use super::{ContentSpans, blocks::BlockFate, current::MessagesAnswerState, read_answer};
use crate::{
    conversation::edit::Edits,
    format::{
        ResponseSummarizer, RewrittenAnswer,
        answer_rewriter::{AnswerState, FormatRewriter, JoinedResponse},
    },
    json::scan::Span,
};

/// Adds the tokens that were left out of the request to the prompt tokens of a whole answer; `None`
/// if nothing changes.
pub fn add_prompt_tokens(json: &Bytes, left_out: u32) -> Option<Bytes> {
    let answer = read_answer(json).ok()?;
    let mut edits = Edits::default();
    JoinedResponse::<MessagesAnswerState>::new(Some(left_out)).add_usage(json, &answer, &mut edits);
    (!edits.is_empty()).then(|| edits.apply(json).to_bytes())
}

/// A block of a whole answer.
struct WholeBlock {
    span: Span,
    is_removed: bool,
    /// The span of a text, and what the client gets in its place.
    text: Option<(Span, Vec<u8>)>,
}

impl FormatRewriter<MessagesAnswerState> {
    /// Takes the next answer in one piece; `None` if it cannot be read.
    pub fn take_whole(
        &mut self,
        json: &Bytes,
        summarizer: &mut ResponseSummarizer,
    ) -> Option<RewrittenAnswer> {
        let answer = read_answer(json).ok()?;
        self.current.facts.take_answer(&answer);
        let content = answer.content.as_ref();
        let blocks = content.map(|content| self.cut_blocks(json, content, summarizer));
        let blocks = blocks.unwrap_or_default();
        let id = answer.id.map(|id| json.slice(id.span.range()));
        if self.current.is_for_proxy() {
            for block in blocks.iter().filter(|block| !block.is_removed) {
                let earlier = &mut self.joined.earlier_content;
                block.write(json, earlier);
                earlier.push(b',');
            }
            self.joined.first_id = self.joined.first_id.take().or(id);
            return Some(RewrittenAnswer::ForProxy(self.begin_answer(summarizer)));
        }
        let mut edits = Edits::default();
        if let (Some(text), Some(first)) = (answer.id, &self.joined.first_id) {
            edits.replace(text.span, first.clone());
        }
        for (span, text) in blocks.iter().filter_map(|block| block.text.clone()) {
            edits.replace(span, text);
        }
        let spans: Vec<Span> = blocks.iter().map(|block| block.span).collect();
        edits.remove_items(&spans, |at| blocks[at].is_removed);
        let mut earlier = std::mem::take(&mut self.joined.earlier_content);
        if let Some(content) = content {
            if blocks.iter().all(|block| block.is_removed) {
                earlier.pop();
            }
            edits.insert(content.span.start + 1, earlier);
        }
        let current = &self.current;
        self.joined
            .edit_reports(json, &answer, current, &mut edits, summarizer);
        Some(RewrittenAnswer::ForClient {
            json: edits.apply(json).to_bytes(),
            turn: self.to_assistant_turn(),
        })
    }

    /// Finds what the client gets of the blocks.
    fn cut_blocks(
        &mut self,
        json: &[u8],
        content: &ContentSpans,
        summarizer: &mut ResponseSummarizer,
    ) -> Vec<WholeBlock> {
        let (joined, current) = (&mut self.joined, &mut self.current);
        let mut blocks = Vec::new();
        for block in &content.blocks {
            let mut whole = WholeBlock {
                span: block.span,
                is_removed: false,
                text: None,
            };
            let slot = current.begin_block(json, block, None);
            let is_text = block.type_name(json) == b"text";
            let text = block.find_text(json, b"text").filter(|_| is_text);
            if let (Some(text), Some(slot)) = (text, slot) {
                let raw = &json[text.span.range()];
                let visible = current.cut_whole_text(slot, raw);
                whole.text = visible.map(|visible| (text.span, visible));
            }
            if let Some(slot) = slot {
                current.blocks.end_block(slot);
                whole.is_removed = current.blocks.fate(Some(slot)) == BlockFate::Removed;
            }
            if let Some(text) = text.filter(|_| !whole.is_removed) {
                let visible = whole.text.as_ref().map(|(_, visible)| &visible[..]);
                let visible = visible.unwrap_or(&json[text.span.range()]);
                joined.visible.push_text(visible.into(), summarizer);
            }
            blocks.push(whole);
        }
        blocks
    }
}

impl WholeBlock {
    /// Appends the block as the client gets it.
    fn write(&self, json: &[u8], to: &mut Vec<u8>) {
        match &self.text {
            None => to.extend_from_slice(&json[self.span.range()]),
            Some((span, text)) => {
                to.extend_from_slice(&json[self.span.start as usize..span.start as usize]);
                to.extend_from_slice(text);
                to.extend_from_slice(&json[span.end as usize..self.span.end as usize]);
            }
        }
    }
}
