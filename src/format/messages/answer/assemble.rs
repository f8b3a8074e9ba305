//! Assembles the blocks of a message from their deltas, as clients' libraries do it.
//!
//! Bytes are kept as they come: thinking and its signature must go back unchanged.

use serde::de::IgnoredAny;

use super::{EventKind, MessagesAnswer};
use crate::{
    conversation::edit::Edits,
    format::{
        answer_rewriter::{AssembledCall, BlockAssembler, KeptBlocks, TrackedBlock},
        values::ObjectSpans,
    },
    json::{
        scan::{JsonKind, JsonScanner},
        text::{decode_text, replace_lone_surrogates},
    },
};

/// A block as it began, and the members that its deltas changed.
#[derive(Default)]
pub struct BlockParts {
    start: Vec<u8>,
    changes: Vec<(Vec<u8>, MemberChange)>,
}

/// What the deltas change in a member. Strings are raw, without quotes.
enum MemberChange {
    /// Text that is appended to the string of the block's beginning.
    Append(Vec<u8>),
    /// The text of a JSON value.
    Json(Vec<u8>),
    /// Elements of a list, each with a comma before it.
    Extend(Vec<u8>),
    /// The value itself.
    Set(Vec<u8>),
}

impl BlockAssembler<MessagesAnswer> for KeptBlocks<BlockParts> {
    fn take_event(&mut self, slot: usize, json: &[u8], answer: &MessagesAnswer) {
        match (answer.kind, &answer.part) {
            (EventKind::BlockStart, Some(block)) => {
                self.take_block(slot, &json[block.span.range()]);
            }
            (EventKind::BlockDelta, Some(delta)) if self.take_bytes(delta.span.len()) => {
                self.block_mut(slot).add_delta(json, delta);
            }
            _ => {}
        }
    }

    fn take_block(&mut self, slot: usize, block: &[u8]) {
        if self.take_bytes(block.len()) {
            self.block_mut(slot).start = block.to_vec();
        }
    }

    fn assemble(&self, calls: &[&TrackedBlock]) -> (String, Vec<AssembledCall>) {
        let calls = calls.iter().map(|call| {
            let parts = self.blocks.get(call.slot);
            AssembledCall {
                arguments: parts.map(BlockParts::arguments),
                json: parts.and_then(BlockParts::build),
            }
        });
        let blocks = self.blocks.iter().map(BlockParts::build);
        let message = blocks.collect::<Option<Vec<_>>>().unwrap_or_default();
        (write_message(message), calls.collect())
    }
}

