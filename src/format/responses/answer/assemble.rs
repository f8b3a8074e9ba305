//! Keeps the items of an answer as they came, for a request that continues it.
//!
//! The event that ends an item has the whole item. Reasoning that is neither encrypted nor kept by the server cannot be
//! sent back. Without it, the ids of the other items are removed too, since an id says that there was reasoning.

use serde::de::IgnoredAny;
use serde_json::Value;

use super::{EventKind, OutputItem, ResponsesAnswer, read_answer};
use crate::{
    format::answer_rewriter::{AssembledCall, BlockAssembler, KeptBlocks, TrackedBlock},
    json::{scan::Span, text::decode_text},
};

#[derive(Default)]
pub struct KeptOutput {
    /// An item of which the end has not come is empty.
    items: KeptBlocks<KeptItem>,
    /// The server does not keep the answer.
    is_unstored: bool,
}

#[derive(Default)]
struct KeptItem {
    json: Vec<u8>,
    /// The member in it.
    id_member: Option<Span>,
    arguments: Option<String>,
    is_lost_reasoning: bool,
}

impl BlockAssembler<ResponsesAnswer> for KeptOutput {
    fn take_answer(&mut self, answer: &ResponsesAnswer) {
        self.is_unstored |= answer.response.is_unstored;
    }

    fn take_event(&mut self, slot: usize, json: &[u8], answer: &ResponsesAnswer) {
        match (answer.kind, &answer.item) {
            (EventKind::ItemBegin, _) => {
                self.items.block_mut(slot);
            }
            (EventKind::ItemEnd, Some(item)) => self.keep_item(slot, json, item),
            _ => {}
        }
    }

    fn take_block(&mut self, slot: usize, block: &[u8]) {
        // The item is read as the only element of an `output`. Its spans lie in `wrapped`.
        let wrapped = [br#"{"output":["#, block, b"]}"].concat();
        let answer = read_answer(&wrapped).ok();
        let output = answer.and_then(|answer| answer.response.output);
        if let Some((_, items)) = output
            && let [item] = &items[..]
        {
            self.keep_item(slot, &wrapped, item);
        }
    }

    fn assemble(&self, calls: &[&TrackedBlock]) -> (String, Vec<AssembledCall>) {
        let kept = &self.items.blocks;
        let loses_reasoning = self.is_unstored && kept.iter().any(|it| it.is_lost_reasoning);
        let kept = kept.iter();
        let kept = kept.filter(|item| !(loses_reasoning && item.is_lost_reasoning));
        let items: Option<Vec<_>> = kept.map(|item| item.to_json(loses_reasoning)).collect();
        let items = items
            .filter(|_| !self.items.is_overlong)
            .unwrap_or_default();
        let calls = calls.iter().map(|call| {
            let item = self.items.blocks.get(call.slot);
            AssembledCall {
                arguments: item.and_then(|item| {
                    // Some providers give the object itself.
                    item.arguments.clone().or_else(|| {
                        let call: Value = serde_json::from_slice(&item.json).ok()?;
                        Some(call.get("arguments")?.to_string())
                    })
                }),
                json: item.and_then(|item| item.to_json(false)),
            }
        });
        (items.join(","), calls.collect())
    }
}

impl KeptItem {
    /// Returns the item, without its id if `without_id`; `None` if it is not whole, or not JSON.
    fn to_json(&self, without_id: bool) -> Option<String> {
        let json = match self.id_member.filter(|_| without_id) {
            Some(member) => remove_member(&self.json, member),
            None => self.json.clone(),
        };
        let json = String::from_utf8(json).ok()?;
        serde_json::from_str::<IgnoredAny>(&json).ok()?;
        Some(json)
    }
}

impl KeptOutput {
    fn keep_item(&mut self, slot: usize, json: &[u8], item: &OutputItem) {
        if !self.items.take_bytes(item.span.len()) {
            return;
        }
        let arguments = item.arguments.map(|text| text.raw_bytes(json));
        *self.items.block_mut(slot) = KeptItem {
            json: json[item.span.range()].to_vec(),
            id_member: item.id_member.map(|member| Span {
                start: member.start - item.span.start,
                end: member.end - item.span.start,
            }),
            arguments: arguments.and_then(decode_text),
            is_lost_reasoning: item.is_reasoning() && !item.is_encrypted,
        };
    }
}

/// Returns an object without one of its members, and without the comma that the member leaves.
fn remove_member(json: &[u8], member: Span) -> Vec<u8> {
    let (before, after) = (&json[..member.start as usize], &json[member.end as usize..]);
    let rest = after.trim_ascii_start();
    match rest.strip_prefix(b",") {
        Some(rest) => [before, rest].concat(),
        None => {
            let before = before.trim_ascii_end();
            [before.strip_suffix(b",").unwrap_or(before), rest].concat()
        }
    }
}
