//! Estimates the tokens of a request before it is sent.
//!
//! An estimate drives cutting only. Health comes from the usage that the provider reports. *Raw* tokens follow the
//! fixed rule below: they are the same for the same bytes and settings, so that every replica cuts at the same place.
//! A [`Calibration`] turns raw tokens into expected tokens. It learns from the usage of each answer, and decides only
//! *whether* to cut.

mod calibration;

use base64::{Engine as _, engine::general_purpose::STANDARD};

pub use self::calibration::{Calibration, SLOPES};
use super::{
    Policy,
    profile::{ImageRule, Profile},
};
use crate::{
    conversation::{Block, BlockKind, Conversation, Item},
    json::text::{self, TextSizes},
};

/// The frame of a message: role, separators, ids.
const MESSAGE_TOKENS: u32 = 6;
/// The frame of a call.
const CALL_TOKENS: u32 = 8;
/// An image of unknown size. Also audio, video and files, whose tokens do not follow from their bytes.
const MEDIA_TOKENS: u32 = 1_700;
/// An image in low detail.
const LOW_DETAIL_TOKENS: u32 = 85;
/// How much of an image is decoded to find its size.
const IMAGE_HEAD_BYTES: usize = 24 * 1024;

/// Tokens per character by kind of text, in the order of the fields of [`TextSizes`].
#[derive(Clone, Copy, Debug)]
pub struct Weights([f64; 6]);

impl Weights {
    /// `chars_per_token` is for Latin text. The other weights are the upper ends of what newer vocabularies need.
    pub fn new(chars_per_token: f64) -> Self {
        Self([1.0 / chars_per_token, 0.8, 0.75, 0.8, 2.0, 0.5])
    }

    /// Raw tokens of a character of the heaviest kind.
    pub fn max_char_weight(&self) -> f64 {
        self.0.into_iter().fold(0.0, f64::max)
    }

    /// Raw tokens of a text, rounded up.
    pub fn count_text_tokens(&self, sizes: &TextSizes) -> u32 {
        round_up_tokens(self.text_weight(sizes))
    }

    /// Raw tokens of a text that is escaped for JSON, rounded up.
    pub fn count_json_tokens(&self, escaped: &[u8]) -> u32 {
        self.count_text_tokens(&text::measure_text(escaped))
    }

    /// Raw tokens of a text that is not escaped for JSON, rounded up.
    pub fn count_plain_tokens(&self, plain: &str) -> u32 {
        self.count_json_tokens(text::escape_text(plain).as_bytes())
    }

    /// Raw tokens of the character with this code point.
    pub fn char_weight(&self, code: u32) -> f64 {
        match code {
            0..0x80 => self.0[0],
            _ => self.text_weight(&TextSizes::from_code(code)),
        }
    }

    /// Raw tokens of a text.
    pub fn text_weight(&self, sizes: &TextSizes) -> f64 {
        let TextSizes {
            latin,
            han,
            kana,
            hangul,
            emoji,
            other,
        } = *sizes;
        let counts = [latin, han, kana, hangul, emoji, other].map(f64::from);
        let tokens = counts.into_iter().zip(self.0);
        tokens.map(|(count, weight)| count * weight).sum()
    }
}

/// Raw tokens of a message with text of these sizes.
pub fn estimate_message(
    conversation: &Conversation,
    message: &Item,
    sizes: &TextSizes,
    weights: &Weights,
    profile: &Profile,
) -> u32 {
    let calls = (message.calls.len() as u32).saturating_mul(CALL_TOKENS);
    weights
        .count_text_tokens(sizes)
        .saturating_add(MESSAGE_TOKENS)
        .saturating_add(calls)
        .saturating_add(estimate_media(conversation, message, profile))
}

/// Raw tokens of every message of a conversation as it came.
pub(super) fn estimate_messages(conversation: &Conversation, policy: &Policy<'_>) -> Vec<u32> {
    let (weights, profile) = (policy.token_weights(), policy.profile);
    let messages = conversation.items.iter();
    messages
        .map(|it| estimate_message(conversation, it, &it.sizes, &weights, profile))
        .collect()
}

/// Raw tokens of the media of a message.
pub fn estimate_media(conversation: &Conversation, message: &Item, profile: &Profile) -> u32 {
    let blocks = conversation.blocks_of(message).iter();
    let tokens = blocks.map(|block| estimate_media_block(conversation, block, profile));
    tokens.fold(0, u32::saturating_add)
}

