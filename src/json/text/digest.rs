//! The digest of a text. All spellings of a text have the same digest.
//!
//! Clients echo an answer with different escapes: `\u00e9` for `é`, `\/` for `/`. Only `\u` and `\/` give JSON a
//! choice of spelling. So a text without them is hashed as it stands, and any other text is hashed in the spelling
//! with the fewest escapes. A streamed answer is hashed piece by piece by the same rule.

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::{TextSizes, TextWalk, measure_text, parse_hex4};
use crate::json::scan::JsonString;

/// The results of [`measure_text`] and [`digest_text`] in one pass.
pub fn measure_and_digest(body: &[u8], text: JsonString) -> (TextSizes, u128) {
    let raw = &body[text.span.range()];
    if text.respelled {
        let (spelled, sound) = spell_out(raw);
        // Behind an invalid escape, a character spelled out could complete it.
        let sizes = measure_text(if sound { &spelled } else { raw });
        return (sizes, xxh3_128(&spelled));
    }
    (measure_text(raw), xxh3_128(raw))
}

/// The text in the spelling with the fewest escapes, and whether it has a decoded form. It is never longer than
/// `raw`.
fn spell_out(raw: &[u8]) -> (Vec<u8>, bool) {
    let mut spelled = vec![0; raw.len()];
    let (mut at, mut end, mut sound) = (0, 0, true);
    let mut add = |bytes: &[u8]| {
        spelled[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    };
    while let Some(&byte) = raw.get(at) {
        if byte != b'\\' {
            let rest = &raw[at..];
            let run = &rest[..memchr::memchr(b'\\', rest).unwrap_or(rest.len())];
            add(run);
            at += run.len();
            continue;
        }
        // Most escapes are of a character with three bytes in UTF-8.
        if raw.get(at + 1) == Some(&b'u')
            && let Some(code @ (0x800..0xD800 | 0xE000..)) = parse_hex4(raw, at + 2)
        {
            add(&[
                0xE0 | (code >> 12) as u8,
                0x80 | (code >> 6 & 0x3F) as u8,
                0x80 | (code & 0x3F) as u8,
            ]);
            at += 6;
            continue;
        }
        let mut walk = TextWalk::starting_at(raw, at);
        let Some(character) = walk.next() else { break };
        sound &= walk.is_sound();
        match &raw[at..walk.at] {
            [b'\\', b'u', _, ..] | b"\\/" => write_character(character.code, &mut add),
            escape => add(escape),
        }
        at = walk.at;
    }
    spelled.truncate(end);
    (spelled, sound)
}

/// Digests a text that comes in pieces. A surrogate pair may lie across two of them.
#[derive(Clone)]
pub struct TextDigester {
    hash: Xxh3,
    /// The first half of a surrogate pair at the end of the last piece.
    first_half: Option<u32>,
    empty: bool,
}

impl Default for TextDigester {
    fn default() -> Self {
        Self::new()
    }
}

impl TextDigester {
    pub fn new() -> Self {
        Self {
            hash: Xxh3::new(),
            first_half: None,
            empty: true,
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.empty
    }

    /// Takes the next piece of the bytes between the quotes of a JSON string.
    pub fn push(&mut self, raw: &[u8]) {
        self.empty &= raw.is_empty();
        if self.first_half.is_none() && !may_be_respelled(raw) {
            self.hash.update(raw);
            return;
        }
        let mut plain = 0;
        let mut walk = TextWalk::new(raw);
        while let Some(at) = self.next_escape(raw, walk.at) {
            walk.at = at;
            let Some(character) = walk.next() else { break };
            let spelled = &raw[character.at..walk.at];
            if self.first_half.is_none() && !matches!(spelled, [b'\\', b'u' | b'/', ..]) {
                continue;
            }
            self.hash.update(&raw[plain..character.at]);
            plain = walk.at;
            self.push_code(character.code, spelled);
        }
        self.hash.update(&raw[plain..]);
    }

    pub fn finish(mut self) -> u128 {
        self.flush_half();
        self.hash.digest128()
    }

    /// The next character that may need another spelling: an escape, or any character behind half a pair.
    fn next_escape(&self, raw: &[u8], from: usize) -> Option<usize> {
        let rest = raw.get(from..).filter(|rest| !rest.is_empty())?;
        match self.first_half {
            Some(_) => Some(from),
            None => memchr::memchr(b'\\', rest).map(|found| from + found),
        }
    }

    fn push_code(&mut self, mut code: u32, spelled: &[u8]) {
        if let (Some(first), 0xDC00..=0xDFFF) = (self.first_half, code) {
            self.first_half = None;
            code = 0x10000 + ((first - 0xD800) << 10) + (code - 0xDC00);
        }
        self.flush_half();
        match code {
            0xD800..=0xDBFF => self.first_half = Some(code),
            _ if spelled == b"\\u" => self.hash.update(spelled),
            _ => write_character(code, |bytes| self.hash.update(bytes)),
        }
    }

    fn flush_half(&mut self) {
        if let Some(half) = self.first_half.take() {
            write_character(half, |bytes| self.hash.update(bytes));
        }
    }
}

/// Writes a character in the spelling with the fewest escapes. Half a surrogate pair stays an escape.
fn write_character(code: u32, mut write: impl FnMut(&[u8])) {
    match code {
        0x22 => write(b"\\\""),
        0x5C => write(b"\\\\"),
        0x08 => write(b"\\b"),
        0x09 => write(b"\\t"),
        0x0A => write(b"\\n"),
        0x0C => write(b"\\f"),
        0x0D => write(b"\\r"),
        0..0x20 | 0xD800..=0xDFFF => write(format!("\\u{code:04x}").as_bytes()),
        _ => {
            let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            write(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

/// The digest of a whole text; equal to that of a [`TextDigester`] given the same pieces.
pub fn digest_text(raw: &[u8]) -> u128 {
    if !may_be_respelled(raw) {
        return xxh3_128(raw);
    }
    let mut digester = TextDigester::new();
    digester.push(raw);
    digester.finish()
}

/// Whether the text has escapes that give a choice of spelling.
fn may_be_respelled(raw: &[u8]) -> bool {
    memchr::memmem::find(raw, b"\\u").is_some() || memchr::memmem::find(raw, b"\\/").is_some()
}
