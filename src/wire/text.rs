//! The text inside a JSON string: counted, walked and digested without decoding it.
//!
//! All functions take what stands between the quotes. A character is a Unicode scalar value of
//! the decoded text: `\n` is one, `\ud83d\ude00` is one. Text with half a surrogate pair is JSON
//! that has no decoded form; it is counted and digested all the same, and [`Walk::sound`] says
//! that it must not be edited.

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::scan::Text;

/// Characters by kind of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// ASCII.
    pub latin: u32,
    /// Chinese characters and full-width punctuation.
    pub han: u32,
    pub kana: u32,
    pub hangul: u32,
    /// Pictographs, and what else lies beyond the basic plane.
    pub emoji: u32,
    /// Cyrillic, accented Latin, Arabic and the rest.
    pub other: u32,
}

impl Sizes {
    pub fn chars(&self) -> usize {
        [
            self.latin,
            self.han,
            self.kana,
            self.hangul,
            self.emoji,
            self.other,
        ]
        .iter()
        .map(|&count| count as usize)
        .sum()
    }

    fn count(&mut self, code: u32) {
        let kind = match code {
            0..0x80 => &mut self.latin,
            0x3040..=0x30FF | 0x31F0..=0x31FF | 0xFF66..=0xFF9F => &mut self.kana,
            0x1100..=0x11FF | 0x3130..=0x318F | 0xAC00..=0xD7AF => &mut self.hangul,
            0x2E80..=0x9FFF | 0xF900..=0xFAFF | 0xFF00..=0xFFEF | 0x20000..=0x3FFFF => {
                &mut self.han
            }
            0x2600..=0x27BF | 0x10000.. => &mut self.emoji,
            _ => &mut self.other,
        };
        *kind += 1;
    }
}

impl std::ops::AddAssign for Sizes {
    fn add_assign(&mut self, more: Self) {
        self.latin += more.latin;
        self.han += more.han;
        self.kana += more.kana;
        self.hangul += more.hangul;
        self.emoji += more.emoji;
        self.other += more.other;
    }
}

/// The characters by kind, and the digest, of a text of a body: those that [`measure`] and
/// [`digest`] give, in one reading.
pub fn describe(body: &[u8], text: Text) -> (Sizes, u128) {
    let raw = &body[text.span.range()];
    if text.respelled {
        let (spelled, sizes) = spell_out(raw);
        return (sizes, xxh3_128(&spelled));
    }
    let sizes = if text.plain {
        Sizes {
            latin: text.span.len() as u32 - text.escapes,
            ..Sizes::default()
        }
    } else {
        measure(raw)
    };
    (sizes, xxh3_128(raw))
}

/// A text in the spelling with the fewest escapes, and its characters by kind.
fn spell_out(raw: &[u8]) -> (Vec<u8>, Sizes) {
    let mut spelled = Vec::with_capacity(raw.len());
    let mut sizes = Sizes::default();
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        if byte != b'\\' {
            let rest = &raw[at..];
            let run = &rest[..memchr::memchr(b'\\', rest).unwrap_or(rest.len())];
            sizes += measure(run);
            spelled.extend_from_slice(run);
            at += run.len();
            continue;
        }
        let mut walk = Walk {
            raw,
            at,
            lone: false,
        };
        let Some(character) = walk.next() else { break };
        sizes.count(character.code);
        match &raw[at..walk.at] {
            [b'\\', b'u', _, ..] | b"\\/" => scalar(character.code, |bytes| {
                spelled.extend_from_slice(bytes);
            }),
            escape => spelled.extend_from_slice(escape),
        }
        at = walk.at;
    }
    (spelled, sizes)
}

/// Counts the characters of a text by kind.
pub fn measure(raw: &[u8]) -> Sizes {
    let mut sizes = Sizes::default();
    if !raw.is_ascii() {
        for character in Walk::new(raw) {
            sizes.count(character.code);
        }
        return sizes;
    }
    // ASCII is nearly everything in practice: every byte is a character but for the escapes.
    sizes.latin = raw.len() as u32;
    let mut past = 0;
    for at in memchr::memchr_iter(b'\\', raw) {
        if at < past {
            continue;
        }
        let mut taken = 2;
        let mut code = 0;
        if let Some(b'u') = raw.get(at + 1) {
            let mut walk = Walk {
                raw,
                at,
                lone: false,
            };
            (code, taken) = walk.unicode(at);
        }
        taken = taken.min(raw.len() - at);
        past = at + taken;
        sizes.latin -= taken as u32;
        sizes.count(code);
    }
    sizes
}

