//! A foreign token count: what a provider might report, by a tokenizer that the proxy does not use.
//!
//! It counts all text that the model reads, 4 tokens a message, tools and response formats as their
//! JSON, and images by OpenAI's published rule. Counts of messages are cached, so that every step
//! of a session can be counted.

use std::{borrow::Cow, collections::HashMap, sync::Mutex};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};
use xxhash_rust::xxh3::xxh3_128;

use super::parse;

/// Tokens for the role and the separators of a message.
const PER_MESSAGE: u64 = 4;
/// Tokens of an image of unknown size: as of 1,024 by 1,024 pixels.
const UNKNOWN_IMAGE: u64 = 765;
/// Tokens of audio, video and files, whose true count is unknown here.
const OTHER_MEDIA: u64 = 500;

pub(crate) struct TokenCounter {
    words: &'static CoreBPE,
    known: Mutex<HashMap<u128, u64>>,
}

#[derive(Deserialize)]
struct CountedBody<'a> {
    #[serde(borrow, default)]
    messages: Vec<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    functions: Option<&'a RawValue>,
    #[serde(borrow)]
    response_format: Option<&'a RawValue>,
}

impl TokenCounter {
    /// The vocabulary of newer models.
    pub(crate) fn o200k() -> Self {
        Self::new(o200k_base_singleton())
    }

    /// The vocabulary of older models, which needs twice the tokens for Chinese.
    pub(crate) fn cl100k() -> Self {
        Self::new(cl100k_base_singleton())
    }

    fn new(words: &'static CoreBPE) -> Self {
        Self {
            words,
            known: Mutex::default(),
        }
    }

    /// Prompt tokens of a request body; 0 for other JSON.
    pub(crate) fn request(&self, body: &[u8]) -> u64 {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let Ok(parsed) = serde_json::from_slice::<CountedBody<'_>>(body) else {
            return 0;
        };
        let beside = [parsed.tools, parsed.functions, parsed.response_format];
        let beside: u64 = beside
            .into_iter()
            .flatten()
            .map(|value| self.schema(value))
            .sum();
        let messages = parsed.messages.iter();
        beside + messages.map(|message| self.message(message)).sum::<u64>()
    }

    /// The parts of a body in the order in which a provider reads them, tools first, each with its
    /// tokens.
    pub(crate) fn pieces<'a>(&self, body: &'a [u8]) -> Vec<(&'a [u8], u64)> {
        let Ok(parsed) = serde_json::from_slice::<CountedBody<'_>>(body) else {
            return Vec::new();
        };
        let beside = [parsed.tools, parsed.functions, parsed.response_format];
        let beside = beside.into_iter().flatten();
        let beside = beside.map(|value| (value.get().as_bytes(), self.schema(value)));
        let messages = parsed.messages.into_iter();
        let messages = messages.map(|message| (message.get().as_bytes(), self.message(message)));
        beside.chain(messages).collect()
    }

    pub(crate) fn text(&self, text: &str) -> u64 {
        self.words.count_ordinary(text) as u64
    }

    fn message(&self, message: &RawValue) -> u64 {
        self.count_once(message, |value| {
            PER_MESSAGE + self.count_message_text(value)
        })
    }

    fn schema(&self, schema: &RawValue) -> u64 {
        self.count_once(schema, |value| self.text(&value.to_string()))
    }

    fn count_once(&self, raw: &RawValue, count: impl FnOnce(&Value) -> u64) -> u64 {
        let key = xxh3_128(raw.get().as_bytes());
        if let Some(&known) = self.known.lock().unwrap().get(&key) {
            return known;
        }
        let tokens = parse::parse_value(raw.get().as_bytes()).map_or(0, |value| count(&value));
        self.known.lock().unwrap().insert(key, tokens);
        tokens
    }

    /// All text of a message that the model reads.
    fn count_message_text(&self, message: &Value) -> u64 {
        let mut tokens = 0;
        for key in ["name", "reasoning_content", "refusal"] {
            tokens += message[key].as_str().map_or(0, |text| self.text(text));
        }
        let listed = message["tool_calls"].as_array().into_iter().flatten();
        let calls = listed.map(|call| &call["function"]);
        for function in calls.chain(message.get("function_call")) {
            for key in ["name", "arguments"] {
                tokens += function[key].as_str().map_or(0, |text| self.text(text));
            }
        }
        tokens
            + match &message["content"] {
                Value::String(text) => self.text(text),
                Value::Array(parts) => parts.iter().map(|part| self.part(part)).sum(),
                _ => 0,
            }
    }

    fn part(&self, part: &Value) -> u64 {
        match part["type"].as_str() {
            Some("image_url") => image(&part["image_url"]),
            Some("input_audio" | "video_url" | "file") => OTHER_MEDIA,
            _ => part["text"].as_str().map_or(0, |text| self.text(text)),
        }
    }
}

