//! Removes what is not for the client from whole answers that are lists of blocks, and joins several such answers.

use bytes::Bytes;

use super::{
    BlockAnswer, BlockAssembler, FormatRewriter, JoinedResponse, RewrittenAnswer, WholeBlock,
    block_tracker::BlockFate,
};
use crate::{conversation::edit::Edits, json::scan::Span};

/// The spans of texts, and what the client gets in their places.
pub(super) type CutTexts = Vec<(Span, Vec<u8>)>;

/// A block of a whole answer, and what the client gets of it.
pub(in crate::format) struct CutBlock {
    pub(in crate::format) span: Span,
    pub(in crate::format) is_removed: bool,
    /// The texts of which the client does not get all.
    pub(in crate::format) texts: CutTexts,
}

impl<A: BlockAnswer> FormatRewriter<A> {
    /// Takes the next answer in one piece, a list of blocks; `None` if it cannot be read.
    pub(super) fn take_blocks(&mut self, json: &Bytes) -> Option<RewrittenAnswer> {
        let answer = A::read_whole(json)?;
        self.current.take_reports(&answer);
        self.current.assembler.take_answer(&answer);
        let (list, blocks) = answer.whole_blocks(json).unzip();
        let blocks = blocks.unwrap_or_default();
        let blocks = blocks.iter().map(|block| self.cut_block(json, block));
        let blocks: Vec<_> = blocks.collect();
        let id = answer.id().map(|id| json.slice(id.span.range()));
        if self.current.is_for_proxy() {
            self.joined.keep_blocks(json, &blocks);
            self.joined.first_id = self.joined.first_id.take().or(id);
            return Some(RewrittenAnswer::ForProxy(self.begin_answer()));
        }
        let mut edits = Edits::default();
        if let (Some(text), Some(first)) = (answer.id(), &self.joined.first_id) {
            edits.replace(text.span, first.clone());
        }
        if let Some(list) = list {
            self.joined.edit_blocks(list, &blocks, &mut edits);
        }
        self.joined.edit_model(json, &answer, &mut edits);
        answer.edit_reports(json, &mut self.joined, &self.current, &mut edits);
        Some(RewrittenAnswer::ForClient {
            json: edits.apply(json).to_bytes(),
            said: self.to_model_answer(),
        })
    }

    /// Finds what the client gets of a block.
    fn cut_block(&mut self, json: &[u8], block: &WholeBlock<'_>) -> CutBlock {
        let (slot, texts) = self.current.take_whole_block(json, block);
        let is_removed = self.current.blocks.fate(slot) == BlockFate::Removed;
        for text in block.texts.iter().filter(|_| !is_removed) {
            let cut = texts.iter().find(|(span, _)| *span == text.span);
            let visible = cut.map_or(text.raw_bytes(json), |(_, visible)| visible);
            let joined = &mut self.joined;
            let summarizer = &mut joined.summarizer;
            joined.visible.push_text(visible.into(), summarizer);
        }
        CutBlock {
            span: block.span,
            is_removed,
            texts,
        }
    }
}

impl<A: BlockAnswer> JoinedResponse<A> {
    /// Keeps what the client gets of these blocks, to insert it into the list of the last answer.
    pub(in crate::format) fn keep_blocks(&mut self, json: &[u8], blocks: &[CutBlock]) {
        let kept = &mut self.earlier_content;
        for block in blocks.iter().filter(|block| !block.is_removed) {
            let mut from = block.span.start as usize;
            for (text, visible) in &block.texts {
                kept.extend_from_slice(&json[from..text.start as usize]);
                kept.extend_from_slice(visible);
                from = text.end as usize;
            }
            kept.extend_from_slice(&json[from..block.span.end as usize]);
            kept.push(b',');
        }
    }

    /// Edits the list of the last answer, which has these blocks. The blocks of earlier answers are inserted before them.
    pub(in crate::format) fn edit_blocks(
        &mut self,
        list: Span,
        blocks: &[CutBlock],
        edits: &mut Edits,
    ) {
        for (span, text) in blocks.iter().flat_map(|block| block.texts.iter().cloned()) {
            edits.replace(span, text);
        }
        let spans: Vec<Span> = blocks.iter().map(|block| block.span).collect();
        edits.remove_items(&spans, |at| blocks[at].is_removed);
        let mut earlier = std::mem::take(&mut self.earlier_content);
        if blocks.iter().all(|block| block.is_removed) {
            // The comma behind the earlier blocks, since no block follows.
            earlier.pop();
            let had_any = self.continued || !blocks.is_empty();
            if let Some([text, block, _]) = A::ONLY_BLOCK.filter(|_| had_any && earlier.is_empty())
            {
                let text = text.as_bytes().into();
                self.visible.push_text(text, &mut self.summarizer);
                earlier = block.into();
            }
        }
        if !earlier.is_empty() {
            edits.insert(list.start + 1, earlier);
        }
    }
}
