//! The digests of what stands before each thinking block of a Messages request.

use serde_json::Value;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::tool_changes::inline_tools;

/// Blocks whose digests a signature holds one by one, so that a refusal can name the first that differs.
pub(super) const RECENT: usize = 6;

/// A block that is no thinking, or the string of an entry.
pub(super) struct Unit {
    pub(super) path: String,
    pub(super) digest: u64,
    /// Of this unit and all before it, back to a compaction of the server.
    pub(super) folded: u64,
}

pub(super) struct Thought<'a> {
    pub(super) path: String,
    pub(super) entry: usize,
    pub(super) place: usize,
    pub(super) block: &'a Value,
    /// Units before it.
    pub(super) before: usize,
    /// The unit where what is compared begins: the last compaction of the server.
    pub(super) start: usize,
}

pub(super) struct Prefix<'a> {
    pub(super) system: u64,
    pub(super) tools: u64,
    /// What Bedrock binds beside it.
    pub(super) end_user: u64,
    pub(super) units: Vec<Unit>,
    pub(super) thoughts: Vec<Thought<'a>>,
}

/// Digests of the units before a place: those before the recent ones together, the recent ones each.
pub(super) struct Position {
    pub(super) older: u64,
    pub(super) recent: Vec<u32>,
}

impl<'a> Prefix<'a> {
    pub(super) fn read(body: &'a Value, equates_strings: bool) -> Self {
        let tools = body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        let shown = tools.iter().filter(|tool| tool["defer_loading"] != true);
        // The first definition in an entry then changes the start of the prompt.
        let begins_anew = shown.clone().next().is_none() && inline_tools(body).next().is_some();
        let is_bound = body["thinking"]["block_binding"]["bind_to_end_user"] != false;
        let mut found = Self {
            end_user: if is_bound {
                digest([&body["metadata"]["user_id"]])
            } else {
                0
            },
            system: digest_content(&body["system"], equates_strings),
            tools: digest(shown) ^ u64::from(begins_anew),
            units: Vec::new(),
            thoughts: Vec::new(),
        };
        let mut start = 0;
        for (entry, message) in body["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let frame = digest_frame(message);
            let string = std::slice::from_ref(&message["content"]);
            let blocks = message["content"].as_array().map_or(string, Vec::as_slice);
            let mut is_first = true;
            for (place, block) in blocks.iter().enumerate() {
                let path = format!("messages.{entry}.content.{place}");
                let before = found.units.len();
                if is_thinking(block) {
                    found.thoughts.push(Thought {
                        path,
                        entry,
                        place,
                        block,
                        before,
                        start,
                    });
                    continue;
                }
                let seed = if is_first { frame } else { 0 };
                is_first = false;
                let own = digest_content(block, equates_strings && blocks.len() == 1);
                let named = digest(named_tools(block, tools));
                let digest = xxh3_64_with_seed(&[own, named].map(u64::to_le_bytes).concat(), seed);
                if block["type"] == "compaction" {
                    start = before;
                }
                let earlier = found.units.last().filter(|_| before > start);
                let seed = earlier.map_or(0, |unit| unit.folded);
                let folded = xxh3_64_with_seed(&digest.to_le_bytes(), seed);
                found.units.push(Unit {
                    path,
                    digest,
                    folded,
                });
            }
        }
        found
    }

    pub(super) fn position(&self, thought: &Thought<'_>) -> Position {
        let from = thought.before.saturating_sub(RECENT).max(thought.start);
        let recent = self.units[from..thought.before].iter();
        let older = from.checked_sub(1).filter(|at| *at >= thought.start);
        Position {
            older: older.map_or(0, |at| self.units[at].folded),
            recent: recent.map(|unit| unit.digest as u32).collect(),
        }
    }
}

/// A signed `connector_text` counts as thinking.
pub(super) fn is_thinking(block: &Value) -> bool {
    match block["type"].as_str() {
        Some("thinking" | "redacted_thinking") => true,
        Some("connector_text") => block["signature"].is_string(),
        _ => false,
    }
}

/// The member of a thinking block that holds its signature.
pub(super) fn signature_key(block: &Value) -> &'static str {
    match block["type"].as_str() {
        Some("redacted_thinking") => "data",
        _ => "signature",
    }
}

/// Of a thinking block without its signature.
pub(super) fn digest_thinking(block: &Value) -> u64 {
    let mut block = block.clone();
    let key = signature_key(&block);
    block.as_object_mut().unwrap().remove(key);
    digest([&block])
}

/// The deferred tools that a `tool_addition` names.
fn named_tools<'a>(block: &'a Value, tools: &'a [Value]) -> impl Iterator<Item = &'a Value> {
    let words = if block["type"] == "tool_addition" {
        block.to_string()
    } else {
        String::new()
    };
    tools.iter().filter(move |tool| {
        tool["defer_loading"] == true
            && words.contains(&format!("\"{}\"", tool["name"].as_str().unwrap_or("?")))
    })
}

/// An entry without its content.
fn digest_frame(message: &Value) -> u64 {
    let mut frame = message.clone();
    if let Some(members) = frame.as_object_mut() {
        members.remove("content");
    }
    digest([&frame]) | 1
}

/// A text as a string is the same as a block of it where `equates_strings`.
fn digest_content(content: &Value, equates_strings: bool) -> u64 {
    match content {
        Value::String(text) if equates_strings => {
            digest([&serde_json::json!({"type": "text", "text": text})])
        }
        Value::Array(blocks) if equates_strings && blocks.len() == 1 => digest([&blocks[0]]),
        content => digest([content]),
    }
}

/// Insensitive to the order of keys and to cache markers.
pub(super) fn digest<'a>(values: impl IntoIterator<Item = &'a Value>) -> u64 {
    let mut hasher = Xxh3::new();
    for value in values {
        feed(&mut hasher, value);
    }
    hasher.digest()
}

fn feed(hasher: &mut Xxh3, value: &Value) {
    match value {
        Value::Array(values) => {
            hasher.update(b"[");
            values.iter().for_each(|value| feed(hasher, value));
            hasher.update(b"]");
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members
                .iter()
                .filter(|(key, _)| *key != "cache_control")
                .collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            hasher.update(b"{");
            for (key, value) in members {
                feed(hasher, &key.as_str().into());
                feed(hasher, value);
            }
            hasher.update(b"}");
        }
        plain => hasher.update(plain.to_string().as_bytes()),
    }
}
