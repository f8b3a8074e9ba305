//! Raw tokens of images and of all other media: PDFs, sounds, videos, files. A new kind has its rule here.

use super::{Weights, round_up_tokens, sum_tokens};
use crate::{
    config::profile::ImageRule,
    conversation::{Block, BlockKind, Conversation, Medium, MediumKind},
    json::text::decode_base64,
};

/// An image of unknown size, or a page. Also the least that audio, video and files count.
const MEDIA_TOKENS: u32 = 1_700;
/// The most pages of a document that count: Anthropic takes no more in windows of 200,000 tokens. No medium counts for more.
const MOST_PAGES: u32 = 100;
/// Bytes of sound, video and unknown data that count as a token: a second of compressed sound or video has some 10,000 bytes
/// and 10 to 32 tokens.
const DATA_BYTES_PER_TOKEN: usize = 500;
/// An image in low detail.
const LOW_DETAIL_TOKENS: u32 = 85;
/// How much of an image is decoded to find its size.
const IMAGE_HEAD_BYTES: usize = 24 * 1024;
/// The most patches of 32 pixels to which OpenAI scales an image.
const MOST_PATCHES: f64 = 1_536.0;

/// Raw tokens of the media in a block; 0 for a block without any.
pub fn estimate_media_block(conversation: &Conversation, block: &Block, weights: &Weights) -> u32 {
    let inside = || conversation.media_in(block.span);
    match (block.kind, weights.images) {
        (BlockKind::Image { low: true, .. }, ImageRule::Tiles) => LOW_DETAIL_TOKENS,
        (BlockKind::Image { .. }, ImageRule::Once(tokens)) => tokens.into(),
        (BlockKind::Image { url: Some(url), .. }, rule) => {
            estimate_image(conversation.raw_bytes(url), rule)
        }
        (BlockKind::Image { .. } | BlockKind::Media, _) => {
            let tokens = estimate_media_list(conversation, inside(), weights);
            // Its data may be elsewhere: a block may name a file by its id.
            let is_elsewhere = inside().iter().all(|it| !it.is_medium());
            tokens.saturating_add(if is_elsewhere { MEDIA_TOKENS } else { 0 })
        }
        (BlockKind::Opaque, _) => estimate_media_list(conversation, inside(), weights),
        (BlockKind::Text(_) | BlockKind::Call | BlockKind::Reasoning(_), _) => 0,
    }
}

/// Raw tokens of media, without the text around them.
pub(super) fn estimate_media_list(
    conversation: &Conversation,
    media: &[Medium],
    weights: &Weights,
) -> u32 {
    sum_tokens(
        media
            .iter()
            .map(|medium| match (&medium.kind, weights.images) {
                (MediumKind::Text(sizes) | MediumKind::Beside(sizes), _) => {
                    weights.count_text_tokens(sizes)
                }
                (MediumKind::Image, rule) => {
                    estimate_image(conversation.span_bytes(medium.span), rule)
                }
                (MediumKind::Pages(pages), rule) => {
                    u32::from(*pages).min(MOST_PAGES) * page_tokens(rule)
                }
                (MediumKind::Data, _) => {
                    let bytes = medium.span.len() * 3 / 4;
                    let tokens = u32::try_from(bytes / DATA_BYTES_PER_TOKEN).unwrap_or(u32::MAX);
                    tokens.clamp(MEDIA_TOKENS, MOST_PAGES * MEDIA_TOKENS)
                }
            }),
    )
}

/// Raw tokens of a page of a document: its image, and its text if the provider reads both. Google documents 258 for a page
/// before Gemini 3, and half of an image's tokens since.
const fn page_tokens(rule: ImageRule) -> u32 {
    match rule {
        ImageRule::Flat => 258,
        ImageRule::Once(tokens) => tokens as u32 / 2,
        _ => MEDIA_TOKENS,
    }
}

/// Raw tokens of an image, by the provider's rule where its size can be read.
fn estimate_image(url: &[u8], rule: ImageRule) -> u32 {
    let Some((width, height)) = read_image_size(url) else {
        return MEDIA_TOKENS;
    };
    let squares = |pixels: f64| (width / pixels).ceil() * (height / pixels).ceil();
    match rule {
        ImageRule::Tiles => estimate_tiles(width, height),
        // Anthropic scales images down to about 1,600 tokens.
        ImageRule::Area => round_up_tokens(width * height / 750.0).min(1_600),
        ImageRule::Flat => 258 * round_up_tokens(squares(768.0)).clamp(1, 16),
        ImageRule::Area28 { edge, tokens } => {
            let fit = (f64::from(edge) / width.max(height)).min(1.0);
            let patches = (width * fit / 28.0).ceil() * (height * fit / 28.0).ceil();
            round_up_tokens(patches).min(tokens.into())
        }
        ImageRule::Patches(times) => {
            round_up_tokens(squares(32.0).min(MOST_PATCHES) * f64::from(times) / 100.0)
        }
        ImageRule::Once(tokens) => tokens.into(),
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

/// The size of the image in a data URL, or in base64 data alone, read from its head.
fn read_image_size(url: &[u8]) -> Option<(f64, f64)> {
    let data = match memchr::memchr(b',', url.get(..100.min(url.len()))?) {
        Some(comma) => {
            let (kind, data) = url.split_at(comma);
            if !kind.starts_with(b"data:image") || !kind.ends_with(b";base64") {
                return None;
            }
            &data[1..]
        }
        None => url,
    };
    let head = decode_base64(data, IMAGE_HEAD_BYTES * 4 / 3)?;
    let size = imagesize::blob_size(&head).ok()?;
    (size.width > 0 && size.height > 0).then_some((size.width as f64, size.height as f64))
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

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
        assert_eq!(estimate(&STANDARD.encode(&png), ImageRule::Area), 1_399);
        assert_eq!(estimate(&url, ImageRule::Flat), 258 * 4);
        let [small, large] = [(1_568, 1_600), (2_576, 4_784)];
        let area = |(edge, tokens)| ImageRule::Area28 { edge, tokens };
        assert_eq!(estimate(&url, area(small)), 37 * 37);
        assert_eq!(estimate(&url, area(large)), 37 * 37);
        assert_eq!(estimate(&url, ImageRule::Patches(162)), 1_659);
        assert_eq!(estimate(&url, ImageRule::Once(1_120)), 1_120);
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