/// One character of a text, and where it stands in the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Character {
    pub at: usize,
    /// Bytes it takes in the JSON.
    pub len: usize,
    /// Its scalar value; for half a surrogate pair, that half.
    pub code: u32,
}

/// The characters of a text, in order.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    raw: &'a [u8],
    at: usize,
    lone: bool,
}

impl<'a> Walk<'a> {
    pub const fn new(raw: &'a [u8]) -> Self {
        Self {
            raw,
            at: 0,
            lone: false,
        }
    }

    /// Whether all that was walked so far has a decoded form: no half of a surrogate pair, no
    /// unknown escape.
    pub const fn sound(&self) -> bool {
        !self.lone
    }

    fn escape(&mut self) -> Character {
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
                let (code, taken) = self.unicode(at);
                len = taken;
                code
            }
            other => {
                self.lone = true;
                len = 1 + other.map_or(0, |_| 1);
                u32::from(b'\\')
            }
        };
        Character { at, len, code }
    }

    /// `\uXXXX` at `at`, with the second half of a pair where there is one.
    fn unicode(&mut self, at: usize) -> (u32, usize) {
        let Some(first) = hex4(self.raw, at + 2) else {
            self.lone = true;
            return (u32::from(b'\\'), 2);
        };
        match first {
            0xD800..=0xDBFF => {
                let second = (self.raw.get(at + 6..at + 8) == Some(b"\\u"))
                    .then(|| hex4(self.raw, at + 8))
                    .flatten();
                if let Some(second @ 0xDC00..=0xDFFF) = second {
                    (0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00), 12)
                } else {
                    self.lone = true;
                    (first, 6)
                }
            }
            0xDC00..=0xDFFF => {
                self.lone = true;
                (first, 6)
            }
            _ => (first, 6),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Character;

    fn next(&mut self) -> Option<Character> {
        let &first = self.raw.get(self.at)?;
        let character = if first == b'\\' {
            self.escape()
        } else {
            let (code, len) = utf8(&self.raw[self.at..], first);
            Character {
                at: self.at,
                len,
                code,
            }
        };
        self.at += character.len;
        Some(character)
    }
}

fn hex4(raw: &[u8], at: usize) -> Option<u32> {
    let digits: [u8; 4] = raw.get(at..at + 4)?.try_into().ok()?;
    let digits = digits.map(|byte| HEX[byte as usize]);
    // Anything but a digit has its high bits set.
    if digits.iter().fold(0, |all, digit| all | digit) > 0xF {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0, |code, &digit| code << 4 | u32::from(digit)),
    )
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

