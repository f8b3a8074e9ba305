//! Blocks of an echoed answer that tool rounds before it have too: thinking, and calls that the server executed.
//!
//! The client got them as parts of one answer. Servers refuse thinking of the running turn that was changed, and ids that
//! occur twice. Each block is therefore sent once: where the model made it.

use crate::{
    conversation::{Author, Block, BlockKind, Conversation, Item, edit::Edits},
    guard::request::estimate::Weights,
    json::{scan::Span, text},
};

/// Whether a block of a round is, unchanged, among the blocks that the client got. Texts are compared separately, since
/// parts of them may be hidden from the client.
const fn may_repeat(block: &Block) -> bool {
    matches!(block.kind, BlockKind::Reasoning(_) | BlockKind::Opaque)
}

/// Digests of the blocks in the answers of a tool round that the client got too.
pub(in crate::guard) fn digest_repeatable_blocks(
    turn: &Conversation,
) -> impl Iterator<Item = u128> {
    let answers = turn.items.iter();
    let answers = answers.filter(|message| message.author == Author::Model);
    let blocks = answers.flat_map(|message| turn.blocks_of(message));
    let blocks = blocks.filter(|block| may_repeat(block));
    blocks.map(|block| turn.digest_block(block))
}

fn is_call(block: &Block) -> bool {
    matches!(block.kind, BlockKind::Call)
}

pub(in crate::guard) struct RepeatedBlocks<'a> {
    pub(super) conversation: &'a Conversation,
    blocks: &'a [Block],
    /// Indices of the repeated blocks, in their order.
    repeated: Vec<usize>,
}

impl<'a> RepeatedBlocks<'a> {
    /// Finds the blocks with digests in `before`, in that order, up to the first other block. Texts are skipped.
    pub(in crate::guard) fn find(
        conversation: &'a Conversation,
        message: &'a Item,
        before: &[u128],
    ) -> Self {
        let blocks = conversation.blocks_of(message);
        let mut repeated = Vec::new();
        let mut before = before.iter();
        if before.len() > 0 {
            for (at, block) in blocks.iter().enumerate() {
                if matches!(block.kind, BlockKind::Text(_)) {
                    continue;
                }
                let digest = conversation.digest_block(block);
                let is_repeated = may_repeat(block) && !block.marked;
                if !is_repeated || !before.any(|known| *known == digest) {
                    break;
                }
                repeated.push(at);
            }
        }
        Self {
            conversation,
            blocks,
            repeated,
        }
    }

    /// Whether the answer has no other blocks: the model called only the proxy's tools until no rounds were left.
    pub(in crate::guard) const fn are_all(&self) -> bool {
        !self.blocks.is_empty() && self.repeated.len() == self.blocks.len()
    }

    /// Keeps the last block if all are repeated, since an answer must have a block.
    pub(super) fn keep_last(mut self) -> Self {
        if self.are_all() {
            self.repeated.pop();
        }
        self
    }

    /// Adds all reasoning of the answer to the repeated blocks.
    pub(super) fn with_all_reasoning(mut self) -> Self {
        let blocks = self.blocks.iter().enumerate();
        let reasoning = blocks.filter(|(_, block)| self.conversation.is_reasoning(block));
        let reasoning: Vec<usize> = reasoning.map(|(at, _)| at).collect();
        self.repeated.extend(reasoning);
        self.repeated.sort_unstable();
        self.repeated.dedup();
        self
    }

    pub(super) fn len(&self) -> usize {
        self.repeated.len()
    }

    pub(super) fn contains(&self, block: usize) -> bool {
        self.repeated.binary_search(&block).is_ok()
    }

    /// How many of the last `behind` blocks are calls.
    pub(super) fn count_calls_behind(&self, behind: u32) -> usize {
        let first = self.blocks.len().saturating_sub(behind as usize);
        let calls = self.blocks[first..].iter().filter(|it| is_call(it));
        calls.count()
    }

    /// Inserts a block with `behind` blocks of the client behind it, `behind_calls` of them calls. Returns false if the
    /// client sends other blocks than it got.
    pub(super) fn insert_block(
        &self,
        behind: u32,
        behind_calls: usize,
        json: &str,
        edits: &mut Edits,
    ) -> bool {
        // If the parts of an answer are entries, the parts of one text are not: nothing can be inserted between these.
        let has_entries = self.conversation.format.rules().joins_answers;
        let has_parts = has_entries && self.blocks.iter().any(|it| it.marked);
        let place = self.blocks.len().checked_sub(behind as usize);
        let is_place = |_: &usize| !has_parts && self.count_calls_behind(behind) == behind_calls;
        let Some(place) = place.filter(is_place) else {
            return false;
        };
        // An insertion next to a block that is removed would be removed with it.
        let stays = |at: &usize| !self.contains(*at);
        let next = (place..self.blocks.len()).find(stays);
        let last = (0..place).rfind(stays);
        match (next, last) {
            (Some(next), _) => edits.insert(self.blocks[next].span.start, format!("{json},")),
            (None, Some(last)) => edits.insert(self.blocks[last].span.end, format!(",{json}")),
            (None, None) => return false,
        }
        true
    }

    /// Removes the repeated blocks, and the first `texts` texts. Another block must be left.
    pub(super) fn remove_with_texts(&self, mut texts: usize, edits: &mut Edits) {
        let mut removed = self.repeated.clone();
        for (at, block) in self.blocks.iter().enumerate() {
            if texts > 0 && matches!(block.kind, BlockKind::Text(_)) {
                removed.push(at);
                texts -= 1;
            }
        }
        removed.sort_unstable();
        let spans: Vec<Span> = self.blocks.iter().map(|block| block.span).collect();
        edits.remove_items(&spans, |at| removed.binary_search(&at).is_ok());
    }

    /// Raw tokens of the text in the repeated blocks.
    pub(super) fn count_tokens(&self, weights: &Weights) -> u32 {
        let blocks = self.repeated.iter().filter_map(|at| self.blocks.get(*at));
        let tokens = blocks.map(|block| match block.kind {
            BlockKind::Reasoning(Some(text)) => {
                weights.text_weight(&text::measure_text(self.conversation.raw_bytes(text)))
            }
            _ => 0.0,
        });
        tokens.sum::<f64>() as u32
    }
}
