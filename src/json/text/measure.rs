//! Characters by kind, counted a block of bytes at a time.
//!
//! The first byte proves most characters beyond ASCII to be Chinese. Only the others are decoded.

use super::{TextSizes, TextWalk, decode_utf8};
use crate::json::scan::block::{self, BLOCK, BlockMatcher, BlockReader, mark_escaped};

/// Counts the characters of a text by kind.
pub fn measure_text(raw: &[u8]) -> TextSizes {
    // The blocks cannot count invalid UTF-8 or an invalid escape of a wide character.
    if simdutf8::basic::from_utf8(raw).is_ok()
        && let Some(sizes) = block::run_reader(CharacterCountReader(raw))
    {
        return sizes;
    }
    measure_by_character(raw)
}

fn measure_by_character(raw: &[u8]) -> TextSizes {
    let mut sizes = TextSizes::default();
    TextWalk::new(raw).for_each(|character| sizes.count_code(character.code));
    sizes
}

/// Counts UTF-8. The result is `None` where a backslash stands before a character that is not ASCII.
struct CharacterCountReader<'a>(&'a [u8]);

impl BlockReader for CharacterCountReader<'_> {
    type Output = Option<TextSizes>;

    #[inline(always)]
    fn read_blocks(self, map: impl BlockMatcher) -> Option<TextSizes> {
        let mut counter = CharacterCounter {
            raw: self.0,
            sizes: TextSizes::default(),
            ascii: 0,
            escaping: false,
            pair_end: 0,
        };
        let (blocks, tail) = self.0.as_chunks::<BLOCK>();
        for (at, block) in blocks.iter().enumerate() {
            counter.count_block(map, block, at * BLOCK, u64::MAX)?;
        }
        if !tail.is_empty() {
            let mut last = [0; BLOCK];
            last[..tail.len()].copy_from_slice(tail);
            let valid = (1 << tail.len()) - 1;
            counter.count_block(map, &last, blocks.len() * BLOCK, valid)?;
        }
        counter.sizes.latin += counter.ascii as u32;
        Some(counter.sizes)
    }
}

struct CharacterCounter<'a> {
    raw: &'a [u8],
    sizes: TextSizes,
    /// Unescaped ASCII characters. Negative where digits of the next block are already subtracted.
    ascii: i64,
    escaping: bool,
    /// The end of the last `\u` escape; the second half of a pair is no character.
    pair_end: usize,
}

impl CharacterCounter<'_> {
    /// Adds the block that begins at `from`. `valid` has a bit for each byte that belongs to the text.
    #[inline(always)]
    fn count_block(
        &mut self,
        map: impl BlockMatcher,
        block: &[u8; BLOCK],
        from: usize,
        valid: u64,
    ) -> Option<()> {
        let bits = map.match_block(block);
        let escaped = mark_escaped(bits.backslashes, &mut self.escaping) & valid;
        // A backslash counts, the byte behind it does not.
        self.ascii += i64::from((valid & !bits.high & !escaped).count_ones());
        if bits.high != 0 {
            if escaped & bits.high != 0 {
                return None;
            }
            self.count_wide(map, block, from);
        }
        if escaped != 0 {
            let mut unicode = map.match_byte(block, b'u') & escaped;
            while unicode != 0 {
                self.count_unicode_escape(from + unicode.trailing_zeros() as usize - 1);
                unicode &= unicode - 1;
            }
        }
        Some(())
    }

    /// Counts the characters beyond ASCII that begin in a block.
    #[inline(always)]
    fn count_wide(&mut self, map: impl BlockMatcher, block: &[u8; BLOCK], from: usize) {
        // All characters from U+4000 to U+9FFF are Chinese.
        let chinese = map.match_bytes_from(block, 0xE4) & !map.match_bytes_from(block, 0xEA);
        self.sizes.han += chinese.count_ones();
        let mut others = map.match_bytes_from(block, 0xC0) & !chinese;
        while others != 0 {
            let raw = &self.raw[from + others.trailing_zeros() as usize..];
            self.sizes.count_code(decode_utf8(raw, raw[0]).0);
            others &= others - 1;
        }
    }

    /// Counts the `\uXXXX` whose backslash stands at `at`. The caller counts it as five ASCII characters.
    fn count_unicode_escape(&mut self, at: usize) {
        if at < self.pair_end {
            return;
        }
        let (code, len) = TextWalk::starting_at(self.raw, at).read_unicode_escape(at);
        // Without four digits it is a backslash, which is counted already.
        if len == 2 {
            return;
        }
        self.pair_end = at + len;
        // The digits may lie in the next block, which is not counted yet.
        self.ascii -= len as i64 / 6 * 5;
        self.sizes.count_code(code);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::scan::block::Bytewise;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => "[ -~]{0,40}".prop_map(String::into_bytes),
            2 => "\\PC{0,30}".prop_map(String::into_bytes),
            2 => "[\u{2600}-\u{27BF}\u{2E80}-\u{31FF}\u{3FF0}-\u{4010}\u{9FF0}-\u{A010}\u{ABF0}-\u{D7FF}\u{F900}-\u{FFFF}]{0,40}".prop_map(String::into_bytes),
            3 => "(\\\\u[0-9a-fA-F]{4}){0,20}".prop_map(String::into_bytes),
            2 => "(\\\\ud83d|\\\\ude00|\\\\u12|\\\\n|\\\\\\\\|\\\\é){0,20}".prop_map(String::into_bytes),
            1 => prop::collection::vec(any::<u8>(), 0..20),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn blocks_count_like_a_walk_by_character(raw in text(), shift in 0usize..64) {
            let raw: Vec<u8> = std::iter::repeat_n(b'a', shift).chain(raw).collect();
            let expected = measure_by_character(&raw);
            prop_assert_eq!(measure_text(&raw), expected);
            if let Some(sizes) = std::str::from_utf8(&raw).ok().and_then(|_| CharacterCountReader(&raw).read_blocks(Bytewise)) {
                prop_assert_eq!(sizes, expected);
            }
        }
    }
}
