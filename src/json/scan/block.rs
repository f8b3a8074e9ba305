//! Bitmaps of quotes, backslashes and escapes for blocks of 64 bytes.
//!
//! A string is read once: the same bitmaps give its end and its escapes, so most texts need no walk to be digested. AVX2 makes the bitmaps where the machine has it; elsewhere they are made
//! byte by byte, with the same result. Strings of a few bytes, which are most, are read as two words of eight bytes.

use super::{JsonString, Span};

pub(in crate::json) const BLOCK: usize = 64;

/// One bit for each byte of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::json) struct BlockBits {
    pub(in crate::json) quotes: u64,
    pub(in crate::json) backslashes: u64,
}

/// The bytes of a block by class. A byte of no class is an ASCII mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::json) struct ClassBits {
    pub(in crate::json) letters: u64,
    pub(in crate::json) capitals: u64,
    /// Letters but a, e, i, o, u, y.
    pub(in crate::json) consonants: u64,
    pub(in crate::json) digits: u64,
    /// Spaces and tabs.
    pub(in crate::json) blanks: u64,
    pub(in crate::json) line_ends: u64,
    pub(in crate::json) backslashes: u64,
    pub(in crate::json) high: u64,
    /// All other bytes. Left to the reader, who knows the escapes.
    pub(in crate::json) marks: u64,
}

/// How the bitmaps of a block are made.
pub(in crate::json) trait BlockMatcher: Copy {
    fn match_block(self, block: &[u8; BLOCK]) -> BlockBits;
    fn match_classes(self, block: &[u8; BLOCK]) -> ClassBits;
    fn match_byte(self, block: &[u8; BLOCK], byte: u8) -> u64;
    /// Marks the bytes that are equal to the one `DISTANCE` before them in the block, which is at most 32.
    fn match_repeats<const DISTANCE: usize>(self, block: &[u8; BLOCK]) -> u64;
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
    if std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("popcnt")
        && std::arch::is_x86_feature_detected!("bmi1")
    {
        #[expect(
            unsafe_code,
            reason = "a call into code for a feature that was just detected"
        )]
        // SAFETY: the machine has the features.
        return unsafe { avx2::run_reader(reader) };
    }
    reader.read_blocks(Bytewise)
}

/// Reads from `start`, behind an opening quote, to the closing one; `None` if there is none.
#[inline]
pub(super) fn read_string(body: &[u8], start: usize) -> Option<JsonString> {
    let text = body.get(start..)?;
    if let Some(len) = find_near_end(text) {
        return Some(JsonString {
            span: Span::new(start, start + len),
            has_escapes: false,
            respelled: false,
        });
    }
    run_reader(StringReader { text, start })
}

/// Bytes up to a closing quote within 16 bytes, if they have no escapes.
#[inline]
fn find_near_end(text: &[u8]) -> Option<usize> {
    let (words, _) = text.as_chunks::<8>();
    let words = words.get(..2)?;
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest mark is exact, and only that one counts.
        let quotes = mark_equal_bytes(word, b'"');
        let backslashes = mark_equal_bytes(word, b'\\');
        if quotes != 0 {
            let before = (quotes & quotes.wrapping_neg()) - 1;
            let is_plain = backslashes & before == 0;
            return is_plain.then(|| at * 8 + quotes.trailing_zeros() as usize / 8);
        }
        if backslashes != 0 {
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

struct StringReader<'a> {
    text: &'a [u8],
    /// The place of the text in the body.
    start: usize,
}

impl BlockReader for StringReader<'_> {
    type Output = Option<JsonString>;

    #[inline(always)]
    fn read_blocks(self, map: impl BlockMatcher) -> Option<JsonString> {
        let mut string = JsonString {
            span: Span::new(self.start, self.start),
            has_escapes: false,
            respelled: false,
        };
        let mut escaping = false;
        let (blocks, tail) = self.text.as_chunks::<BLOCK>();
        for block in blocks {
            if string.add_block(block, map, &mut escaping) {
                return Some(string);
            }
        }
        let mut last = [0; BLOCK];
        last[..tail.len()].copy_from_slice(tail);
        let ended = string.add_block(&last, map, &mut escaping);
        ended.then_some(string)
    }
}

