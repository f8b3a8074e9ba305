//! The text inside a JSON string: counted, walked and digested without decoding it.
//!
//! All functions take the bytes between the quotes. A character is a Unicode scalar value of the decoded text: `\n`
//! is one, `\ud83d\ude00` is one. Text with half a surrogate pair is valid JSON without a decoded form: it is
//! counted and digested, but must not be edited ([`TextWalk::is_sound`]).

mod base64;
mod digest;
mod measure;
mod sizes;

pub use self::{
    base64::decode_base64,
    digest::{TextDigester, digest_text, measure_and_digest},
    measure::{measure_json, measure_plain, measure_text},
    sizes::{ASCII_COUNTS, SCRIPTS, Script, TextSizes},
};

/// One character of a text and its position in the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Character {
    pub at: usize,
    /// Bytes in the JSON.
    pub len: usize,
    /// The scalar value, or half a surrogate pair.
    pub code: u32,
}

impl Character {
    /// The character; U+FFFD for half a surrogate pair.
    pub fn to_char(self) -> char {
        char::from_u32(self.code).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

/// The characters of a text, in order.
#[derive(Clone, Debug)]
pub struct TextWalk<'a> {
    raw: &'a [u8],
    at: usize,
    sound: bool,
}

impl<'a> TextWalk<'a> {
    pub const fn new(raw: &'a [u8]) -> Self {
        Self::starting_at(raw, 0)
    }

    const fn starting_at(raw: &'a [u8], at: usize) -> Self {
        let sound = true;
        Self { raw, at, sound }
    }

    /// Whether the characters walked so far have a decoded form: no half of a surrogate pair, no unknown escape.
    pub const fn is_sound(&self) -> bool {
        self.sound
    }

    /// The byte at which the next character begins.
    pub fn next_byte(&self) -> usize {
        self.at.min(self.raw.len())
    }

    /// Passes over so many characters, or to the end.
    pub fn skip_chars(&mut self, mut count: usize) {
        while count > 0 {
            let rest = self.raw.get(self.at..).unwrap_or_default().iter();
            let is_plain = |byte: &&u8| byte.is_ascii() && **byte != b'\\';
            let plain = rest.take(count).take_while(is_plain).count();
            self.at += plain;
            count -= plain;
            if count > 0 {
                count = if self.next().is_some() { count - 1 } else { 0 };
            }
        }
    }

    fn read_escape(&mut self) -> Character {
        let at = self.at;
        let mut len = 2;
        let code = match self.raw.get(at + 1) {
            Some(b'n') => 0x0A,
            Some(b't') => 0x09,
            Some(b'r') => 0x0D,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0C,
            Some(&byte @ (b'"' | b'\\' | b'/')) => u32::from(byte),
            Some(b'u') => {
                let (code, taken) = self.read_unicode_escape(at);
                len = taken;
                code
            }
            unknown => {
                self.sound = false;
                len = 1 + usize::from(unknown.is_some());
                u32::from(b'\\')
            }
        };
        Character { at, len, code }
    }

    /// Code and length of `\uXXXX` at `at`, together with the second half of a surrogate pair.
    fn read_unicode_escape(&mut self, at: usize) -> (u32, usize) {
        let Some(first) = parse_hex4(self.raw, at + 2) else {
            self.sound = false;
            return (u32::from(b'\\'), 2);
        };
        if let 0xD800..=0xDBFF = first
            && self.raw.get(at + 6..at + 8) == Some(b"\\u")
            && let Some(second @ 0xDC00..=0xDFFF) = parse_hex4(self.raw, at + 8)
        {
            return (0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00), 12);
        }
        self.sound &= !matches!(first, 0xD800..=0xDFFF);
        (first, 6)
    }
}