/// The message of these blocks; empty without any.
fn write_message(mut blocks: Vec<String>) -> String {
    // A request must not hold an empty text.
    blocks.retain(|block| !is_empty_text(block));
    if blocks.is_empty() {
        String::new()
    } else {
        format!(r#"{{"role":"assistant","content":[{}]}}"#, blocks.join(","))
    }
}

impl BlockParts {
    /// Adds the delta of an event.
    fn add_delta(&mut self, json: &[u8], delta: &ObjectSpans) {
        let raw = |name: &[u8]| delta.text_bytes(json, name);
        match delta.type_name(json) {
            b"text_delta" => self.add(b"text", MemberChange::Append, &[raw(b"text")]),
            b"thinking_delta" => self.add(b"thinking", MemberChange::Append, &[raw(b"thinking")]),
            b"input_json_delta" => self.add(b"input", MemberChange::Json, &[raw(b"partial_json")]),
            b"citations_delta" => {
                if let Some(citation) = delta.find_member(json, b"citation") {
                    let element = &json[citation.value.range()];
                    self.add(b"citations", MemberChange::Extend, &[b",", element]);
                }
            }
            // A signature, or a delta of an unknown type: its members become members of the block.
            _ => {
                let members = delta.members.iter();
                let members = members.map(|it| (&json[it.key.span.range()], it.value));
                for (key, value) in members.filter(|(key, _)| *key != b"type") {
                    self.changes.retain(|(known, _)| known != key);
                    self.add(key, MemberChange::Set, &[&json[value.range()]]);
                }
            }
        }
    }

    /// Adds bytes to the change of a member. `new` makes the change of a member that has none yet.
    fn add(&mut self, key: &[u8], new: fn(Vec<u8>) -> MemberChange, pieces: &[&[u8]]) {
        let known = self.changes.iter().position(|(known, _)| known == key);
        let at = known.unwrap_or(self.changes.len());
        if known.is_none() {
            self.changes.push((key.to_vec(), new(Vec::new())));
        }
        self.changes[at].1.bytes_mut().extend(pieces.concat());
    }

    /// The arguments as the model wrote them.
    fn arguments(&self) -> String {
        let mut changes = self.changes.iter();
        let written = changes.find_map(|(_, change)| match change {
            MemberChange::Json(raw) if !raw.is_empty() => Some(raw),
            _ => None,
        });
        match written {
            Some(raw) => decode_text(&replace_lone_surrogates(raw)).unwrap_or_default(),
            None => {
                let start = ObjectSpans::read(&mut JsonScanner::new(&self.start, 0));
                let start = start.unwrap_or_default();
                let input = start.find_member(&self.start, b"input");
                let input = input.map_or(&b""[..], |input| &self.start[input.value.range()]);
                String::from_utf8_lossy(input).into_owned()
            }
        }
    }

    /// The block; `None` if it is not JSON.
    fn build(&self) -> Option<String> {
        let object = ObjectSpans::read(&mut JsonScanner::new(&self.start, 0)).ok()?;
        let mut edits = Edits::default();
        for (key, change) in &self.changes {
            let begun = object.find_member(&self.start, key);
            let begun_value = begun.map_or(&b""[..], |it| &self.start[it.value.range()]);
            let Some(value) = change.build_value(begun_value) else {
                continue;
            };
            match begun {
                Some(member) => edits.replace(member.value, value),
                None => {
                    let comma: &[u8] = if object.members.is_empty() { b"" } else { b"," };
                    let member = [comma, b"\"", key, b"\":", &value[..]].concat();
                    edits.insert(object.span.end - 1, member);
                }
            }
        }
        let block = edits.apply(&self.start.clone().into()).to_bytes();
        let block = String::from_utf8_lossy(&replace_lone_surrogates(&block)).into_owned();
        let is_json = serde_json::from_str::<IgnoredAny>(&block).is_ok();
        is_json.then_some(block)
    }
}

impl MemberChange {
    const fn bytes_mut(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Append(bytes) | Self::Json(bytes) | Self::Extend(bytes) | Self::Set(bytes) => {
                bytes
            }
        }
    }

    /// Returns the new value of the member. `begun`: its value in the block's beginning. `None`: that value stays.
    fn build_value(&self, begun: &[u8]) -> Option<Vec<u8>> {
        let begun = begun.trim_ascii();
        let inner = |open: u8| match begun {
            [first, inner @ .., _] if *first == open => inner,
            _ => b"",
        };
        match self {
            Self::Append(raw) => Some([b"\"", inner(b'"'), raw, b"\""].concat()),
            Self::Json(raw) if raw.is_empty() => None,
            Self::Json(raw) => {
                let text = decode_text(&replace_lone_surrogates(raw)).unwrap_or_default();
                let is_object = text.trim_start().starts_with('{')
                    && serde_json::from_str::<IgnoredAny>(&text).is_ok();
                Some(if is_object {
                    text.into()
                } else {
                    b"{}".to_vec()
                })
            }
            Self::Extend(elements) => {
                let list = inner(b'[');
                let is_first = list.trim_ascii().is_empty();
                let elements = &elements[usize::from(is_first)..];
                Some([b"[", list, elements, b"]"].concat())
            }
            Self::Set(value) => Some(value.clone()),
        }
    }
}

fn is_empty_text(block: &str) -> bool {
    let json = block.as_bytes();
    let object = ObjectSpans::read(&mut JsonScanner::new(json, 0)).unwrap_or_default();
    let is_empty = |object: &ObjectSpans| {
        let text = object.find_member(json, b"text");
        text.is_none_or(|text| text.kind != JsonKind::String || text.value.len() == 2)
    };
    object.type_name(json) == b"text" && is_empty(&object)
}
