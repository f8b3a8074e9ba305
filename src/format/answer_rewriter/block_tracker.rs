//! The blocks of one answer: which of them the client gets, and under which index.

use super::block_state::NewBlock;
use crate::json::text::TextWalk;

/// Blocks tracked in one answer; any further block passes as the client's.
const MAX_TRACKED_BLOCKS: usize = 1_024;

/// Bytes kept of an id.
const MAX_ID: usize = 1_024;

pub(in crate::format) struct BlockTracker {
    /// The names of the proxy-executed tools.
    tools: &'static [&'static str],
    blocks: Vec<TrackedBlock>,
    /// The indices of blocks that the client does not get.
    removed: Vec<u64>,
}

pub(in crate::format) struct TrackedBlock {
    index: Option<u64>,
    pub(in crate::format) kind: TrackedKind,
    fate: BlockFate,
    /// A part of its text is not for the client.
    is_cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::format) enum TrackedKind {
    Text,
    ClientCall,
    /// The raw id, and the name of the tool.
    ProxyCall {
        id: Box<[u8]>,
        name: &'static str,
    },
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum BlockFate {
    /// A text that may turn out to be for the proxy only.
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
        }
    }

    /// Takes the beginning of a block; its slot. `decides_texts`: texts are for the client at once.
    pub(super) fn begin_block(
        &mut self,
        index: Option<u64>,
        block: &NewBlock<'_>,
        decides_texts: bool,
    ) -> Option<usize> {
        if self.blocks.len() >= MAX_TRACKED_BLOCKS {
            return None;
        }
        let (kind, fate) = match *block {
            NewBlock::Text if !decides_texts => (TrackedKind::Text, BlockFate::Undecided),
            NewBlock::Text => (TrackedKind::Text, BlockFate::Client),
            NewBlock::Call { id, name } => match self.find_tool(name) {
                Some(name) => {
                    let id = id[..id.len().min(MAX_ID)].into();
                    (TrackedKind::ProxyCall { id, name }, BlockFate::Removed)
                }
                None => (TrackedKind::ClientCall, BlockFate::Client),
            },
            NewBlock::ClientCall => (TrackedKind::ClientCall, BlockFate::Client),
            NewBlock::Other => (TrackedKind::Other, BlockFate::Client),
        };
        self.blocks.push(TrackedBlock {
            index,
            kind,
            fate: BlockFate::Undecided,
            is_cut: false,
        });
        let slot = self.blocks.len() - 1;
        self.set_fate(slot, fate);
        Some(slot)
    }

    /// The proxy-executed tool of this name.
    pub(in crate::format) fn find_tool(&self, name: &[u8]) -> Option<&'static str> {
        let mut tools = self.tools.iter().copied();
        tools.find(|tool| tool.as_bytes() == name)
    }

    /// The newest block with this index.
    pub(in crate::format) fn find_block(&self, index: Option<u64>) -> Option<usize> {
        let mut blocks = self.blocks.iter();
        blocks.rposition(|block| block.index == index)
    }

    fn set_fate(&mut self, slot: usize, fate: BlockFate) {
        let block = &mut self.blocks[slot];
        if block.fate == BlockFate::Undecided {
            block.fate = fate;
            let removed = block.index.filter(|_| fate == BlockFate::Removed);
            self.removed.extend(removed);
        }
    }

    pub(in crate::format) fn fate(&self, slot: Option<usize>) -> BlockFate {
        slot.map_or(BlockFate::Client, |slot| self.blocks[slot].fate)
    }

    /// Whether this is a text of which nothing is left for the client.
    pub(in crate::format) fn is_removed_text(&self, index: u64) -> bool {
        let block = self.find_block(Some(index)).map(|slot| &self.blocks[slot]);
        block.is_some_and(|it| it.kind == TrackedKind::Text && it.fate == BlockFate::Removed)
    }

    /// The block has something for the client beside its texts.
    pub(super) fn keep_block(&mut self, slot: usize) {
        self.set_fate(slot, BlockFate::Client);
    }

    /// What the client gets of a part of a block's text is known.
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

    /// All of a block is known. A text goes as a whole if nothing but white space remains of it:
    /// the client could not send it back. One that the provider left so stays.
    pub(in crate::format) fn end_block(&mut self, slot: usize) {
        let fate = match self.blocks[slot].is_cut {
            true => BlockFate::Removed,
            false => BlockFate::Client,
        };
        self.set_fate(slot, fate);
    }

    /// Takes all blocks for the client's, since they cannot be waited for.
    pub(in crate::format) fn keep_all(&mut self) {
        (0..self.blocks.len()).for_each(|slot| self.set_fate(slot, BlockFate::Client));
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
        let removed = self.removed.iter().filter(|removed| **removed < index);
        index.saturating_sub(removed.count() as u64)
    }

    /// How many calls are the proxy's, and how many the client's.
    pub(in crate::format) fn count_calls(&self) -> (u32, u32) {
        let count = |is_counted: fn(&TrackedKind) -> bool| {
            let blocks = self.blocks.iter();
            blocks.filter(|block| is_counted(&block.kind)).count() as u32
        };
        (
            count(|kind| matches!(kind, TrackedKind::ProxyCall { .. })),
            count(|kind| matches!(kind, TrackedKind::ClientCall)),
        )
    }

    pub(in crate::format) fn iter(&self) -> impl Iterator<Item = &TrackedBlock> {
        self.blocks.iter()
    }
}

/// Whether a raw text has a character other than white space.
fn has_characters(raw: &[u8]) -> bool {
    TextWalk::new(raw)
        .any(|character| !char::from_u32(character.code).is_some_and(char::is_whitespace))
}
