//! All that a model reads of a request, counted and hashed in one pass, and the prefix cache.
//!
//! Schemas first, then messages: the order in which a prefix cache sees them.

use std::{
    num::NonZeroUsize,
    sync::{LazyLock, Mutex, PoisonError},
};

use lru::LruCache;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::count::Pieces;

/// Tokens of one block of the prefix cache.
const BLOCK: u32 = 128;
/// What the format around one message costs.
const PER_MESSAGE: u32 = 4;
/// The start of the answer, counted with the prompt.
const PRIMING: u32 = 3;
/// An image, and one of `detail: low`.
const IMAGE: u32 = 765;
const LOW_IMAGE: u32 = 85;
/// Prompts with fewer cached tokens are billed in full.
const LEAST_CACHED: u32 = 1024;
/// Blocks that are remembered: eight million tokens in a few megabytes of memory.
const CACHED_BLOCKS: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");

/// The least recently used blocks are dropped first. A block's key is the hash of everything before
/// its end, so that an early change loses all that follows, as at a real provider.
static CACHE: LazyLock<Mutex<LruCache<u64, ()>>> =
    LazyLock::new(|| Mutex::new(LruCache::new(CACHED_BLOCKS)));

/// Members of a message that reach the model.
const READ: &[&str] = &[
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "arguments",
    "reasoning_content",
    "refusal",
    "custom",
    "input",
];

/// A prompt, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Prompt {
    /// Tool schemas, legacy functions and the response format.
    pub(super) function_tokens: u32,
    pub(super) message_tokens: u32,
    /// The running hash at the end of each whole [`BLOCK`], from the start of the prompt.
    blocks: Vec<u64>,
    /// The running hash at the end.
    pub(super) hash: u64,
}

impl Prompt {
    pub(super) fn tokens(&self) -> u32 {
        self.function_tokens.saturating_add(self.message_tokens)
    }

    pub(super) fn count(seed: u64, schemas: &[&Value], messages: &[Value]) -> Self {
        let mut prompt = Self {
            hash: seed,
            ..Self::default()
        };
        for schema in schemas {
            prompt.add_text(&schema.to_string());
        }
        prompt.function_tokens = std::mem::take(&mut prompt.message_tokens);
        for message in messages {
            prompt.add_piece("\u{1}", PER_MESSAGE);
            prompt.add_value(message);
        }
        prompt.add_piece("\u{2}", PRIMING);
        prompt
    }

    fn add_text(&mut self, text: &str) {
        for (piece, tokens) in Pieces(text) {
            self.add_piece(piece, tokens);
        }
    }

    fn add_piece(&mut self, piece: &str, tokens: u32) {
        self.hash = xxh3_64_with_seed(piece.as_bytes(), self.hash);
        let before = self.tokens();
        self.message_tokens = self.message_tokens.saturating_add(tokens);
        for _ in before / BLOCK..self.tokens() / BLOCK {
            self.hash = self.hash.rotate_left(1);
            self.blocks.push(self.hash);
        }
    }

    /// Keys of objects are part of the format and free.
    fn add_value(&mut self, value: &Value) {
        match value {
            Value::Null => {}
            Value::String(text) => self.add_text(text),
            Value::Bool(_) | Value::Number(_) => self.add_text(&value.to_string()),
            Value::Array(list) => list.iter().for_each(|one| self.add_value(one)),
            Value::Object(fields) => match fields.get("type").and_then(Value::as_str) {
                Some("text") => self.add_value(&value["text"]),
                Some("function") => self.add_value(&value["function"]),
                Some("image_url") => {
                    let image = &value["image_url"];
                    let low = image["detail"] == "low";
                    let url = image["url"].as_str().unwrap_or_default();
                    self.add_piece(url, if low { LOW_IMAGE } else { IMAGE });
                }
                // Sound and documents: a token per 400 characters of their encoding.
                Some(media @ ("input_audio" | "file" | "audio")) => {
                    let encoded = value[media].to_string();
                    let tokens = u32::try_from(encoded.len() / 400).unwrap_or(u32::MAX);
                    self.add_piece(&encoded, tokens.saturating_add(20));
                }
                _ => fields
                    .iter()
                    .filter(|(key, _)| READ.contains(&key.as_str()))
                    .for_each(|(_, one)| self.add_value(one)),
            },
        }
    }

    /// How many tokens of this prompt were cached for this owner; all of it is from now on.
    pub(super) fn read_cache(&self, owner: u64) -> u32 {
        // A panic elsewhere leaves a cache of hashes in order.
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        // The last token is always computed, so a block that ends with the prompt is none.
        let whole = (self.tokens().saturating_sub(1) / BLOCK) as usize;
        let keys = self.blocks.iter().take(whole).map(|block| block ^ owner);
        let hits = keys.clone().take_while(|key| cache.contains(key)).count();
        // From the end, so that what all continuations share is dropped last.
        for key in keys.rev() {
            cache.put(key, ());
        }
        let cached = u32::try_from(hits)
            .unwrap_or(u32::MAX)
            .saturating_mul(BLOCK);
        if cached < LEAST_CACHED { 0 } else { cached }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_counts_what_a_model_reads() {
        let count = |message: Value| Prompt::count(0, &[], &[message]).tokens();
        let plain = count(json!({"role": "user", "content": "hello there"}));
        assert_eq!(plain, PER_MESSAGE + PRIMING + 1 + 2);
        let parts = json!({"role": "user", "content": [{"type": "text", "text": "hello there"}]});
        assert_eq!(count(parts), plain);
        let unknown = json!({"role": "user", "content": "hello there", "plimsoll": {"a": "b"}});
        assert_eq!(count(unknown), plain);
        let image = json!({"role": "user", "content": [{"type": "image_url",
            "image_url": {"url": format!("data:image/png;base64,{}", "A".repeat(40_000))}}]});
        assert!((700..900).contains(&count(image)));
        let low = json!({"role": "user", "content": [{"type": "image_url",
            "image_url": {"url": "https://example.org/a.png", "detail": "low"}}]});
        assert!(count(low) < 120);
    }

    #[test]
    fn a_grown_conversation_hits_the_cache_and_a_changed_start_does_not() {
        let message = |text: &str| json!({"role": "user", "content": text.repeat(800)});
        let prompt = |texts: &[&str]| {
            let messages: Vec<Value> = texts.iter().map(|text| message(text)).collect();
            Prompt::count(7, &[], &messages)
        };
        let first = prompt(&["alpha beta "]);
        assert_eq!(first.read_cache(1), 0);
        let again = first.read_cache(1);
        assert!(again >= LEAST_CACHED && again < first.tokens() && again.is_multiple_of(BLOCK));
        let grown = prompt(&["alpha beta ", "gamma "]);
        let hit = grown.read_cache(1);
        assert!(hit >= again - BLOCK && hit <= first.tokens());
        assert_eq!(prompt(&["Alpha beta ", "gamma "]).read_cache(1), 0);
        assert_eq!(grown.read_cache(2), 0, "another owner");
        let short = Prompt::count(7, &[], &[json!({"role": "user", "content": "hi"})]);
        assert_eq!((short.read_cache(1), short.read_cache(1)), (0, 0));
    }
}