impl Iterator for TextWalk<'_> {
    type Item = Character;

    fn next(&mut self) -> Option<Character> {
        let &first = self.raw.get(self.at)?;
        let character = if first == b'\\' {
            self.read_escape()
        } else {
            let at = self.at;
            let (code, len) = decode_utf8(&self.raw[at..], first);
            Character { at, len, code }
        };
        self.at += character.len;
        Some(character)
    }
}

fn parse_hex4(raw: &[u8], at: usize) -> Option<u32> {
    let digits: [u8; 4] = raw.get(at..at + 4)?.try_into().ok()?;
    let digits = digits.map(|byte| HEX[byte as usize]);
    // Every byte that is no digit has its high bits set.
    let all_bits = digits.iter().fold(0, |bits, digit| bits | digit);
    let append = |code, &digit| code << 4 | u32::from(digit);
    (all_bits <= 0xF).then(|| digits.iter().fold(0, append))
}

/// The value of each hex digit; 0xFF for every other byte.
const HEX: [u8; 256] = {
    let mut table = [0xFF; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u8;
        table[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};

/// The scalar value at the start of `raw` and its length. A byte that is no UTF-8 counts as one character.
fn decode_utf8(raw: &[u8], first: u8) -> (u32, usize) {
    let (len, mut code) = match first {
        0..0x80 => return (u32::from(first), 1),
        0xC2..=0xDF => (2, u32::from(first & 0x1F)),
        0xE0..=0xEF => (3, u32::from(first & 0x0F)),
        0xF0..=0xF4 => (4, u32::from(first & 0x07)),
        _ => return (0xFFFD, 1),
    };
    let Some(rest) = raw.get(1..len) else {
        return (0xFFFD, 1);
    };
    for &byte in rest {
        if byte & 0xC0 != 0x80 {
            return (0xFFFD, 1);
        }
        code = code << 6 | u32::from(byte & 0x3F);
    }
    (code, len)
}

/// The number of characters; `None` for a text without a decoded form.
pub fn count_chars(raw: &[u8]) -> Option<usize> {
    let mut walk = TextWalk::new(raw);
    let chars = walk.by_ref().count();
    walk.is_sound().then_some(chars)
}

/// Whether a text has a decoded form, and so may be edited: no half of a surrogate pair, and no unknown escape.
pub fn is_decodable(raw: &[u8]) -> bool {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        // Most escapes have one letter and need no walk.
        if let Some(b'n' | b't' | b'r' | b'b' | b'f' | b'"' | b'\\' | b'/') = rest.get(at + 1) {
            rest = &rest[at + 2..];
            continue;
        }
        return count_chars(&rest[at..]).is_some();
    }
    true
}

/// Bytes of a character in JSON as servers write it: in UTF-8, escaped only where JSON requires it.
pub fn spelt_bytes(code: u32) -> usize {
    match code {
        0x08..=0x0A | 0x0C | 0x0D | 0x22 | 0x5C => 2,
        0..0x20 => 6,
        0x20..0x80 => 1,
        0x80..0x800 => 2,
        0x800..0x10000 => 3,
        _ => 4,
    }
}

/// The text as the contents of a JSON string, without quotes.
pub fn escape_text(text: &str) -> String {
    let mut quoted = serde_json::Value::from(text).to_string();
    quoted.pop();
    quoted.remove(0);
    quoted
}

/// The decoded text, or `None` where it has no decoded form.
pub fn decode_text(raw: &[u8]) -> Option<String> {
    let mut walk = TextWalk::new(raw);
    let text = walk.by_ref().map(Character::to_char).collect();
    walk.is_sound().then_some(text)
}

/// Replaces halves of surrogate pairs, which remain if a text is cut between the two.
pub fn replace_lone_surrogates(json: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(json.len());
    for character in TextWalk::new(json) {
        let spelt = json.get(character.at..character.at + character.len);
        replaced.extend_from_slice(match character.code {
            0xD800..=0xDFFF => br"\ufffd",
            _ => spelt.unwrap_or_default(),
        });
    }
    replaced
}

#[cfg(test)]
mod tests;
