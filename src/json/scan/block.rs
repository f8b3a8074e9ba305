//! Sixty-four bytes at a time: which of them are quotes, backslashes and escapes.
//!
//! A string is read once: its end, its escapes and whether it is plain ASCII come out of the same
//! bitmaps, so that most texts are neither walked to be measured nor to be digested. The bitmaps
//! are made with AVX2 where the machine has it and byte by byte elsewhere, with the same result.
//! Strings of a few bytes, which most are, need neither: two words of eight bytes say the same.

pub(in crate::json) const BLOCK: usize = 64;

/// What the bytes between two quotes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StringContent {
    /// Bytes up to the closing quote.
    pub(super) len: usize,
    /// Escapes, a surrogate pair of two counted as two.
    pub(super) escapes: u32,
    pub(super) ascii: bool,
    /// There are escapes of the kind `\u`.
    pub(super) unicode: bool,
    /// There are escapes of the kind `\/`.
    pub(super) slashes: bool,
}

/// A bit for each byte of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::json) struct BlockBits {
    pub(in crate::json) quotes: u64,
    pub(in crate::json) backslashes: u64,
    pub(in crate::json) high: u64,
}

/// How the bitmaps of a block are made.
pub(in crate::json) trait BlockMatcher: Copy {
    fn match_block(self, block: &[u8; BLOCK]) -> BlockBits;
    /// Where one byte stands.
    fn match_byte(self, block: &[u8; BLOCK], byte: u8) -> u64;
    /// Where a byte from `least` on stands; `least` is 0x80 or more.
    fn match_bytes_from(self, block: &[u8; BLOCK], least: u8) -> u64;
}

/// What reads blocks: it is run with the fastest [`Map`] that the machine has.
pub(in crate::json) trait BlockReader {
    type Output;
    /// To be inlined always: only so is the map's code part of its loop.
    fn read_blocks(self, map: impl BlockMatcher) -> Self::Output;
}

/// Runs a reader.
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

/// Reads from behind an opening quote to the closing one; `None` where there is none.
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

/// Bytes up to the closing quote, where it is near and what lies before it is ASCII without escapes.
#[inline]
fn find_near_end(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    let words = words.get(..2)?;
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Of the lowest byte that is marked this is exact, and no other counts.
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

/// Marks the high bit of each byte of a word that is `byte`; above the lowest of them, of others too.
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
        read_string_content_with(self.0, map)
    }
}

#[inline(always)]
fn read_string_content_with(text: &[u8], map: impl BlockMatcher) -> Option<StringContent> {
    let mut found = StringContent {
        ascii: true,
        ..StringContent::default()
    };
    let mut escaping = false;
    let (blocks, tail) = text.as_chunks::<BLOCK>();
    for block in blocks {
        if found.add_block(block, map, &mut escaping) {
            return Some(found);
        }
    }
    let mut last = [0; BLOCK];
    last[..tail.len()].copy_from_slice(tail);
    found.add_block(&last, map, &mut escaping).then_some(found)
}

impl StringContent {
    /// Adds a block; whether the closing quote was in it.
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
        // Most blocks have no escape, and most escapes are neither.
        if escaped != 0 {
            self.unicode |= map.match_byte(block, b'u') & escaped != 0;
            self.slashes |= map.match_byte(block, b'/') & escaped != 0;
        }
        closing != 0
    }
}

/// The bytes that a backslash before them makes part of an escape. `escaping` says so of the first
/// byte of this block, and then of the next.
#[inline(always)]
pub(in crate::json) const fn mark_escaped(backslashes: u64, escaping: &mut bool) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    // A backslash that is escaped itself begins nothing.
    let first = *escaping as u64;
    let backslashes = backslashes & !first;
    let follows = backslashes << 1 | first;
    // In a run that begins at an odd place, the escaped bytes are those at even places.
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

    /// Exists only inside of [`run`], where the machine has AVX2.
    #[derive(Clone, Copy)]
    struct Avx2(());

    #[target_feature(enable = "avx2")]
    pub(super) fn run_reader<R: BlockReader>(reader: R) -> R::Output {
        reader.read_blocks(Avx2(()))
    }

    impl BlockMatcher for Avx2 {
        #[inline(always)]
        #[expect(unsafe_code, reason = "a call into code for a feature that is there")]
        fn match_block(self, block: &[u8; BLOCK]) -> BlockBits {
            // SAFETY: an `Avx2` is made only where the machine has the feature.
            unsafe { match_block(block) }
        }

        #[inline(always)]
        #[expect(unsafe_code, reason = "a call into code for a feature that is there")]
        fn match_byte(self, block: &[u8; BLOCK], byte: u8) -> u64 {
            // SAFETY: an `Avx2` is made only where the machine has the feature.
            unsafe { match_byte(load_halves(block), byte) }
        }

        #[inline(always)]
        #[expect(unsafe_code, reason = "a call into code for a feature that is there")]
        fn match_bytes_from(self, block: &[u8; BLOCK], least: u8) -> u64 {
            // SAFETY: an `Avx2` is made only where the machine has the feature.
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
        // The larger of a byte and the least is the byte itself, or it is less.
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

/// The same byte by byte, where there is no AVX2.
#[derive(Clone, Copy)]
pub(in crate::json) struct Bytewise;

impl BlockMatcher for Bytewise {
    fn match_block(self, block: &[u8; BLOCK]) -> BlockBits {
        let high = block.iter().enumerate();
        BlockBits {
            quotes: self.match_byte(block, b'"'),
            backslashes: self.match_byte(block, b'\\'),
            high: high.fold(0, |bits, (at, &byte)| bits | u64::from(byte >= 0x80) << at),
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

    /// As one would read it.
    fn plainly(text: &[u8]) -> Option<StringContent> {
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
        fn blocks_read_as_one_would(text in bytes(), calm in 0usize..200) {
            prop_assert_eq!(read_string_content(&text), plainly(&text));
            // Also where a run of backslashes lies over the end of a block.
            let long: Vec<u8> = std::iter::repeat_n(b'a', calm).chain(text).collect();
            prop_assert_eq!(read_string_content(&long), plainly(&long));
            prop_assert_eq!(read_string_content_with(&long, Bytewise), plainly(&long));
        }
    }
}
