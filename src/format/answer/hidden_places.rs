//! Finds the places of blocks that the client does not get: calls of the proxy's tools, and texts that are a continuation
//! block and nothing else.
//!
//! The record of such a block says how many calls of the client, or how many characters, came before it. This is not
//! enough if there is reasoning or text between the blocks.

use crate::{
    conversation::{Block, BlockKind, Conversation, Format, HiddenPlaces},
    format::{ModelAnswer, answer::continuation::is_block_alone, rules::ReasoningPlace},
    json::text,
};

impl ModelAnswer {
    /// Returns the places. Returns `None` if the records of the blocks are enough, if the answer was too long to be kept,
    /// or if the format does not put reasoning among the blocks.
    pub fn find_hidden_places(&self, format: Format) -> Option<HiddenPlaces> {
        let hides_any = !self.proxy_calls.is_empty() || self.package.is_some();
        let reasoning = format.rules().reasoning;
        if !hides_any || reasoning == ReasoningPlace::Members {
            return None;
        }
        let read = format.index_items(&[&self.message])?;
        let item = read.items.first()?;
        let mut calls = read.calls_of(item).iter();
        let mut is_hidden_call = || {
            let id = calls.next().and_then(|call| call.id);
            let id = id.map(|id| read.raw_bytes(id));
            let mut hidden = self.proxy_calls.iter();
            id.is_some_and(|id| hidden.any(|call| call.id.as_bytes() == id))
        };
        let mut places = HiddenPlaces::default();
        let (mut seen, mut says_all) = (0, true);
        let mut found = Vec::new();
        for block in read.blocks_of(item) {
            let is_call = matches!(block.kind, BlockKind::Call);
            if is_call && is_hidden_call() {
                found.push((seen, true));
                continue;
            }
            if reasoning == ReasoningPlace::Blocks
                && self.package.is_some()
                && is_block_alone_in(&read, block)
            {
                found.push((seen, false));
                says_all = false;
                continue;
            }
            seen += 1;
            says_all &= is_call || found.is_empty();
        }
        for (before, is_call) in found {
            if is_call {
                places.calls.push(seen - before)
            } else {
                places.text = Some(seen - before)
            }
        }
        (!says_all).then_some(places)
    }
}

fn is_block_alone_in(read: &Conversation, block: &Block) -> bool {
    let BlockKind::Text(text) = block.kind else {
        return false;
    };
    text::decode_text(read.raw_bytes(text)).is_some_and(|text| is_block_alone(&text))
}
