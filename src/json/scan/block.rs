//! Bitmaps of quotes, backslashes and escapes for blocks of 64 bytes.
//!
//! A string is read once: the same bitmaps give its end, its escapes and whether it is plain ASCII, so most texts
//! need no walk to be measured or digested. AVX2 makes the bitmaps where the machine has it; elsewhere they are made
//! byte by byte, with the same result. Strings of a few bytes, which are most, are read as two words of eight bytes.

pub(in crate::json) const BLOCK: usize = 64;

/// Facts of the bytes between two quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StringContent {
    /// Bytes up to the closing quote.
    pub(super) len: usize,
    /// A surrogate pair counts as two.
    pub(super) escapes: u32,
    pub(super) ascii: bool,
    /// There are `\u` escapes.
    pub(super) unicode: bool,
    /// There are `\/` escapes.
    pub(super) slashes: bool,
}

/// One bit for each byte of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::json) struct BlockBits {
    pub(in crate::json) quotes: u64,
    pub(in crate::json) backslashes: u64,
    pub(in crate::json) high: u64,
}

/// How the bitmaps of a block are made.
pub(in crate::json) trait BlockMatcher: Copy {
    fn match_block(self, block: &[u8; BLOCK]) -> BlockBits;
    fn match_byte(self, block: &[u8; BLOCK], byte: u8) -> u64;
    /// Marks the bytes that are at least `least`, which is 0x80 or more.
    fn match_bytes_from(self, block: &[u8; BLOCK], least: u8) -> u64;
}

/// Reads blocks with the fastest [`BlockMatcher`] of the machine.
pub(in crate::json) trait BlockReader {
    type Output;
    /// Implementations are inlined always, so that the matcher's code is part of their loop.
    fn read_blocks(self, map: impl BlockMatcher) -> Self::Output;
}

#[inline]
pub(in crate::json) fn run_reader<R: BlockReader>(reader: R) -> R::Output {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[expect(
            unsafe_code,
            reason = "a call into code for a feature that was just detected"
        )]
        // SAFETY: the machine has AVX2.
        return unsafe { avx2::run_reader(reader) };
    }
    reader.read_blocks(Bytewise)
}

/// Reads from behind an opening quote to the closing one; `None` if the text has none.
#[inline]
pub(super) fn read_string_content(text: &[u8]) -> Option<StringContent> {
    if let Some(len) = find_near_end(text) {
        return Some(StringContent {
            len,
            ascii: true,
            ..StringContent::default()
        });
    }
    run_reader(StringContentReader(text))
}

/// Bytes up to a closing quote within 16 bytes, if they are ASCII without escapes.
#[inline]
fn find_near_end(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    let words = words.get(..2)?;
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest mark is exact, and only that one counts.
        let quotes = mark_equal_bytes(word, b'"');
        let others = mark_equal_bytes(word, b'\\') | word & HIGH;
        if quotes != 0 {
            let before = (quotes & quotes.wrapping_neg()) - 1;
            return (others & before == 0).then(|| at * 8 + quotes.trailing_zeros() as usize / 8);
        }
        if others != 0 {
            return None;
        }
    }
    None
}

const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks the high bit of each byte of a word that is `byte`. Only the lowest mark is exact.
#[inline]
const fn mark_equal_bytes(word: u64, byte: u8) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let zero = word ^ (ONES * byte as u64);
    zero.wrapping_sub(ONES) & !zero & HIGH
}

struct StringContentReader<'a>(&'a [u8]);

impl BlockReader for StringContentReader<'_> {
    type Output = Option<StringContent>;

    #[inline(always)]
    fn read_blocks(self, map: impl BlockMatcher) -> Option<StringContent> {
        let mut content = StringContent {
            ascii: true,
            ..StringContent::default()
        };
        let mut escaping = false;
        let (blocks, tail) = self.0.as_chunks::<BLOCK>();
        for block in blocks {
            if content.add_block(block, map, &mut escaping) {
                return Some(content);
            }
        }
        let mut last = [0; BLOCK];
        last[..tail.len()].copy_from_slice(tail);
        let ended = content.add_block(&last, map, &mut escaping);
        ended.then_some(content)
    }
}

impl StringContent {
    /// Adds a block; returns whether the closing quote is in it.
    #[inline(always)]
    fn add_block(
        &mut self,
        block: &[u8; BLOCK],
        map: impl BlockMatcher,
        escaping: &mut bool,
    ) -> bool {
        let bits = map.match_block(block);
        let escaped = mark_escaped(bits.backslashes, escaping);
        let closing = bits.quotes & !escaped;
        let before = match closing {
            0 => u64::MAX,
            _ => (closing & closing.wrapping_neg()) - 1,
        };
        self.len += before.count_ones() as usize;
        let escaped = escaped & before;
        self.escapes += escaped.count_ones();
        self.ascii &= bits.high & before == 0;
        // Most blocks have no escape.
        if escaped != 0 {
            self.unicode |= map.match_byte(block, b'u') & escaped != 0;
            self.slashes |= map.match_byte(block, b'/') & escaped != 0;
        }
        closing != 0
    }
}

