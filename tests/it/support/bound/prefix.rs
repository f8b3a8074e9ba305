//! The digests of what stands before each thinking block of a Messages request.

use serde_json::{Map, Value};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::{summary::Summary, tool_changes::inline_tools};

/// Blocks whose digests a signature holds one by one, so that a refusal can name the first that differs.
pub(super) const RECENT: usize = 6;

/// Of an entry that the API joins with what was summarised.
const MERGED: u64 = 1;

/// A block that is no thinking, or the string of an entry.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    entry: usize,
    place: usize,
    pub(super) digest: u64,
    /// Of this unit and all before it, back to a compaction of the server.
    pub(super) folded: u64,
}

pub(super) struct Thought<'a> {
    pub(super) entry: usize,
    pub(super) place: usize,
    pub(super) block: &'a Value,
    /// Units before it.
    pub(super) before: usize,
    /// The unit where what is compared begins: the last compaction of the server.
    pub(super) start: usize,
}

/// What stands before the thinking of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Digests {
    pub(super) system: u64,
    pub(super) tools: u64,
    /// What Bedrock binds beside it.
    pub(super) end_user: u64,
    pub(super) units: Vec<Unit>,
    /// The unit where what is compared begins: the last compaction of the server.
    start: usize,
}

pub(super) struct Prefix<'a> {
    pub(super) digests: Digests,
    pub(super) thoughts: Vec<Thought<'a>>,
    tools: &'a [Value],
    equates_strings: bool,
    /// The role of what was summarised last, until an entry behind the summary is read.
    summarised: Option<String>,
}

/// Digests of the units before a place: those before the recent ones together, the recent ones each.
pub(super) struct Position {
    pub(super) older: u64,
    pub(super) recent: Vec<u32>,
}

impl Unit {
    pub(super) fn path(&self) -> String {
        to_path(self.entry, self.place)
    }
}

impl Thought<'_> {
    pub(super) fn path(&self) -> String {
        to_path(self.entry, self.place)
    }
}

fn to_path(entry: usize, place: usize) -> String {
    format!("messages.{entry}.content.{place}")
}

impl<'a> Prefix<'a> {
    pub(super) fn read(body: &'a Value, equates_strings: bool) -> Self {
        let tools = read_list(&body["tools"]);
        let shown = tools.iter().filter(|tool| tool["defer_loading"] != true);
        // The first definition in an entry then changes the start of the prompt.
        let begins_anew = shown.clone().next().is_none() && inline_tools(body).next().is_some();
        let is_bound = body["thinking"]["block_binding"]["bind_to_end_user"] != false;
        let digests = Digests {
            end_user: if is_bound {
                digest([&body["metadata"]["user_id"]])
            } else {
                0
            },
            system: digest_content(&body["system"], equates_strings),
            tools: digest(shown) ^ u64::from(begins_anew),
            ..Digests::default()
        };
        let mut prefix = Self::go_on(digests, body, equates_strings);
        for (entry, message) in read_list(&body["messages"]).iter().enumerate() {
            prefix.add(entry, message);
        }
        prefix
    }

    /// The prefix of a request that was read already.
    pub(super) fn go_on(digests: Digests, body: &'a Value, equates_strings: bool) -> Self {
        Self {
            digests,
            thoughts: Vec::new(),
            tools: read_list(&body["tools"]),
            equates_strings,
            summarised: None,
        }
    }

    /// Adds an entry at the end.
    pub(super) fn add(&mut self, entry: usize, message: &'a Value) {
        let frame = digest_without(message, "content") | 1;
        let string = std::slice::from_ref(&message["content"]);
        let blocks = message["content"].as_array().map_or(string, Vec::as_slice);
        let mut is_first = true;
        for (place, block) in blocks.iter().enumerate() {
            if self.digests.units.is_empty() && self.restore_summarised(entry, place, block) {
                continue;
            }
            if let Some(last) = self.summarised.take()
                && (message["role"] == "system" || message["role"] == *last)
            {
                // It becomes one with what was summarised, so that nothing behind it is as it was.
                self.push_unit(entry, place, MERGED);
            }
            let before = self.digests.units.len();
            if is_thinking(block) {
                self.thoughts.push(Thought {
                    entry,
                    place,
                    block,
                    before,
                    start: self.digests.start,
                });
                continue;
            }
            let seed = if is_first { frame } else { 0 };
            is_first = false;
            let own = digest_content(block, self.equates_strings && blocks.len() == 1);
            let named = digest(named_tools(block, self.tools));
            let digest = xxh3_64_with_seed(&[own, named].map(u64::to_le_bytes).concat(), seed);
            if block["type"] == "compaction" {
                self.digests.start = before;
            }
            self.push_unit(entry, place, digest);
        }
    }

    fn push_unit(&mut self, entry: usize, place: usize, digest: u64) {
        let units = &mut self.digests.units;
        let earlier = units.last().filter(|_| units.len() > self.digests.start);
        let seed = earlier.map_or(0, |unit| unit.folded);
        let folded = xxh3_64_with_seed(&digest.to_le_bytes(), seed);
        units.push(Unit {
            entry,
            place,
            digest,
            folded,
        });
    }

    /// Puts back what a summary on demand stands for. Returns whether there is any.
    fn restore_summarised(&mut self, entry: usize, place: usize, block: &Value) -> bool {
        let summary = Summary::read_valid(block, &self.digests);
        let Some(summary) = summary.filter(|_| block["type"] == "compaction") else {
            return false;
        };
        self.summarised = Some(summary.role);
        let units = summary.units.into_iter().map(|(digest, folded)| Unit {
            entry,
            place,
            digest,
            folded,
        });
        self.digests.units.extend(units);
        true
    }

    pub(super) fn position(&self, thought: &Thought<'_>) -> Position {
        let units = &self.digests.units;
        let from = thought.before.saturating_sub(RECENT).max(thought.start);
        let recent = units[from..thought.before].iter();
        let older = from.checked_sub(1).filter(|at| *at >= thought.start);
        Position {
            older: older.map_or(0, |at| units[at].folded),
            recent: recent.map(|unit| unit.digest as u32).collect(),
        }
    }
}

fn read_list(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
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
    digest_without(block, signature_key(block))
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

/// The same of an object without a member.
pub(super) fn digest_without(object: &Value, member: &str) -> u64 {
    let mut hasher = Xxh3::new();
    feed_members(&mut hasher, object.as_object(), member);
    hasher.digest()
}

fn feed(hasher: &mut Xxh3, value: &Value) {
    match value {
        Value::Array(values) => {
            hasher.update(b"[");
            values.iter().for_each(|value| feed(hasher, value));
            hasher.update(b"]");
        }
        Value::Object(members) => feed_members(hasher, Some(members), ""),
        Value::String(text) => feed_text(hasher, text),
        plain => hasher.update(plain.to_string().as_bytes()),
    }
}

/// The members are in the order of their keys.
fn feed_members(hasher: &mut Xxh3, members: Option<&Map<String, Value>>, without: &str) {
    hasher.update(b"{");
    for (key, value) in members.into_iter().flatten() {
        if key != "cache_control" && key != without {
            feed_text(hasher, key);
            feed(hasher, value);
        }
    }
    hasher.update(b"}");
}

fn feed_text(hasher: &mut Xxh3, text: &str) {
    hasher.update(b"\"");
    hasher.update(&text.len().to_le_bytes());
    hasher.update(text.as_bytes());
}