/// Raw tokens of an image or another medium; 0 for other blocks.
pub fn estimate_media_block(conversation: &Conversation, part: &Block, profile: &Profile) -> u32 {
    match part.kind {
        BlockKind::Image { low: true, .. } if profile.images == ImageRule::Tiles => {
            LOW_DETAIL_TOKENS
        }
        BlockKind::Image { url: Some(url), .. } => {
            estimate_image(conversation.raw_bytes(url), profile.images)
        }
        BlockKind::Image { .. } | BlockKind::Media => MEDIA_TOKENS,
        BlockKind::Text(_) | BlockKind::Opaque => 0,
    }
}

/// Raw tokens of the members beside the messages that the model reads, such as tool schemas.
pub fn estimate_beside_messages(conversation: &Conversation, weights: &Weights) -> u32 {
    let spans = conversation.beside_items();
    let tokens = spans.map(|span| weights.count_json_tokens(conversation.span_bytes(span)));
    tokens.fold(0, u32::saturating_add)
}

fn round_up_tokens(tokens: f64) -> u32 {
    tokens.ceil() as u32
}

/// Raw tokens of an image, by the provider's rule where its size can be read.
fn estimate_image(url: &[u8], rule: ImageRule) -> u32 {
    let Some((width, height)) = read_image_size(url) else {
        return MEDIA_TOKENS;
    };
    match rule {
        ImageRule::Tiles => estimate_tiles(width, height),
        // Anthropic scales images down to about 1,600 tokens.
        ImageRule::Area => round_up_tokens(width * height / 750.0).min(1_600),
        ImageRule::Flat => {
            let tiles = (width / 768.0).ceil() * (height / 768.0).ceil();
            258 * round_up_tokens(tiles).clamp(1, 16)
        }
    }
}

/// OpenAI's rule: 85 tokens, and 170 for each tile of 512 pixels, after scaling into 2,048 and a shorter side of 768.
fn estimate_tiles(width: f64, height: f64) -> u32 {
    let fit = (2_048.0 / width.max(height)).min(1.0);
    let shorter = width.min(height) * fit;
    let fit = fit * (768.0 / shorter).min(1.0);
    let tiles = (width * fit / 512.0).ceil() * (height * fit / 512.0).ceil();
    85 + 170 * round_up_tokens(tiles)
}

/// The size of the image in a data URL, read from its head.
fn read_image_size(url: &[u8]) -> Option<(f64, f64)> {
    let comma = memchr::memchr(b',', url.get(..100.min(url.len()))?)?;
    let (kind, data) = url.split_at(comma);
    if !kind.starts_with(b"data:image/") || !kind.ends_with(b";base64") {
        return None;
    }
    let head = &data[1..data.len().min(IMAGE_HEAD_BYTES * 4 / 3)];
    let head = &head[..head.len() / 4 * 4];
    let size = imagesize::blob_size(&STANDARD.decode(head).ok()?).ok()?;
    (size.width > 0 && size.height > 0).then_some((size.width as f64, size.height as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_counted_by_the_provider_s_rule() {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend_from_slice(&1024u32.to_be_bytes());
        png.extend_from_slice(&1024u32.to_be_bytes());
        png.extend_from_slice(&[8, 6, 0, 0, 0, 0, 0, 0, 0]);
        png.resize(100_000, 0);
        let url = format!("data:image/png;base64,{}", STANDARD.encode(&png));
        let estimate = |url: &str, rule| estimate_image(url.as_bytes(), rule);
        assert_eq!(estimate(&url, ImageRule::Tiles), 85 + 170 * 4);
        assert_eq!(estimate(&url, ImageRule::Area), 1_399);
        assert_eq!(estimate(&url, ImageRule::Flat), 258 * 4);
        for url in ["http://x/y.png", "data:image/png;base64,@@@@", "data:,", ""] {
            assert_eq!(estimate(url, ImageRule::Tiles), MEDIA_TOKENS);
        }
    }

    #[test]
    fn tiles_follow_the_published_examples() {
        assert_eq!(estimate_tiles(1024.0, 1024.0), 765);
        assert_eq!(estimate_tiles(2048.0, 4096.0), 1105);
        assert_eq!(estimate_tiles(100.0, 100.0), 255);
    }
}
