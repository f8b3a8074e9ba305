//! The simulated provider's token count and prefix cache.
//!
//! Text is split like the first step of a byte-pair encoder: words with the space before them, groups of
//! up to three digits, runs of punctuation or white space, single CJK characters. Long words are split
//! again, and each piece is a token. The guard's estimate counts characters per kind of text instead, so
//! that its mistakes show here.

use std::{num::NonZeroUsize, sync::LazyLock};

use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::SimulatedApi;

/// Tokens of one block of the prefix cache.
const BLOCK: u32 = 128;
/// Tokens of the format around one message.
const PER_MESSAGE: u32 = 4;
/// Tokens of the start of the answer, counted with the prompt.
const PRIMING: u32 = 3;
/// Tokens of an image.
const IMAGE: u32 = 765;
/// Prompts with fewer cached tokens are billed in full.
const LEAST_CACHED: u32 = 1024;
/// Eight million tokens in a few megabytes of memory.
const CACHED_BLOCKS: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");

/// A block's key is the hash of everything before its end, so that an early change loses all later
/// blocks, as at a real provider.
static CACHE: LazyLock<Mutex<LruCache<u64, ()>>> =
    LazyLock::new(|| Mutex::new(LruCache::new(CACHED_BLOCKS)));

/// What reaches the model before the messages, beside the system prompt.
const SCHEMAS: [&str; 3] = ["tools", "functions", "response_format"];
/// Members of a message, an item or a block that reach the model, separated by spaces.
const READ_MEMBERS: &str = "role content text name tool_calls tool_call_id function function_call arguments \
    reasoning_content thinking refusal custom input output source";

/// The system prompt and the messages of a request; the items of Responses.
pub(super) fn list_messages(api: SimulatedApi, body: &Value) -> Vec<&Value> {
    let (system, messages) = match api {
        SimulatedApi::Chat => (None, &body["messages"]),
        SimulatedApi::Messages => (body.get("system"), &body["messages"]),
        SimulatedApi::Responses => (body.get("instructions"), &body["input"]),
    };
    let messages = match messages {
        Value::Array(messages) => messages.as_slice(),
        Value::String(_) => std::slice::from_ref(messages),
        _ => &[],
    };
    system.into_iter().chain(messages).collect()
}

/// The prompt, counted and hashed in one pass: schemas first, then messages, as a prefix cache sees them.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedPrompt {
    pub(super) tokens: u32,
    /// The running hash at the end of each whole [`BLOCK`], from the start of the prompt.
    blocks: Vec<u64>,
    /// The running hash at the end.
    pub(super) hash: u64,
}

impl SimulatedPrompt {
    /// `seed`: of the model and the owner of the cache.
    pub(super) fn count_prompt(seed: u64, body: &Value, messages: &[&Value]) -> Self {
        let mut prompt = Self {
            hash: seed,
            ..Self::default()
        };
        for schema in SCHEMAS.iter().filter_map(|name| body.get(name)) {
            prompt.add_text(&schema.to_string());
        }
        for message in messages {
            prompt.add_piece("\u{1}", PER_MESSAGE);
            prompt.add_value(message);
        }
        prompt.add_piece("\u{2}", PRIMING);
        prompt
    }

    fn add_text(&mut self, text: &str) {
        for piece in TokenPieces(text) {
            self.add_piece(piece, 1);
        }
    }

    fn add_piece(&mut self, piece: &str, tokens: u32) {
        self.hash = xxh3_64_with_seed(piece.as_bytes(), self.hash);
        let before = self.tokens;
        self.tokens = self.tokens.saturating_add(tokens);
        for _ in before / BLOCK..self.tokens / BLOCK {
            self.hash = self.hash.rotate_left(1);
            self.blocks.push(self.hash);
        }
    }

