//! A provider's prompt cache, in blocks of the request. Entries do not expire.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use super::{cache::CacheHit, count::TokenCounter};

/// Blocks in which a marker finds an earlier entry, its own among them.
const LOOK_BACK: usize = 20;
/// Shorter beginnings are not cached.
const LEAST: u64 = 1_024;
/// Tokens in which an automatic cache counts.
const STEP: u64 = 128;

/// How a cache is written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheRule {
    /// At the client's markers only, as Anthropic documents it: an entry for each marker, found again from a marker at
    /// most 20 blocks behind it. Each block of a message's content is one.
    AtMarkers,
    /// Everywhere, as OpenAI documents it, in steps of 128 tokens. Each message or entry is a block.
    Automatic,
}

pub(crate) struct BlockCache<'a> {
    counter: &'a TokenCounter,
    rule: CacheRule,
    counts: HashMap<u128, u64>,
    written: HashSet<u128>,
    previous: Vec<u128>,
}

/// The beginning of a request up to and including a block.
struct Beginning {
    digest: u128,
    tokens: u64,
    marked: bool,
}

impl<'a> BlockCache<'a> {
    pub(crate) fn new(rule: CacheRule, counter: &'a TokenCounter) -> Self {
        Self {
            counter,
            rule,
            counts: HashMap::new(),
            written: HashSet::new(),
            previous: Vec::new(),
        }
    }

    /// Reads and writes the cache for a request.
    pub(crate) fn request(&mut self, body: &[u8]) -> CacheHit {
        let beginnings = self.beginnings(body);
        let mut cached = 0;
        for (at, _) in beginnings.iter().enumerate().filter(|(_, it)| it.marked) {
            let near = beginnings[..=at].iter().rev().take(LOOK_BACK);
            let hit = near.filter(|it| self.written.contains(&it.digest));
            cached = cached.max(hit.map(|it| it.tokens).max().unwrap_or(0));
        }
        if self.rule == CacheRule::Automatic {
            cached = cached / STEP * STEP;
        }
        let marked = beginnings.iter().filter(|it| it.marked);
        let marked = marked.filter(|it| it.tokens >= LEAST);
        self.written.extend(marked.map(|it| it.digest));
        let now: Vec<u128> = beginnings.iter().map(|it| it.digest).collect();
        let hit = CacheHit {
            prompt: beginnings.last().map_or(0, |it| it.tokens),
            cached,
            changed: !now.starts_with(&self.previous),
        };
        self.previous = now;
        hit
    }

    /// The prompt's tokens.
    pub(crate) fn count(&mut self, body: &[u8]) -> u64 {
        self.beginnings(body).last().map_or(0, |it| it.tokens)
    }

    /// Adjacent entries of one role are one message in Messages, so only blocks and their roles count there.
    fn beginnings(&mut self, body: &[u8]) -> Vec<Beginning> {
        let body: Value = serde_json::from_slice(body).expect("a request is JSON");
        let tools = body["tools"].as_array().into_iter().flatten();
        let mut blocks: Vec<(&str, Value)> = tools.map(|it| ("tools", it.clone())).collect();
        blocks.extend(content(&body["system"]).map(|it| ("system", it)));
        blocks.extend(content(&body["instructions"]).map(|it| ("instructions", it)));
        let is_automatic = self.rule == CacheRule::Automatic;
        let lists = [&body["messages"], &body["input"]].into_iter();
        for entry in lists.filter_map(Value::as_array).flatten() {
            let role = entry["role"].as_str().unwrap_or_default();
            if is_automatic {
                blocks.push((role, entry.clone()))
            } else {
                blocks.extend(content(&entry["content"]).map(|it| (role, it)))
            }
        }
        let (mut digest, mut tokens) = (0, 0);
        let beginnings = blocks.into_iter().map(|(role, mut block)| {
            let block_members = block.as_object_mut();
            let marked = block_members.is_some_and(|it| it.remove("cache_control").is_some());
            let marked = is_automatic || marked;
            let text = format!("{role}{block}");
            let key = xxh3_128(text.as_bytes());
            let count = || self.counter.text(&text);
            tokens += *self.counts.entry(key).or_insert_with(count);
            digest = xxh3_128(&[u128::to_le_bytes(digest), u128::to_le_bytes(key)].concat());
            Beginning {
                digest,
                tokens,
                marked,
            }
        });
        beginnings.collect()
    }
}

/// A text is one block.
fn content(content: &Value) -> impl Iterator<Item = Value> {
    let blocks = match content {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks.clone(),
        _ => Vec::new(),
    };
    blocks.into_iter()
}

#[cfg(test)]
mod tests {
    use super::{BlockCache, CacheRule, TokenCounter, Value, json};

    #[test]
    fn a_marker_finds_entries_a_few_blocks_before_it() {
        let counter = TokenCounter::o200k();
        let mut cache = BlockCache::new(CacheRule::AtMarkers, &counter);
        let body = |blocks: usize, marked: &[usize]| {
            let block = |at: usize| {
                let mut block = json!({"type": "text", "text": "word ".repeat(1_500)});
                if marked.contains(&at) {
                    block["cache_control"] = json!({"type": "ephemeral"});
                }
                block
            };
            let content: Vec<Value> = (0..blocks).map(block).collect();
            let body = json!({"messages": [{"role": "user", "content": content}]});
            body.to_string().into_bytes()
        };
        assert_eq!(cache.request(&body(3, &[])).cached, 0);
        // Nothing was marked before.
        assert_eq!(cache.request(&body(3, &[2])).cached, 0);
        let all = cache.request(&body(3, &[2]));
        assert_eq!((all.cached, all.changed), (all.prompt, false));
        // The entry stands at the third block, and is found from the 22nd, but not from the 23rd.
        assert_eq!(cache.request(&body(22, &[21])).cached, all.prompt);
        assert_eq!(cache.request(&body(3, &[])).cached, 0);
        assert_eq!(cache.request(&body(43, &[42])).cached, 0);
    }

    #[test]
    fn an_automatic_cache_reads_the_longest_beginning() {
        let counter = TokenCounter::o200k();
        let mut cache = BlockCache::new(CacheRule::Automatic, &counter);
        let body = |texts: &[&str]| {
            let entry = |text: &&str| json!({"role": "user", "content": text.repeat(1_500)});
            let input: Vec<Value> = texts.iter().map(entry).collect();
            json!({"instructions": "Be brief.", "input": input})
                .to_string()
                .into_bytes()
        };
        assert_eq!(cache.request(&body(&["one "])).cached, 0);
        let grown = cache.request(&body(&["one ", "two "]));
        assert!(
            (1_400..1_600).contains(&grown.cached) && !grown.changed,
            "{grown:?}"
        );
        assert_eq!(grown.cached % 128, 0);
        let cut = cache.request(&body(&["one ", "six "]));
        assert_eq!((cut.cached, cut.changed), (grown.cached, true));
        assert_eq!(cache.request(&body(&["six "])).cached, 0);
    }
}
