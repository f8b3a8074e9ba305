//! All that a model reads of a request, counted and hashed in one pass.
//!
//! Schemas first, then messages: the order in which a prefix cache sees them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::count::Pieces;

/// Tokens of one block of the prefix cache.
pub(super) const BLOCK: u32 = 128;

/// What the format around one message costs.
const PER_MESSAGE: u32 = 4;
/// The start of the answer, counted with the prompt.
const PRIMING: u32 = 3;
/// An image whose size cannot be told, and one of `detail: low`.
const IMAGE: u32 = 765;
const LOW_IMAGE: u32 = 85;

/// A prompt, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Prompt {
    /// Tool schemas, legacy functions and the response format.
    pub(super) function_tokens: u32,
    pub(super) message_tokens: u32,
    /// The running hash at the end of each whole [`BLOCK`], from the start of the prompt.
    pub(super) blocks: Vec<u64>,
    /// The running hash at the end.
    pub(super) hash: u64,
}

impl Prompt {
    pub(super) fn tokens(&self) -> u32 {
        self.function_tokens.saturating_add(self.message_tokens)
    }

    /// Counts schemas first, then the messages: the order in which a cache sees them.
    pub(super) fn of(seed: u64, schemas: &[&Value], messages: &[Value]) -> Self {
        let mut prompt = Self {
            hash: seed,
            ..Self::default()
        };
        for schema in schemas {
            prompt.text(&schema.to_string());
        }
        prompt.function_tokens = std::mem::take(&mut prompt.message_tokens);
        for message in messages {
            prompt.piece("\u{1}", PER_MESSAGE);
            prompt.value(message);
        }
        prompt.piece("\u{2}", PRIMING);
        prompt
    }

    fn text(&mut self, text: &str) {
        for (piece, tokens) in Pieces::of(text) {
            self.piece(piece, tokens);
        }
    }

    fn piece(&mut self, piece: &str, tokens: u32) {
        self.hash = xxh3_64_with_seed(piece.as_bytes(), self.hash);
        let before = self.tokens();
        self.message_tokens = self.message_tokens.saturating_add(tokens);
        for _ in before / BLOCK..self.tokens() / BLOCK {
            self.hash = self.hash.rotate_left(1);
            self.blocks.push(self.hash);
        }
    }

    /// All that a model reads of a message; keys of objects are part of the format and free.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => {}
            Value::String(text) => self.text(text),
            Value::Bool(_) | Value::Number(_) => self.text(&value.to_string()),
            Value::Array(list) => list.iter().for_each(|one| self.value(one)),
            Value::Object(fields) => match fields.get("type").and_then(Value::as_str) {
                Some("text") => self.value(&fields["text"]),
                Some("image_url") => self.image(&fields["image_url"]),
                Some(media @ ("input_audio" | "file" | "audio")) => {
                    self.media(&fields.get(media).unwrap_or(&Value::Null).to_string());
                }
                Some("function") => self.value(&fields["function"]),
                _ => fields
                    .iter()
                    .filter(|(key, _)| READ.contains(&key.as_str()))
                    .for_each(|(_, one)| self.value(one)),
            },
        }
    }

    fn image(&mut self, image: &Value) {
        let url = image["url"].as_str().unwrap_or_default();
        let tokens = match image["detail"].as_str() {
            Some("low") => LOW_IMAGE,
            _ => image_size(url).map_or(IMAGE, |(width, height)| tiles(width, height)),
        };
        self.piece(url, tokens);
    }

    /// Sound and documents: a token per 400 characters of their encoding.
    fn media(&mut self, encoded: &str) {
        let tokens = u32::try_from(encoded.len() / 400).unwrap_or(u32::MAX);
        self.piece(encoded, tokens.saturating_add(20));
    }
}

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

/// Width and height of an image in a data URL, from its first bytes.
fn image_size(url: &str) -> Option<(u64, u64)> {
    /// Enough for the headers of every common format; a multiple of four.
    const HEADER: usize = 64 * 1024;
    let encoded = url.strip_prefix("data:")?.split_once(";base64,")?.1;
    let head = encoded.get(..encoded.len().min(HEADER) / 4 * 4)?;
    let size = imagesize::blob_size(&STANDARD.decode(head).ok()?).ok()?;
    Some((size.width as u64, size.height as u64))
}

/// 85 + 170 per 512-pixel tile, after fitting into 2,048 and a shorter side of 768.
fn tiles(width: u64, height: u64) -> u32 {
    let (mut width, mut height) = (width.max(1) as f64, height.max(1) as f64);
    let shrink = (2048.0 / width.max(height)).min(1.0);
    (width, height) = (width * shrink, height * shrink);
    let shrink = (768.0 / width.min(height)).min(1.0);
    (width, height) = (width * shrink, height * shrink);
    // At most 4 by 4 tiles, by the fitting above.
    85 + 170 * ((width / 512.0).ceil() * (height / 512.0).ceil()) as u32
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_counts_what_a_model_reads() {
        let count = |message: Value| Prompt::of(0, &[], &[message]).tokens();
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
        assert_eq!(tiles(1024, 1024), 765);
        assert_eq!(tiles(4096, 8192), 1105);
    }

    #[test]
    fn blocks_are_stable_under_growth() {
        let message = |text: &str| json!({"role": "user", "content": text.repeat(400)});
        let short = [message("one two three ")];
        let long = [message("one two three "), message("four five ")];
        let schema = json!({"name": "f"});
        let (a, b) = (
            Prompt::of(1, &[&schema], &short),
            Prompt::of(1, &[&schema], &long),
        );
        // The last block may hold the start of the answer, which moves.
        let whole = a.blocks.len() - 1;
        assert!(whole > 3 && a.blocks[..whole] == b.blocks[..whole]);
        assert_eq!(b.blocks.len(), (b.tokens() / BLOCK) as usize);
        assert_ne!(Prompt::of(2, &[&schema], &short).blocks, a.blocks);
    }
}
