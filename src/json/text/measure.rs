//! Characters by kind, counted a block of bytes at a time.
//!
//! Most characters beyond ASCII are Chinese by their first byte; only the others are looked at.

use super::{TextSizes, TextWalk, decode_utf8};
use crate::json::scan::block::{self, BLOCK, BlockMatcher, BlockReader, mark_escaped};

/// Counts the characters of a text by kind.
pub fn measure_text(raw: &[u8]) -> TextSizes {
    // Of what is no UTF-8 each byte counts, and so do both of an escape that is none.
    if simdutf8::basic::from_utf8(raw).is_ok()
        && let Some(sizes) = block::run_reader(CharacterCountReader(raw))
    {
        return sizes;
    }
    let mut sizes = TextSizes::default();
    for character in TextWalk::new(raw) {
        sizes.count_code(character.code);
    }
    sizes
}

/// UTF-8 to be counted; gives `None` where a backslash stands before a character that is not ASCII.
struct CharacterCountReader<'a>(&'a [u8]);

impl BlockReader for CharacterCountReader<'_> {
    type Output = Option<TextSizes>;

    #[inline(always)]
    fn read_blocks(self, map: impl BlockMatcher) -> Option<TextSizes> {
        let mut counted = CharacterCounter {
            raw: self.0,
            sizes: TextSizes::default(),
            ascii: 0,
            escaping: false,
            past: 0,
        };
        let (blocks, tail) = self.0.as_chunks::<BLOCK>();
        for (at, block) in blocks.iter().enumerate() {
            counted.count_block(map, block, at * BLOCK, u64::MAX)?;
        }
        if !tail.is_empty() {
            let mut last = [0; BLOCK];
            last[..tail.len()].copy_from_slice(tail);
            let there = (1 << tail.len()) - 1;
            counted.count_block(map, &last, blocks.len() * BLOCK, there)?;
        }
        counted.sizes.latin += counted.ascii as u32;
        Some(counted.sizes)
    }
}

struct CharacterCounter<'a> {
    raw: &'a [u8],
    sizes: TextSizes,
    /// Characters of ASCII as they stand; less than none where digits of the next block were taken off.
    ascii: i64,
    escaping: bool,
    /// Where the last surrogate pair ends: its second half is no character.
    past: usize,
}

impl CharacterCounter<'_> {
    /// Adds a block that lies at `from`, of whose bytes those are `there`.
    #[inline(always)]
    fn count_block(
        &mut self,
        map: impl BlockMatcher,
        block: &[u8; BLOCK],
        from: usize,
        there: u64,
    ) -> Option<()> {
        let bits = map.match_block(block);
        let escaped = mark_escaped(bits.backslashes, &mut self.escaping) & there;
        // A backslash counts, and what it escapes does not.
        self.ascii += i64::from((there & !bits.high & !escaped).count_ones());
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

    /// The characters beyond ASCII that begin in a block.
    #[inline(always)]
    fn count_wide(&mut self, map: impl BlockMatcher, block: &[u8; BLOCK], from: usize) {
        // From U+4000 to U+9FFF all are Chinese, and most of them lie there.
        let chinese = map.match_bytes_from(block, 0xE4) & !map.match_bytes_from(block, 0xEA);
        self.sizes.han += chinese.count_ones();
        let mut others = map.match_bytes_from(block, 0xC0) & !chinese;
        while others != 0 {
            let at = from + others.trailing_zeros() as usize;
            self.sizes
                .count_code(decode_utf8(&self.raw[at..], self.raw[at]).0);
            others &= others - 1;
        }
    }

    /// A `\uXXXX` whose backslash stands at `at`; it was counted as five of ASCII.
    fn count_unicode_escape(&mut self, at: usize) {
        if at < self.past {
            return;
        }
        let mut walk = TextWalk {
            raw: self.raw,
            at,
            lone: false,
        };
        let (code, len) = walk.read_unicode_escape(at);
        // Without four digits it is a backslash, and that was counted.
        if len == 2 {
            return;
        }
        self.past = at + len;
        // The digits may lie in the next block, which is yet to be counted.
        self.ascii -= len as i64 / 6 * 5;
        self.sizes.count_code(code);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::scan::block::Bytewise;

    /// As one would count.
    fn plainly(raw: &[u8]) -> TextSizes {
        let mut sizes = TextSizes::default();
        TextWalk::new(raw).for_each(|character| sizes.count_code(character.code));
        sizes
    }

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
        fn blocks_count_as_one_would(raw in text(), shift in 0usize..64) {
            let raw: Vec<u8> = std::iter::repeat_n(b'a', shift).chain(raw).collect();
            prop_assert_eq!(measure_text(&raw), plainly(&raw));
            if let Some(sizes) = std::str::from_utf8(&raw).ok().and_then(|_| CharacterCountReader(&raw).read_blocks(Bytewise)) {
                prop_assert_eq!(sizes, plainly(&raw));
            }
        }
    }
}