impl JsonString {
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
        self.span.end += before.count_ones();
        let escaped = escaped & before;
        // Most blocks have no escape.
        if escaped != 0 {
            self.has_escapes = true;
            let respelled = map.match_byte(block, b'u') | map.match_byte(block, b'/');
            self.respelled |= respelled & escaped != 0;
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
        __m256i, _mm_loadu_si128, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
        _mm256_loadu_si256, _mm256_max_epu8, _mm256_min_epu8, _mm256_movemask_epi8,
        _mm256_or_si256, _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_sub_epi8,
    };

    use super::{BLOCK, BlockBits, BlockMatcher, BlockReader, ClassBits};

    /// Exists only inside of [`run_reader`], where the machine has AVX2.
    #[derive(Clone, Copy)]
    struct Avx2(());

    // With population counts, which AVX2 does not imply.
    #[target_feature(enable = "avx2,popcnt,bmi1")]
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
        fn match_classes(self, block: &[u8; BLOCK]) -> ClassBits {
            // SAFETY: as above.
            unsafe { match_classes(block) }
        }

        #[inline(always)]
        fn match_byte(self, block: &[u8; BLOCK], byte: u8) -> u64 {
            // SAFETY: as above.
            unsafe { match_byte(load_halves(block), byte) }
        }