/// 85 tokens, and 170 for each tile of 512 pixels after scaling to fit 2,048 and a shorter side of
/// 768; `low` costs 85.
fn image(image: &Value) -> u64 {
    if image["detail"] == "low" {
        return 85;
    }
    let url = image["url"].as_str().or(image.as_str()).unwrap_or("");
    let Some((width, height)) = pixels(url) else {
        return UNKNOWN_IMAGE;
    };
    let fit = |scale: f64| ((width * scale).ceil(), (height * scale).ceil());
    let (scaled, shorter) = {
        let scale = (2048.0 / width.max(height)).min(1.0);
        (scale, width.min(height) * scale)
    };
    let (wide, high) = fit(scaled * (768.0 / shorter).min(1.0));
    85 + 170 * (wide / 512.0).ceil() as u64 * (high / 512.0).ceil() as u64
}

/// Width and height of an image in a data URL.
fn pixels(url: &str) -> Option<(f64, f64)> {
    let (_, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    let data: Cow<'_, str> = match data.get(..(64 * 1024).min(data.len())) {
        Some(start) => Cow::Borrowed(&start[..start.len() / 4 * 4]),
        None => return None,
    };
    let size = imagesize::blob_size(&STANDARD.decode(data.as_bytes()).ok()?).ok()?;
    (size.width > 0 && size.height > 0).then_some((size.width as f64, size.height as f64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{TokenCounter, image};

    #[test]
    fn text_is_counted_once() {
        let counter = TokenCounter::o200k();
        let hello = br#"{"messages":[{"role":"user","content":"hello world"}]}"#;
        assert_eq!(counter.request(hello), 4 + 2);
        assert_eq!(counter.request(hello), 4 + 2);
        let parts =
            br#"{"messages":[{"role":"user","content":[{"type":"text","text":"hello world"}]}]}"#;
        assert_eq!(counter.request(parts), 6);
        let call = br#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"never read","function":{"name":"hello","arguments":" world"}}]}]}"#;
        assert_eq!(counter.request(call), 6);
        let lone = br#"{"messages":[{"role":"user","content":"a\ud800"}]}"#;
        assert!(counter.request(lone) > 4);
        let tools = br#"{"tools":[{"type":"function"}],"messages":[]}"#;
        assert!(counter.request(tools) > 3);
    }

    #[test]
    fn an_older_vocabulary_counts_more_for_chinese() {
        let text = "上下文窗口已经超过限制，请检查服务器返回的结果。";
        assert!(TokenCounter::cl100k().text(text) > TokenCounter::o200k().text(text));
    }

    #[test]
    fn images_are_counted_by_the_published_rule() {
        assert_eq!(
            image(&json!({"url": "https://x/y.png", "detail": "low"})),
            85
        );
        assert_eq!(image(&json!({"url": "https://x/y.png"})), 765);
        // 64 by 64: one tile.
        let header = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAYAAACqaXHe";
        assert_eq!(image(&json!({"url": header})), 255);
    }
}
