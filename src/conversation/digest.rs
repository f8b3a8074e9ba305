//! Digests of items, by which a session is found.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use crate::json::text;

/// Digests an answer by what is known when it streams past: the digest of its text
/// ([`text::digest_text`]; an answer without text may have 0) and those of its call ids.
pub fn answer_digest(text: u128, call_ids: &[u128]) -> u128 {
    let mut mix = DigestBuilder::default();
    if text != 0 && text != text::digest_text(b"") {
        mix.push_digest(b't', text);
    }
    for &id in call_ids {
        mix.push_digest(b'i', id);
    }
    mix.finish()
}

/// A digest of a sequence of tagged digests. Most messages need no allocation.
#[derive(Default)]
pub(crate) struct DigestBuilder(SmallVec<[u8; 128]>);

impl DigestBuilder {
    pub(crate) fn push_tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    pub(crate) fn push_digest(&mut self, tag: u8, digest: u128) {
        self.push_tag(tag);
        self.0.extend_from_slice(&digest.to_le_bytes());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn finish(&self) -> u128 {
        xxh3_128(&self.0)
    }
}