        #[inline(always)]
        fn match_repeats<const DISTANCE: usize>(self, block: &[u8; BLOCK]) -> u64 {
            // SAFETY: as above.
            unsafe { match_repeats::<DISTANCE>(block) }
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
        }
    }

    /// Bytes whose low four bits choose them from a table: each entry is the one byte of its place.
    const WHITE: [u8; 16] = [
        b' ', 0, 0, 0, 0, 0, 0, 0, 0, b'\t', b'\n', 0, 0, b'\r', 0, 0,
    ];
    const VOWELS: [u8; 16] = [0, b'a', 0, 0, 0, b'e', 0, 0, 0, b'i', 0, 0, 0, 0, 0, b'o'];

    #[target_feature(enable = "avx2")]
    #[inline]
    fn match_classes(block: &[u8; BLOCK]) -> ClassBits {
        let halves = load_halves(block);
        let [white_table, vowel_table] = [load_table(&WHITE), load_table(&VOWELS)];
        let small = halves.map(|half| _mm256_or_si256(half, _mm256_set1_epi8(0x20)));
        // A byte is in a range of `len` bytes if its distance to the first one is below `len`.
        let in_range = |half, first: u8, len: u8| {
            let distance = _mm256_sub_epi8(half, _mm256_set1_epi8(first as i8));
            let most = _mm256_set1_epi8(len as i8 - 1);
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(distance, most), distance))
        };
        let letters = join_masks(small.map(|half| in_range(half, b'a', 26)));
        let digits = join_masks(halves.map(|half| in_range(half, b'0', 10)));
        // Bit 5, moved to the place of the sign: set in small letters and in the space.
        let fives = halves.map(|half| _mm256_movemask_epi8(_mm256_slli_epi16::<2>(half)));
        let fives = join_masks(fives);
        let vowels = join_masks(small.map(|half| {
            let vowels = _mm256_cmpeq_epi8(_mm256_shuffle_epi8(vowel_table, half), half);
            let u = _mm256_cmpeq_epi8(half, _mm256_set1_epi8(b'u' as i8));
            let y = _mm256_cmpeq_epi8(half, _mm256_set1_epi8(b'y' as i8));
            _mm256_movemask_epi8(_mm256_or_si256(vowels, _mm256_or_si256(u, y)))
        }));
        let white = join_masks(halves.map(|half| {
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(
                _mm256_shuffle_epi8(white_table, half),
                half,
            ))
        }));
        let controls = white & !fives;
        let tabs = match controls {
            // JSON escapes them within texts.
            0 => 0,
            _ => match_byte(halves, b'\t'),
        };
        ClassBits {
            letters,
            capitals: letters & !fives,
            consonants: letters & !vowels,
            digits,
            blanks: white & fives | tabs,
            line_ends: controls & !tabs,
            backslashes: match_byte(halves, b'\\'),
            high: join_masks(halves.map(|half| _mm256_movemask_epi8(half))),
            marks: 0,
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    #[expect(unsafe_code, reason = "a load of bytes that are there")]
    fn load_table(table: &[u8; 16]) -> __m256i {
        // SAFETY: the table has the 16 bytes that are read, at any alignment.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn match_byte(halves: [__m256i; 2], byte: u8) -> u64 {
        let byte = _mm256_set1_epi8(byte as i8);
        join_masks(halves.map(|half| _mm256_movemask_epi8(_mm256_cmpeq_epi8(half, byte))))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    #[expect(unsafe_code, reason = "loads of bytes that are there")]
    fn match_repeats<const DISTANCE: usize>(block: &[u8; BLOCK]) -> u64 {
        const { assert!(DISTANCE <= 32) };
        // SAFETY: half a block from each of these places is within the block, at any alignment.
        let load = |at| unsafe { _mm256_loadu_si256(block.as_ptr().add(at).cast()) };
        let [low, high] = [[0, DISTANCE], [32 - DISTANCE, 32]].map(|[one, other]| {
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(load(one), load(other))) as u32
        });
        u64::from(low) << DISTANCE | u64::from(high) << 32
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
        }
    }

    fn match_classes(self, block: &[u8; BLOCK]) -> ClassBits {
        let mut bits = ClassBits::default();
        for (at, &byte) in block.iter().enumerate() {
            let mask = 1 << at;
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' => {
                    bits.letters |= mask;
                    bits.capitals |= u64::from(byte.is_ascii_uppercase()) << at;
                    let vowel = matches!(byte | 0x20, b'a' | b'e' | b'i' | b'o' | b'u' | b'y');
                    bits.consonants |= u64::from(!vowel) << at;
                }
                b'0'..=b'9' => bits.digits |= mask,
                b' ' | b'\t' => bits.blanks |= mask,
                b'\n' | b'\r' => bits.line_ends |= mask,
                b'\\' => bits.backslashes |= mask,
                0x80.. => bits.high |= mask,
                _ => {}
            }
        }
        bits
    }

    fn match_byte(self, block: &[u8; BLOCK], wanted: u8) -> u64 {
        let bytes = block.iter().enumerate();
        bytes.fold(0, |bits, (at, &byte)| {
            bits | u64::from(byte == wanted) << at
        })
    }

    fn match_repeats<const DISTANCE: usize>(self, block: &[u8; BLOCK]) -> u64 {
        let places = DISTANCE..BLOCK;
        places.fold(0, |bits, at| {
            bits | u64::from(block[at] == block[at - DISTANCE]) << at
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
    fn read_by_byte(text: &[u8]) -> Option<JsonString> {
        let mut found = JsonString {
            span: Span::default(),
            has_escapes: false,
            respelled: false,
        };
        let mut bytes = text.iter().copied();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => return Some(found),
                b'\\' => {
                    let next = bytes.next()?;
                    found.span.end += 1;
                    found.has_escapes = true;
                    found.respelled |= matches!(next, b'u' | b'/');
                }
                _ => {}
            }
            found.span.end += 1;
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
            prop_assert_eq!(read_string(&text, 0), read_by_byte(&text));
            // With a prefix, runs of backslashes lie over the end of a block.
            let long: Vec<u8> = std::iter::repeat_n(b'a', prefix).chain(text).collect();
            prop_assert_eq!(read_string(&long, 0), read_by_byte(&long));
            let reader = StringReader { text: &long, start: 0 };
            prop_assert_eq!(reader.read_blocks(Bytewise), read_by_byte(&long));
        }
    }
}
