//! Encrypted reasoning, which a provider opens before its model reads it.

use crate::json::{scan::JsonString, text::TextSizes};

/// Bytes of encrypted reasoning, after its base64 is decoded, that are not text: the overhead of the encryption.
const ENCRYPTION_BYTES: usize = 650;

/// Estimates the sizes of an encrypted text, as if it were prose.
pub(in crate::format) fn measure_sealed(encrypted: JsonString) -> TextSizes {
    let bytes = encrypted.span.len() * 3 / 4;
    prose_sizes(bytes.saturating_sub(ENCRYPTION_BYTES))
}

/// The sizes of this many characters of prose: words of five letters, a blank behind each, and a mark behind
/// every sixth.
fn prose_sizes(chars: usize) -> TextSizes {
    let chars = u32::try_from(chars).unwrap_or(u32::MAX);
    let words = chars / 6;
    TextSizes {
        ascii: chars,
        words,
        letters: words * 5,
        mark_runs: words / 6,
        ..TextSizes::default()
    }
}