/// Marks the bytes that an escape's backslash precedes. `escaping` carries the mark of a block's first byte from
/// block to block.
#[inline(always)]
pub(in crate::json) const fn mark_escaped(backslashes: u64, escaping: &mut bool) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    // An escaped backslash begins no escape.
    let first = *escaping as u64;
    let backslashes = backslashes & !first;
    let follows = backslashes << 1 | first;
    // In a run that begins at an odd position, the bytes at even positions are escaped.
    let odd_starts = backslashes & !EVEN & !follows;
    let (sum, over) = odd_starts.overflowing_add(backslashes);
    *escaping = over;
    (EVEN ^ (sum << 1)) & follows
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_max_epu8, _mm256_movemask_epi8,
        _mm256_set1_epi8,
    };

    use super::{BLOCK, BlockBits, BlockMatcher, BlockReader};

    /// Exists only inside of [`run_reader`], where the machine has AVX2.
    #[derive(Clone, Copy)]
    struct Avx2(());

    #[target_feature(enable = "avx2")]
    pub(super) fn run_reader<R: BlockReader>(reader: R) -> R::Output {
        reader.read_blocks(Avx2(()))
    }

    #[expect(unsafe_code, reason = "calls of code for a feature that is there")]
    impl BlockMatcher for Avx2 {
        #[inline(always)]
        fn match_block(self, block: &[u8; BLOCK]) -> BlockBits {
            // SAFETY: an `Avx2` is made only where the machine has the feature.
            unsafe { match_block(block) }
        }

        #[inline(always)]
        fn match_byte(self, block: &[u8; BLOCK], byte: u8) -> u64 {
            // SAFETY: as above.
            unsafe { match_byte(load_halves(block), byte) }
        }

        #[inline(always)]
        fn match_bytes_from(self, block: &[u8; BLOCK], least: u8) -> u64 {
            // SAFETY: as above.
            unsafe { match_bytes_from(load_halves(block), least) }
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn match_block(block: &[u8; BLOCK]) -> BlockBits {
        let halves = load_halves(block);
        BlockBits {
            quotes: match_byte(halves, b'"'),
            backslashes: match_byte(halves, b'\\'),
            high: join_masks(halves.map(|half| _mm256_movemask_epi8(half))),
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn match_byte(halves: [__m256i; 2], byte: u8) -> u64 {
        let byte = _mm256_set1_epi8(byte as i8);
        join_masks(halves.map(|half| _mm256_movemask_epi8(_mm256_cmpeq_epi8(half, byte))))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn match_bytes_from(halves: [__m256i; 2], least: u8) -> u64 {
        let least = _mm256_set1_epi8(least as i8);
        // The maximum of a byte and `least` is the byte itself exactly where it is at least `least`.
        join_masks(halves.map(|half| {
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(half, least), half))
        }))
    }

    #[inline]
    fn join_masks([low, high]: [i32; 2]) -> u64 {
        u64::from(low as u32) | u64::from(high as u32) << 32
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    #[expect(unsafe_code, reason = "a load of bytes that are there")]
    fn load_halves(block: &[u8; BLOCK]) -> [__m256i; 2] {
        let (low, high) = block.split_at(BLOCK / 2);
        // SAFETY: both halves have the 32 bytes that are read, at any alignment.
        [low, high].map(|half| unsafe { _mm256_loadu_si256(half.as_ptr().cast()) })
    }
}

/// Matches byte by byte, where there is no AVX2.
#[derive(Clone, Copy)]
pub(in crate::json) struct Bytewise;

impl BlockMatcher for Bytewise {
    fn match_block(self, block: &[u8; BLOCK]) -> BlockBits {
        BlockBits {
            quotes: self.match_byte(block, b'"'),
            backslashes: self.match_byte(block, b'\\'),
            high: self.match_bytes_from(block, 0x80),
        }
    }

    fn match_byte(self, block: &[u8; BLOCK], wanted: u8) -> u64 {
        let bytes = block.iter().enumerate();
        bytes.fold(0, |bits, (at, &byte)| {
            bits | u64::from(byte == wanted) << at
        })
    }

    fn match_bytes_from(self, block: &[u8; BLOCK], least: u8) -> u64 {
        let bytes = block.iter().enumerate();
        bytes.fold(0, |bits, (at, &byte)| bits | u64::from(byte >= least) << at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The reference: reads byte by byte.
    fn read_by_byte(text: &[u8]) -> Option<StringContent> {
        let mut found = StringContent {
            ascii: true,
            ..StringContent::default()
        };
        let mut bytes = text.iter().copied();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => return Some(found),
                b'\\' => {
                    let next = bytes.next()?;
                    found.len += 1;
                    found.escapes += 1;
                    found.unicode |= next == b'u';
                    found.slashes |= next == b'/';
                    found.ascii &= next < 0x80;
                }
                _ => found.ascii &= byte < 0x80,
            }
            found.len += 1;
        }
        None
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => Just(b'\\'),
            1 => Just(b'"'),
            2 => Just(b'u'),
            1 => Just(b'/'),
            1 => any::<u8>(),
            4 => Just(b'a'),
        ];
        prop::collection::vec(byte, 0..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn blocks_read_like_single_bytes(text in bytes(), prefix in 0usize..200) {
            prop_assert_eq!(read_string_content(&text), read_by_byte(&text));
            // With a prefix, runs of backslashes lie over the end of a block.
            let long: Vec<u8> = std::iter::repeat_n(b'a', prefix).chain(text).collect();
            prop_assert_eq!(read_string_content(&long), read_by_byte(&long));
            prop_assert_eq!(StringContentReader(&long).read_blocks(Bytewise), read_by_byte(&long));
        }
    }
}
