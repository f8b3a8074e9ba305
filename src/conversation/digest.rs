//! Digests of items, by which a session is found.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use super::{Arguments, Conversation, Item, texts};
use crate::json::{
    scan::{JsonKind, Span},
    text,
};

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

/// Digests the calls of an answer by their names and arguments, in pieces. Clients spell arguments anew, so white space
/// between tokens, escapes and the order of members do not count: the digests of the parts between commas and braces are
/// added up.
#[derive(Clone, Default)]
pub struct CallDigester {
    names: DigestBuilder,
    arguments: u64,
    /// The digest of what follows the last comma or brace.
    part: text::TextDigester,
    in_text: bool,
    /// Bytes of an escape that are still to come; 6 directly after its backslash.
    escape: u8,
    /// An escape that lies across two pieces.
    pending: Vec<u8>,
}

impl CallDigester {
    /// Takes the name of the next call.
    pub fn push_name(&mut self, raw: &[u8]) {
        self.names.push_digest(b'n', text::digest_text(raw));
    }

    /// Takes the next piece of arguments: JSON, or a string that holds some, quotes included.
    pub fn push_arguments(&mut self, json: &[u8], span: Span, kind: JsonKind) {
        let bytes = &json[span.range()];
        if kind != JsonKind::String {
            return self.push_json(bytes);
        }
        let inside = bytes.get(1..bytes.len().saturating_sub(1));
        let decoded = texts::decode_chars(inside.unwrap_or_default());
        self.push_json(decoded.collect::<String>().as_bytes());
    }

    fn push_json(&mut self, json: &[u8]) {
        let mut whole = 0;
        for &byte in json {
            match (self.in_text, self.escape, byte) {
                (false, _, b',' | b'{' | b'}') => {
                    self.part.push(&self.pending);
                    let part = std::mem::take(&mut self.part);
                    if !part.is_empty() {
                        self.arguments = self.arguments.wrapping_add(part.finish() as u64);
                    }
                    self.pending.clear();
                    whole = 0;
                    continue;
                }
                (false, _, _) if byte.is_ascii_whitespace() => continue,
                (false, _, _) => self.in_text = byte == b'"',
                (true, 0, b'\\') => self.escape = 6,
                (true, 0, _) => self.in_text = byte != b'"',
                (true, 6, b'u') => self.escape = 4,
                (true, 6, _) => self.escape = 0,
                (true, left, _) => self.escape = left - 1,
            }
            self.pending.push(byte);
            if self.escape == 0 {
                whole = self.pending.len();
            }
        }
        self.part.push(&self.pending[..whole]);
        self.pending.drain(..whole);
    }

    /// The digest so far; 0 without calls.
    pub fn finish(&self) -> u32 {
        if self.names.is_empty() && self.arguments == 0 && self.part.is_empty() {
            return 0;
        }
        let mut all = DigestBuilder(self.names.0.clone());
        all.push_digest(b'a', self.arguments.into());
        all.push_digest(b'p', self.part.clone().finish());
        (all.finish() as u32).max(1)
    }
}

impl Conversation {
    /// The digest of an answer's calls, as [`CallDigester`] makes it while the answer streams past.
    pub(crate) fn digest_calls(&self, item: &Item) -> u32 {
        let mut digester = CallDigester::default();
        let calls = self.calls_of(item).iter();
        for call in calls.filter(|call| call.id.is_some()) {
            if let Some(name) = call.name {
                digester.push_name(self.raw_bytes(name));
            }
            let (span, kind) = match call.arguments {
                Some(Arguments::Text(text)) => (text.quoted_span(), JsonKind::String),
                Some(Arguments::Json(span)) => (span, JsonKind::Object),
                None => continue,
            };
            digester.push_arguments(&self.body, span, kind);
        }
        digester.finish()
    }
}

/// A digest of a sequence of tagged digests. Most messages need no allocation.
#[derive(Clone, Default)]
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
