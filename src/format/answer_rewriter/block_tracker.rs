//! The blocks of one answer: which of them the client gets, and under which index.

use super::NewBlock;
use crate::json::text::TextWalk;

/// Blocks tracked in one answer; any further block passes as the client's.
const MAX_TRACKED_BLOCKS: usize = 1_024;

/// Bytes kept of a name or an id.
pub(in crate::format) const MAX_NAME: usize = 1_024;

pub struct BlockTracker {
    /// The names of the proxy-executed tools.
    pub(in crate::format) tools: &'static [&'static str],
    pub(in crate::format) blocks: Vec<TrackedBlock>,
    /// The indices of blocks that the client does not get; `None` for a block without an index. Some servers leave out an
    /// index of 0.
    removed: Vec<Option<u64>>,
    /// Two blocks have the same index, or both have none.
    pub(in crate::format) shares_indices: bool,
}

pub struct TrackedBlock {
    pub(in crate::format) slot: usize,
    pub(in crate::format) index: Option<u64>,
    kind: TrackedKind,
    fate: BlockFate,
    /// A part of its text is not for the client.
    is_cut: bool,
    /// Of a call: the raw id and name.
    pub(in crate::format) id: Vec<u8>,
    pub(in crate::format) name: Vec<u8>,
    /// Arguments came after the name of a call.
    pub(in crate::format) has_arguments: bool,
    /// A `function_call`, which came before `tool_calls`.
    pub(in crate::format) legacy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum TrackedKind {
    Text,
    /// A call. It is the proxy's if it is removed, else the client's.
    Call,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum BlockFate {
    /// A text that may turn out to be for the proxy only, or a call without its whole name.
    Undecided,
    Client,
    Removed,
}

impl BlockTracker {
    pub(in crate::format) const fn new(tools: &'static [&'static str]) -> Self {
        Self {
            tools,
            blocks: Vec::new(),
            removed: Vec::new(),
            shares_indices: false,
        }
    }

    /// Adds a block that begins. Returns its slot; `None` if there are too many blocks. `decides_texts`: the client gets
    /// texts at once.
    pub(super) fn begin_block(
        &mut self,
        index: Option<u64>,
        block: &NewBlock<'_>,
        decides_texts: bool,
    ) -> Option<usize> {
        let (kind, fate) = match *block {
            NewBlock::Text if !decides_texts => (TrackedKind::Text, BlockFate::Undecided),
            NewBlock::Text => (TrackedKind::Text, BlockFate::Client),
            NewBlock::Call { name, .. } => (TrackedKind::Call, self.call_fate(name)),
            NewBlock::ClientCall => (TrackedKind::Call, BlockFate::Client),
            NewBlock::Other => (TrackedKind::Other, BlockFate::Client),
        };
        let slot = self.push_block(index, kind)?;
        if let NewBlock::Call { id, name } = *block {
            self.blocks[slot].id = truncate_name(id).to_vec();
            self.blocks[slot].name = truncate_name(name).to_vec();
        }
        self.set_fate(slot, fate);
        Some(slot)
    }

    /// Adds an undecided block. Returns its slot; `None` if there are too many.
    pub(in crate::format) fn push_block(
        &mut self,
        index: Option<u64>,
        kind: TrackedKind,
    ) -> Option<usize> {
        let slot = self.blocks.len();
        if slot >= MAX_TRACKED_BLOCKS {
            return None;
        }
        self.shares_indices |= self.blocks.iter().any(|block| block.index == index);
        self.blocks.push(TrackedBlock {
            slot,
            index,
            kind,
            fate: BlockFate::Undecided,
            is_cut: false,
            id: Vec::new(),
            name: Vec::new(),
            has_arguments: false,
            legacy: false,
        });
        Some(slot)
    }

    /// Who gets a call of the tool of this name.
    fn call_fate(&self, name: &[u8]) -> BlockFate {
        if self.is_proxy_tool(name) {
            BlockFate::Removed
        } else {
            BlockFate::Client
        }
    }

    pub(in crate::format) fn is_proxy_tool(&self, name: &[u8]) -> bool {
        self.tools.iter().any(|tool| tool.as_bytes() == name)
    }

    /// The newest block with this index.
    pub(in crate::format) fn find_block(&self, index: Option<u64>) -> Option<usize> {
        let mut blocks = self.blocks.iter();
        blocks.rposition(|block| block.index == index)
    }

    pub(in crate::format) fn set_fate(&mut self, slot: usize, fate: BlockFate) {
        let block = &mut self.blocks[slot];
        if block.fate == BlockFate::Undecided {
            block.fate = fate;
            let is_removed = fate == BlockFate::Removed;
            self.removed.extend(is_removed.then_some(block.index));
        }
    }

    pub(in crate::format) fn fate(&self, slot: Option<usize>) -> BlockFate {
        slot.map_or(BlockFate::Client, |slot| self.blocks[slot].fate)
    }

    pub(in crate::format) fn is_removed(&self, slot: Option<usize>) -> bool {
        self.fate(slot) == BlockFate::Removed
    }

    /// Whether this is a text of which nothing is left for the client.
    pub(in crate::format) fn is_removed_text(&self, index: u64) -> bool {
        let block = self.find_block(Some(index)).map(|slot| &self.blocks[slot]);
        block.is_some_and(|it| it.kind == TrackedKind::Text && it.fate == BlockFate::Removed)
    }

    /// Takes a part of a block's text: what the client gets of it, and whether that is less than the whole.
    pub(in crate::format) fn add_text(
        &mut self,
        slot: Option<usize>,
        visible: &[u8],
        is_cut: bool,
    ) {
        let Some(slot) = slot else { return };
        self.blocks[slot].is_cut |= is_cut;
        if self.blocks[slot].fate == BlockFate::Undecided && has_characters(visible) {
            self.set_fate(slot, BlockFate::Client);
        }
    }

    /// Decides a block of which everything is known. If a part of a text was removed and only white space is left, then
    /// the whole text is removed: the client could not send it back. A text that the provider itself left blank stays.
    pub(in crate::format) fn end_block(&mut self, slot: usize) {
        let block = &self.blocks[slot];
        let fate = match block.kind {
            TrackedKind::Call => self.call_fate(&block.name),
            _ if block.is_cut => BlockFate::Removed,
            TrackedKind::Text | TrackedKind::Other => BlockFate::Client,
        };
        self.set_fate(slot, fate);
    }

    /// Gives all texts to the client, since the proxy cannot wait for their end.
    pub(super) fn keep_texts(&mut self) {
        for slot in 0..self.blocks.len() {
            if self.blocks[slot].kind == TrackedKind::Text {
                self.set_fate(slot, BlockFate::Client);
            }
        }
    }

    /// Decides all blocks, since nothing more comes.
    pub(in crate::format) fn end_all(&mut self) {
        (0..self.blocks.len()).for_each(|slot| self.end_block(slot));
    }

    /// Whether the newest block is a text of which the client has nothing, since a part of it was
    /// removed.
    pub(in crate::format) fn is_hiding_text(&self) -> bool {
        let newest = self.blocks.last();
        newest.is_some_and(|block| block.is_cut && block.fate == BlockFate::Undecided)
    }

    /// The index of a block among those that the client gets of this answer.
    pub(in crate::format) fn renumber(&self, index: u64) -> u64 {
        let removed = self
            .removed
            .iter()
            .filter(|removed| **removed < Some(index));
        index.saturating_sub(removed.count() as u64)
    }

    /// How many calls are the proxy's, and how many the client's.
    pub(in crate::format) fn count_calls(&self) -> (u32, u32) {
        let proxy = self.iter_calls().filter(|call| call.is_removed()).count();
        (proxy as u32, (self.iter_calls().count() - proxy) as u32)
    }

    pub(in crate::format) fn iter_calls(&self) -> impl Iterator<Item = &TrackedBlock> {
        let blocks = self.blocks.iter();
        blocks.filter(|block| block.kind == TrackedKind::Call)
    }
}

impl TrackedBlock {
    pub(super) fn is_removed(&self) -> bool {
        self.fate == BlockFate::Removed
    }
}

pub(in crate::format) fn truncate_name(name: &[u8]) -> &[u8] {
    &name[..name.len().min(MAX_NAME)]
}

/// Whether a raw text has a character other than white space.
fn has_characters(raw: &[u8]) -> bool {
    TextWalk::new(raw)
        .any(|character| !char::from_u32(character.code).is_some_and(char::is_whitespace))
}
