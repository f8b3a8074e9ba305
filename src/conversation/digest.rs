//! Digests of what is said, as a session is found by them.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use crate::json::text;

/// The digest of an answer's text and call ids, as the listener to the answer can know them: the
/// digest of its text ([`text::digest`]; 0 or that of no text where it has none) and of each call
/// id.
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

/// A sequence of tagged digests: those of most messages without an allocation.
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

    pub(crate) fn finish(&self) -> u128 {
        xxh3_128(&self.0)
    }
}
