//! The blocks of one answer: which of them the client gets, and under which index.

use super::ObjectSpans;
use crate::json::text::TextWalk;

/// Blocks tracked in one answer; any further block passes as the client's.
const MAX_TRACKED_BLOCKS: usize = 1_024;

/// Bytes kept of an id.
const MAX_ID: usize = 1_024;

pub(super) struct BlockTracker {
    /// The names of the proxy-executed tools.
    tools: &'static [&'static str],
    blocks: Vec<TrackedBlock>,
    /// The indices of blocks that the client does not get.
    removed: Vec<u64>,
}

pub(super) struct TrackedBlock {
    index: Option<u64>,
    pub(super) kind: TrackedBlockKind,
    fate: BlockFate,
    /// A part of its text is not for the client.
    is_cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TrackedBlockKind {
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
pub(super) enum BlockFate {
    /// A text that may turn out to be for the proxy only.
    Undecided,
    Client,
    Removed,
}

impl BlockTracker {
    pub(super) const fn new(tools: &'static [&'static str]) -> Self {
        Self {
            tools,
            blocks: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// Takes the beginning of a block; its slot. `decides_texts`: texts are for the client at once.
    pub(super) fn begin_block(
        &mut self,
        json: &[u8],
        block: &ObjectSpans,
        index: Option<u64>,
        decides_texts: bool,
    ) -> Option<usize> {
        if self.blocks.len() >= MAX_TRACKED_BLOCKS {
            return None;
        }
        let name = block.text_bytes(json, b"name");
        let proxy = self.tools.iter().find(|tool| tool.as_bytes() == name);
        let (kind, fate) = match (block.type_name(json), proxy) {
            (b"text", _) if !decides_texts => (TrackedBlockKind::Text, BlockFate::Undecided),
            (b"text", _) => (TrackedBlockKind::Text, BlockFate::Client),
            (b"tool_use", Some(name)) => {
                let id = block.text_bytes(json, b"id");
                let id = id[..id.len().min(MAX_ID)].into();
                (TrackedBlockKind::ProxyCall { id, name }, BlockFate::Removed)
            }
            (b"tool_use", None) => (TrackedBlockKind::ClientCall, BlockFate::Client),
            _ => (TrackedBlockKind::Other, BlockFate::Client),
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

    /// The newest block with this index.
    pub(super) fn find_block(&self, index: Option<u64>) -> Option<usize> {
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

    pub(super) fn fate(&self, slot: Option<usize>) -> BlockFate {
        slot.map_or(BlockFate::Client, |slot| self.blocks[slot].fate)
    }

    /// What the client gets of a part of a block's text is known.
    pub(super) fn add_text(&mut self, slot: Option<usize>, visible: &[u8], is_cut: bool) {
        let Some(slot) = slot else { return };
        self.blocks[slot].is_cut |= is_cut;
        if self.blocks[slot].fate == BlockFate::Undecided && has_characters(visible) {
            self.set_fate(slot, BlockFate::Client);
        }
    }

    /// All of a block is known. A text goes as a whole if nothing but white space remains of it:
    /// the client could not send it back. One that the provider left so stays.
    pub(super) fn end_block(&mut self, slot: usize) {
        let fate = match self.blocks[slot].is_cut {
            true => BlockFate::Removed,
            false => BlockFate::Client,
        };
        self.set_fate(slot, fate);
    }

    /// Takes all blocks for the client's, since they cannot be waited for.
    pub(super) fn keep_all(&mut self) {
        (0..self.blocks.len()).for_each(|slot| self.set_fate(slot, BlockFate::Client));
    }

    /// Decides all blocks, since nothing more comes.
    pub(super) fn end_all(&mut self) {
        (0..self.blocks.len()).for_each(|slot| self.end_block(slot));
    }

    /// Whether the newest block is a text of which the client has nothing, since a part of it was
    /// removed.
    pub(super) fn is_hiding_text(&self) -> bool {
        let newest = self.blocks.last();
        newest.is_some_and(|block| block.is_cut && block.fate == BlockFate::Undecided)
    }

    /// The index of a block among those that the client gets of this answer.
    pub(super) fn renumber(&self, index: u64) -> u64 {
        let removed = self.removed.iter().filter(|removed| **removed < index);
        index.saturating_sub(removed.count() as u64)
    }

    /// How many calls are the proxy's, and how many the client's.
    pub(super) fn count_calls(&self) -> (u32, u32) {
        let count = |is_counted: fn(&TrackedBlockKind) -> bool| {
            let blocks = self.blocks.iter();
            blocks.filter(|block| is_counted(&block.kind)).count() as u32
        };
        (
            count(|kind| matches!(kind, TrackedBlockKind::ProxyCall { .. })),
            count(|kind| matches!(kind, TrackedBlockKind::ClientCall)),
        )
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TrackedBlock> {
        self.blocks.iter()
    }
}

/// Whether a raw text has a character other than white space.
fn has_characters(raw: &[u8]) -> bool {
    TextWalk::new(raw)
        .any(|character| !char::from_u32(character.code).is_some_and(char::is_whitespace))
}