/// The scalar value at the start of `raw`, and its bytes. Bytes that are no UTF-8 count one each.
fn utf8(raw: &[u8], first: u8) -> (u32, usize) {
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

/// A digest of a text that is the same for every spelling of it.
///
/// JSON leaves a choice of spelling only to `\u` and `\/`, so text without those is digested as it
/// stands, and the rest in the spelling with the fewest escapes. The text may come in pieces, as
/// an answer that is streamed does; a surrogate pair may lie across two of them.
#[derive(Clone)]
pub struct Digester {
    hash: Xxh3,
    /// The first half of a surrogate pair at the end of the last piece.
    half: Option<u32>,
    empty: bool,
}

impl Default for Digester {
    fn default() -> Self {
        Self::new()
    }
}

impl Digester {
    pub fn new() -> Self {
        Self {
            hash: Xxh3::new(),
            half: None,
            empty: true,
        }
    }

    /// Whether no text came.
    pub const fn is_empty(&self) -> bool {
        self.empty
    }

    /// Takes the next piece: what stands between the quotes of a JSON string.
    pub fn push(&mut self, raw: &[u8]) {
        self.empty &= raw.is_empty();
        if self.half.is_none() && !respelled(raw) {
            self.hash.update(raw);
            return;
        }
        let mut plain = 0;
        let mut walk = Walk::new(raw);
        // Only where an escape stands, or after half a pair, is there anything to spell.
        while let Some(at) = self.next_escape(raw, walk.at) {
            walk.at = at;
            let Some(character) = walk.next() else { break };
            let spelled = &raw[character.at..walk.at];
            if self.half.is_none() && !matches!(spelled, [b'\\', b'u' | b'/', ..]) {
                continue;
            }
            self.hash.update(&raw[plain..character.at]);
            plain = walk.at;
            self.spell(character.code, spelled);
        }
        self.hash.update(&raw[plain..]);
    }

    pub fn finish(mut self) -> u128 {
        self.flush_half();
        self.hash.digest128()
    }

    /// The next character that may need another spelling.
    fn next_escape(&self, raw: &[u8], from: usize) -> Option<usize> {
        let rest = raw.get(from..).filter(|rest| !rest.is_empty())?;
        if self.half.is_some() {
            return Some(from);
        }
        memchr::memchr(b'\\', rest).map(|found| from + found)
    }

    fn spell(&mut self, code: u32, spelled: &[u8]) {
        let mut code = code;
        if let (Some(first), 0xDC00..=0xDFFF) = (self.half, code) {
            self.half = None;
            code = 0x10000 + ((first - 0xD800) << 10) + (code - 0xDC00);
        }
        self.flush_half();
        match code {
            0xD800..=0xDBFF => self.half = Some(code),
            _ if spelled == b"\\u" => self.hash.update(spelled),
            _ => scalar(code, |bytes| self.hash.update(bytes)),
        }
    }

    fn flush_half(&mut self) {
        if let Some(half) = self.half.take() {
            scalar(half, |bytes| self.hash.update(bytes));
        }
    }
}

/// Writes a character in the spelling with the fewest escapes; half of a surrogate pair has only
/// its escape.
fn scalar(code: u32, mut write: impl FnMut(&[u8])) {
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

/// The digest of one whole text; equal to that of a [`Digester`] given the same.
pub fn digest(raw: &[u8]) -> u128 {
    if respelled(raw) {
        let mut digester = Digester::new();
        digester.push(raw);
        digester.finish()
    } else {
        xxh3_128(raw)
    }
}

/// Whether the text may be spelled in more than one way.
fn respelled(raw: &[u8]) -> bool {
    memchr::memmem::find(raw, b"\\u").is_some() || memchr::memmem::find(raw, b"\\/").is_some()
}

/// Writes text as the contents of a JSON string.
pub fn escape(text: &str) -> String {
    let mut quoted = serde_json::Value::from(text).to_string();
    quoted.pop();
    quoted.remove(0);
    quoted
}

/// The decoded text, or `None` where it has no decoded form.
pub fn decode(raw: &[u8]) -> Option<String> {
    let mut walk = Walk::new(raw);
    let text = walk
        .by_ref()
        .map(|character| char::from_u32(character.code).unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    walk.sound().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::scan::Scan;
    use proptest::prelude::*;

    #[test]
    fn characters_are_those_of_the_decoded_text() {
        let raw = r#"a\n\u00e9\ud83d\ude00é😀\\u0041\/"#.as_bytes();
        let decoded = decode(raw).unwrap();
        assert_eq!(decoded, "a\né😀é😀\\u0041/");
        assert_eq!(measure(raw).chars(), decoded.chars().count());
    }

    #[test]
    fn half_a_pair_is_counted_but_not_sound() {
        for raw in [
            "\\ud83d",
            "x\\ude00y",
            "\\ud83dx",
            "\\ud83d\\u0041",
            "\\q",
            "\\u12",
            "\\",
        ] {
            let mut walk = Walk::new(raw.as_bytes());
            let bytes: usize = walk.by_ref().map(|character| character.len).sum();
            assert_eq!(bytes, raw.len(), "{raw}");
            assert!(!walk.sound(), "{raw}");
            assert_eq!(decode(raw.as_bytes()), None);
            measure(raw.as_bytes());
            digest(raw.as_bytes());
        }
    }

    #[test]
    fn kinds_of_text_are_told_apart() {
        let sizes = measure("abc中文，かなカナ한국😀é☃".as_bytes());
        assert_eq!(
            sizes,
            Sizes {
                latin: 3,
                han: 3,
                kana: 4,
                hangul: 2,
                emoji: 2,
                other: 1
            }
        );
        let escaped = measure(br"abc\u4e2d\u6587\uff0c\u304b\ud55c\ud83d\ude00\u00e9\n");
        assert_eq!((escaped.latin, escaped.han, escaped.kana), (4, 3, 1));
        assert_eq!((escaped.hangul, escaped.emoji, escaped.other), (1, 1, 1));
    }

    /// Spells each character at random: as it is, or by an escape.
    fn respell(text: &str, seed: u64) -> String {
        let mut state = seed | 1;
        let mut out = String::new();
        for character in text.chars() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let must = (character as u32) < 0x20 || matches!(character, '"' | '\\');
            if state.is_multiple_of(3) {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    out.push_str(&if state.is_multiple_of(2) {
                        format!("\\u{unit:04x}")
                    } else {
                        format!("\\u{unit:04X}")
                    });
                }
            } else if must {
                out.push_str(&escape(&character.to_string()));
            } else if character == '/' && state.is_multiple_of(2) {
                out.push_str("\\/");
            } else {
                out.push(character);
            }
        }
        out
    }

    fn described(raw: &[u8]) -> (Sizes, u128) {
        let quoted = [b"\"", raw, b"\""].concat();
        let text = Scan::new(&quoted, 0).string().unwrap();
        assert_eq!(text.span.len(), raw.len());
        describe(&quoted, text)
    }

    proptest! {
        #[test]
        fn one_reading_tells_what_two_would(text in any::<String>(), seed in any::<u64>(), rest in "(\\\\(n|u[0-9a-f]{4}|ud83d|ude00|/)|a|中){0,20}") {
            for raw in [respell(&text, seed), rest.clone(), escape(&text) + &rest] {
                let raw = raw.as_bytes();
                prop_assert_eq!(described(raw), (measure(raw), digest(raw)));
            }
        }

        #[test]
        fn any_spelling_has_one_digest_one_size_one_text(text in any::<String>(), a in any::<u64>(), b in any::<u64>()) {
            let (a, b) = (respell(&text, a), respell(&text, b));
            prop_assert_eq!(digest(a.as_bytes()), digest(b.as_bytes()));
            prop_assert_eq!(measure(a.as_bytes()), measure(b.as_bytes()));
            prop_assert_eq!(measure(a.as_bytes()).chars(), text.chars().count());
            prop_assert_eq!(decode(a.as_bytes()), Some(text));
        }

        #[test]
        fn different_texts_have_different_digests(a in any::<String>(), b in any::<String>()) {
            prop_assume!(a != b);
            prop_assert_ne!(digest(escape(&a).as_bytes()), digest(escape(&b).as_bytes()));
        }

        #[test]
        fn pieces_digest_like_the_whole(texts in prop::collection::vec(any::<String>(), 0..6), seed in any::<u64>()) {
            let mut digester = Digester::new();
            for text in &texts {
                digester.push(respell(text, seed).as_bytes());
            }
            prop_assert_eq!(digester.finish(), digest(escape(&texts.concat()).as_bytes()));
        }

        #[test]
        fn nothing_panics(raw in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'u'), Just(b'd'), Just(b'8'), any::<u8>()], 0..60)) {
            let walked: usize = Walk::new(&raw).map(|character| character.len).sum();
            prop_assert_eq!(walked, raw.len());
            measure(&raw);
            digest(&raw);
            decode(&raw);
        }
    }

    #[test]
    fn a_pair_split_over_two_pieces_is_one_character() {
        let mut digester = Digester::new();
        digester.push(br"a\ud83d");
        digester.push(br"\ude00b");
        assert_eq!(digester.finish(), digest("a😀b".as_bytes()));
    }
}