    /// Keys of objects are part of the format and free, apart from those of a call's input.
    fn add_value(&mut self, value: &Value) {
        match value {
            Value::Null => {}
            Value::String(text) => self.add_text(text),
            Value::Bool(_) | Value::Number(_) => self.add_text(&value.to_string()),
            Value::Array(list) => list.iter().for_each(|element| self.add_value(element)),
            Value::Object(members) => {
                let kind = value["type"].as_str();
                let source = &value["source"];
                let is_medium = ["base64", "url", "file"]
                    .map(Value::from)
                    .contains(&source["type"]);
                if is_medium || kind.is_some_and(|kind| kind.contains("image")) {
                    return self.add_piece(&value.to_string(), IMAGE);
                }
                for (key, member) in members {
                    match key.as_str() {
                        "source" if member["type"] == "content" => self.add_value(member),
                        "input" | "source" => self.add_text(&member.to_string()),
                        key if READ_MEMBERS.split(' ').any(|name| name == key) => {
                            self.add_value(member);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// The number of cached tokens; afterwards the whole prompt is cached. The last token is always computed, so a
    /// block that ends with the prompt is not cached.
    pub(super) fn read_cache(&self) -> u32 {
        let mut cache = CACHE.lock();
        let whole = (self.tokens.saturating_sub(1) / BLOCK) as usize;
        let blocks = self.blocks.iter().take(whole);
        let hits = blocks.clone().take_while(|block| cache.contains(block));
        let cached = hits.map(|_| BLOCK).sum();
        // From the end, so that the blocks that continuations share are dropped last.
        for block in blocks.rev() {
            cache.put(*block, ());
        }
        if cached < LEAST_CACHED { 0 } else { cached }
    }
}

pub(super) fn count_tokens(text: &str) -> u32 {
    TokenPieces(text).map(|_| 1).sum()
}

/// The byte index after the first `limit` tokens.
pub(super) fn find_end(text: &str, limit: u32) -> usize {
    let pieces = (0..limit).zip(TokenPieces(text));
    pieces.map(|(_, piece)| piece.len()).sum()
}

/// The tokens of a text, in order and without gaps.
pub(super) struct TokenPieces<'a>(pub(super) &'a str);

impl<'a> Iterator for TokenPieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let first = classify_character(self.0.chars().next()?);
        // One space belongs to the word or mark after it.
        let after_space = self.0.strip_prefix(' ');
        let next = after_space.and_then(|rest| rest.chars().next());
        let next = next.map(classify_character);
        let joined = next.filter(|(kind, _)| ["letter", "foreign letter", "mark"].contains(kind));
        let (kind, longest) = joined.unwrap_or(first);
        let mut rest = self.0.char_indices().enumerate().skip(1);
        let end =
            rest.find(|(nth, (_, next))| *nth >= longest || classify_character(*next).0 != kind);
        let end = end.map_or(self.0.len(), |(_, (index, _))| index);
        let (piece, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(piece)
    }
}

/// The kind of a character, and how many of this kind make a token.
fn classify_character(character: char) -> (&'static str, usize) {
    match character {
        'a'..='z' | 'A'..='Z' => ("letter", 6),
        '0'..='9' => ("digit", 3),
        // Han, kana, Hangul, pictographs.
        '\u{1100}'..='\u{11ff}' | '\u{2600}'..='\u{27bf}' | '\u{2e80}'.. => ("ideograph", 1),
        _ if character.is_whitespace() => ("space", 16),
        _ if character.is_alphabetic() => ("foreign letter", 3),
        _ => ("mark", 3),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pieces(text: &str) -> Vec<&str> {
        TokenPieces(text).collect()
    }

    #[test]
    fn text_is_split_into_words_digits_marks_and_characters() {
        assert_eq!(
            pieces("Hello world, 12345!"),
            ["Hello", " world", ",", " ", "123", "45", "!"]
        );
        assert_eq!(pieces("    x\n\n\ty"), ["    ", "x", "\n\n\t", "y"]);
        assert_eq!(pieces("你好吗"), ["你", "好", "吗"]);
    }

    #[test]
    fn long_words_cost_more() {
        assert_eq!(count_tokens("word"), 1);
        assert_eq!(count_tokens("internationalisation"), 4);
        assert_eq!(count_tokens("🚢"), 1);
        assert_eq!(count_tokens("привет"), 2);
        assert_eq!(count_tokens(""), 0);
        assert!(count_tokens(&"x".repeat(10_000)) > 1_000);
    }

    #[test]
    fn only_known_members_are_counted() {
        let count =
            |message: Value| SimulatedPrompt::count_prompt(0, &Value::Null, &[&message]).tokens;
        let plain = count(json!({"role": "user", "content": "hello there"}));
        assert_eq!(plain, PER_MESSAGE + PRIMING + 1 + 2);
        let parts = json!({"role": "user", "content": [{"type": "text", "text": "hello there"}]});
        assert_eq!(count(parts), plain);
        let unknown = json!({"role": "user", "content": "hello there", "plimsoll": {"a": "b"}});
        assert_eq!(count(unknown), plain);
        let image = json!({"role": "user", "content": [{"type": "image_url",
            "image_url": {"url": format!("data:image/png;base64,{}", "A".repeat(40_000))}}]});
        assert!((700..900).contains(&count(image)));
        let source = json!({"type": "base64", "data": "A".repeat(40_000)});
        let inside = json!({"type": "content", "content": [{"type": "image", "source": source}]});
        for source in [source, inside] {
            let document =
                json!({"role": "user", "content": [{"type": "document", "source": source}]});
            assert!((700..900).contains(&count(document)));
        }
        let call = json!({"type": "tool_use", "name": "read", "input": {"path": "hull"}});
        assert!(count(call) > PER_MESSAGE + PRIMING + 5);
    }

    #[test]
    fn the_cache_is_per_owner_and_ignores_short_prompts() {
        let message = json!({"role": "user", "content": "alpha beta ".repeat(800)});
        let prompt = |owner| SimulatedPrompt::count_prompt(owner, &Value::Null, &[&message]);
        assert_eq!(prompt(1).read_cache(), 0);
        assert!(prompt(1).read_cache() >= LEAST_CACHED);
        assert_eq!(prompt(2).read_cache(), 0, "another owner");
        let message = json!({"role": "user", "content": "hi"});
        let short = SimulatedPrompt::count_prompt(1, &Value::Null, &[&message]);
        assert_eq!((short.read_cache(), short.read_cache()), (0, 0));
    }

    proptest! {
        #[test]
        fn pieces_cover_the_text(text in "\\PC{0,60}|[a-zA-Z0-9 .,\n]{0,200}") {
            prop_assert_eq!(pieces(&text).concat(), text);
        }

        #[test]
        fn a_prefix_keeps_its_limit(text in "[a-zA-Z0-9 .,你好\n]{0,200}", limit in 0u32..60) {
            let end = find_end(&text, limit);
            prop_assert!(count_tokens(&text[..end]) <= limit);
            prop_assert!(end == text.len() || count_tokens(&text) > limit);
        }
    }
}
