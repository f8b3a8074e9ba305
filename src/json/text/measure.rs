//! Counts words, marks, digits and characters by script, a block of bytes at a time.
//!
//! Each byte of a block has a bit in the mask of its class. A run begins where a mask has a bit and the byte before
//! has none, so a shift and a population count give the number of runs. An escape belongs to the class of its
//! character: its second byte stands for it, and the backslash before belongs to no class.

use super::{Character, SCRIPTS, Script, TextSizes, TextWalk};
use crate::json::scan::block::{self, BLOCK, BlockMatcher, BlockReader, ClassBits, mark_escaped};

/// Counts the text between two quotes of JSON.
pub fn measure_text(raw: &[u8]) -> TextSizes {
    let counted = block::run_reader(RunReader { raw, escapes: true });
    counted.unwrap_or_else(|| measure_decoded(raw))
}

/// Counts a text that is not escaped.
pub fn measure_plain(text: &str) -> TextSizes {
    let raw = text.as_bytes();
    let counted = block::run_reader(RunReader {
        raw,
        escapes: false,
    });
    // Valid UTF-8 without escapes can always be counted.
    let mut sizes = counted.unwrap_or_default();
    // In texts of JSON they are `\u` escapes, so that these come here too.
    let controls = raw
        .iter()
        .filter(|byte| **byte < b' ' && !b"\t\n\r".contains(byte));
    sizes.controls = controls.count() as u32;
    sizes
}

/// Counts a JSON value as a model reads it: without the white space between its parts.
pub fn measure_json(value: &[u8]) -> TextSizes {
    let mut compact = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(start) = memchr::memchr(b'"', rest) {
        let (between, text) = rest.split_at(start);
        push_compact(&mut compact, between);
        let mut end = 1;
        while let Some(found) = memchr::memchr2(b'"', b'\\', text.get(end..).unwrap_or_default()) {
            let escape = text[end + found] == b'\\';
            end += found + 1 + usize::from(escape);
            if !escape {
                break;
            }
        }
        let (text, after) = text.split_at(end.min(text.len()));
        compact.extend_from_slice(text);
        rest = after;
    }
    push_compact(&mut compact, rest);
    measure_text(&compact)
}

fn push_compact(compact: &mut Vec<u8>, between: &[u8]) {
    let kept = between.iter().filter(|byte| !byte.is_ascii_whitespace());
    compact.extend(kept);
}

/// Counts a text that the blocks cannot count: with `\u` escapes, or invalid.
#[cold]
fn measure_decoded(raw: &[u8]) -> TextSizes {
    let decoded: String = TextWalk::new(raw).map(Character::to_char).collect();
    measure_plain(&decoded)
}

/// The result is `None` for invalid UTF-8, for a `\u` escape, and for a backslash at the end or before a character
/// that is not ASCII.
struct RunReader<'a> {
    raw: &'a [u8],
    escapes: bool,
}

impl BlockReader for RunReader<'_> {
    type Output = Option<TextSizes>;

    #[inline(always)]
    fn read_blocks(self, map: impl BlockMatcher) -> Option<TextSizes> {
        let mut counter = RunCounter {
            raw: self.raw,
            escapes: self.escapes,
            sizes: TextSizes::default(),
            escaping: false,
            high: false,
            before: ClassBits::default(),
            later_blanks: 0,
            third_consonants: 0,
            escaped: 0,
            group_digits: 0,
        };
        let (blocks, tail) = self.raw.as_chunks::<BLOCK>();
        for (at, block) in blocks.iter().enumerate() {
            counter.count_block(map, block, at * BLOCK, u64::MAX)?;
        }
        if !tail.is_empty() {
            let mut last = [0; BLOCK];
            last[..tail.len()].copy_from_slice(tail);
            let valid = (1 << tail.len()) - 1;
            counter.count_block(map, &last, blocks.len() * BLOCK, valid)?;
        }
        if counter.escaping || counter.high && simdutf8::basic::from_utf8(self.raw).is_err() {
            return None;
        }
        if counter.high {
            // In a loop of its own, since the one above is slower with this code in it.
            counter.sizes.scripts = block::run_reader(WideReader { raw: self.raw });
        }
        Some(counter.sizes)
    }
}

struct RunCounter<'a> {
    raw: &'a [u8],
    escapes: bool,
    sizes: TextSizes,
    escaping: bool,
    /// There are bytes beyond ASCII.
    high: bool,
    /// The masks of the block before: their last bits are before the first bit of this one.
    before: ClassBits,
    later_blanks: u64,
    third_consonants: u64,
    /// The escaped characters of the block before.
    escaped: u64,
    /// Digits of the last group, where the block before ended with one; 0 for three.
    group_digits: u32,
}

impl RunCounter<'_> {
    /// Adds the block that begins at `from`. `valid` has a bit for each byte that belongs to the text.
    #[inline(always)]
    fn count_block(
        &mut self,
        map: impl BlockMatcher,
        block: &[u8; BLOCK],
        from: usize,
        valid: u64,
    ) -> Option<()> {
        let mut bits = map.match_classes(block);
        let mut chars = valid & !bits.high;
        let (mut escaped, mut first) = (0, 0);
        if self.escapes && (bits.backslashes != 0 || self.escaping) {
            escaped = mark_escaped(bits.backslashes & valid, &mut self.escaping);
            let unicode = map.match_byte(block, b'u');
            // No character is escaped at the end of the text or beyond ASCII.
            if escaped & (unicode | bits.high | !valid) != 0 {
                return None;
            }
            let tabs = map.match_byte(block, b't') & escaped;
            let ends = (map.match_byte(block, b'n') | map.match_byte(block, b'r')) & escaped;
            first = bits.backslashes & !escaped;
            chars &= !first;
            bits.line_ends = bits.line_ends & !escaped | ends;
            for at in list_bits(escaped & bits.letters & !(tabs | ends)) {
                // The backspace and the form feed.
                self.sizes.controls += u32::from(matches!(block[at], b'b' | b'f'));
            }
            bits.letters &= !escaped;
            bits.capitals &= !escaped;
            bits.consonants &= !escaped;
            bits.digits &= !escaped;
            bits.blanks = bits.blanks & !escaped | tabs;
        }
        self.high |= bits.high != 0;
        let words = bits.letters | bits.digits;
        let marks = chars & !(words | bits.blanks | bits.line_ends | first);
        self.sizes.ascii += chars.count_ones();
        self.count_letters(map, block, from, &bits, escaped);
        self.escaped = escaped;
        let mark_runs = marks & !shift_one(marks, self.before.marks, escaped);
        self.sizes.mark_runs += mark_runs.count_ones();
        self.sizes.more_marks += (marks & !mark_runs).count_ones();
        if bits.digits != 0 {
            self.count_digits(&bits);
        }
        if bits.line_ends != 0 {
            let words_before = self.before.letters | self.before.digits;
            let lone = bits.line_ends & shift_one(words, words_before, escaped);
            self.sizes.lone_blanks += lone.count_ones();
        }
        let later = bits.blanks & shift_one(bits.blanks, self.before.blanks, escaped);
        if later != 0 {
            let second = later & !shift_one(later, self.later_blanks, escaped);
            self.sizes.wide_blanks += second.count_ones();
        }
        self.later_blanks = later;
        bits.marks = marks;
        self.before = bits;
        Some(())
    }

    #[inline(always)]
    fn count_letters(
        &mut self,
        map: impl BlockMatcher,
        block: &[u8; BLOCK],
        from: usize,
        bits: &ClassBits,
        escaped: u64,
    ) {
        let letters = bits.letters << 1 | self.before.letters >> 63;
        let high = bits.high << 1 | self.before.high >> 63;
        self.sizes.words += (bits.letters & !(letters | high)).count_ones();
        self.sizes.letters += bits.letters.count_ones();
        if bits.capitals != 0 {
            let capitals = bits.capitals << 1 | self.before.capitals >> 63;
            self.sizes.capital_starts += (bits.capitals & !letters).count_ones();
            self.sizes.humps += (bits.capitals & letters & !capitals).count_ones();
        }
        let behind = |now: u64, before: u64, by: u32| now << by | before >> (64 - by);
        let (now, before) = (bits.consonants, self.before.consonants);
        let third = now & behind(now, before, 1) & behind(now, before, 2);
        let fifth = third & behind(third, self.third_consonants, 2);
        self.third_consonants = third;
        let (vowels, vowels_before) = (bits.letters & !now, self.before.letters & !before);
        let two = vowels & behind(vowels, vowels_before, 1) & behind(vowels, vowels_before, 2);
        // Four in a row: no other letter repeats three.
        let fourth = third & behind(now, before, 3) | two & behind(vowels, vowels_before, 3);
        if fourth == 0 {
            return;
        }
        // Most of these differ from the letter before, and nothing else has to be compared then.
        let mut repeats = fourth & match_repeats::<1>(map, self.raw, block, from);
        if repeats != 0 {
            let of_escapes = [1, 2, 3].map(|by| behind(escaped, self.escaped, by));
            repeats &= !(of_escapes[0] | of_escapes[1] | of_escapes[2])
                & match_repeats::<2>(map, self.raw, block, from)
                & match_repeats::<3>(map, self.raw, block, from);
        }
        self.sizes.late_consonants += (fifth & !repeats).count_ones();
        self.sizes.letters -= repeats.count_ones();
        self.sizes.repeats += repeats.count_ones();
    }

    #[inline(always)]
    fn count_digits(&mut self, bits: &ClassBits) {
        let (digits, before) = (bits.digits, self.before.digits >> 63);
        let runs = digits & !(digits << 1 | before);
        let blanks = bits.blanks << 1 | self.before.blanks >> 63;
        self.sizes.digit_runs += runs.count_ones();
        self.sizes.digits += digits.count_ones();
        self.sizes.lone_blanks += (digits & blanks).count_ones();
        // A run that goes on begins its next group behind what its last one lacks.
        let lacking = (3 - self.group_digits) % 3;
        let through = (2 << lacking) - 1;
        let goes_on = before != 0 && digits & through == through;
        let mut groups = runs | u64::from(goes_on) << lacking;
        // From the start of each group, marks those that follow: twice as far with each step.
        let mut whole = digits & digits << 1 & digits << 2 & digits << 3;
        let mut step = 3;
        while whole != 0 && step < 64 {
            groups |= groups << step & whole;
            whole &= whole << step;
            step *= 2;
        }
        self.sizes.digit_groups += groups.count_ones();
        self.group_digits = (groups.leading_zeros() + 1) % 3;
    }
}

/// The places of the bits of a mask.
fn list_bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        at
    })
}

/// Characters in a block up to which they are counted one by one.
const FEW: u32 = 4;

/// Marks the characters after those of a mask, given the mask of the block before. An escaped character has two bytes.
#[inline(always)]
const fn shift_one(mask: u64, before: u64, escaped: u64) -> u64 {
    let one = mask << 1 | before >> 63;
    if escaped == 0 {
        return one;
    }
    let two = mask << 2 | before >> 62;
    one & !escaped | two & escaped
}

/// Marks the bytes of the block at `from` that are equal to the one `DISTANCE` before them.
#[inline(always)]
fn match_repeats<const DISTANCE: usize>(
    map: impl BlockMatcher,
    raw: &[u8],
    block: &[u8; BLOCK],
    from: usize,
) -> u64 {
    let mut repeats = map.match_repeats::<DISTANCE>(block);
    if let Some(before) = from.checked_sub(DISTANCE) {
        for at in 0..DISTANCE {
            repeats |= u64::from(raw[before + at] == block[at]) << at;
        }
    }
    repeats
}

/// Counts the characters beyond ASCII of valid UTF-8, by script. It passes blocks of ASCII by.
struct WideReader<'a> {
    raw: &'a [u8],
}

impl BlockReader for WideReader<'_> {
    type Output = [u32; SCRIPTS];

    #[inline(always)]
    fn read_blocks(self, map: impl BlockMatcher) -> [u32; SCRIPTS] {
        let mut scripts = [0; SCRIPTS];
        let (blocks, tail) = self.raw.as_chunks::<BLOCK>();
        for (at, block) in blocks.iter().enumerate() {
            self.count_block(map, block, at * BLOCK, &mut scripts);
        }
        let mut last = [0; BLOCK];
        last[..tail.len()].copy_from_slice(tail);
        self.count_block(map, &last, blocks.len() * BLOCK, &mut scripts);
        scripts
    }
}

impl WideReader<'_> {
    #[inline(always)]
    fn count_block(
        &self,
        map: impl BlockMatcher,
        block: &[u8; BLOCK],
        from: usize,
        scripts: &mut [u32; SCRIPTS],
    ) {
        let above = |least| map.match_bytes_from(block, least);
        // The second bytes of characters, at the places of the first ones: that of the last place is in the next block.
        let second_from = |least| above(least) >> 1;
        const LAST: u64 = 1 << 63;
        let mut rest = above(0xC0);
        if rest == 0 {
            return;
        }
        let (east, hangul) = (above(0xE4) & !LAST, above(0xEA));
        if east & !hangul != 0 {
            // The first of them are rarer ones.
            let han = east & !hangul & (above(0xE5) | second_from(0xB8));
            scripts[Script::Han as usize] += han.count_ones();
            rest &= !han;
        }
        if east & hangul != 0 {
            let [whole, others] = [0xEB, 0xEE].map(above);
            let hangul = east & hangul & !others & (whole | second_from(0xB0));
            scripts[Script::Hangul as usize] += hangul.count_ones();
            rest &= !hangul;
        }
        let are_few = rest.count_ones() <= FEW;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            let first = block[at];
            let second = self.raw.get(from + at + 1).copied().unwrap_or_default();
            let split = Script::second_script_from(first);
            let like_first = if are_few {
                0
            } else {
                map.match_byte(block, first)
            };
            // Those of the same script by their first bytes, if they are told by two.
            let alike = match first {
                _ if are_few => 0,
                0xE0.. => like_first & map.match_byte(block, second) >> 1 & !LAST,
                _ if split == 0x80 => like_first,
                _ if second < split => like_first & !second_from(split) & !LAST,
                _ => like_first & second_from(split) & !LAST,
            };
            let alike = alike & rest | 1 << at;
            let script = Script::from_bytes(first, second);
            let mut repeats = 0;
            if let Some(repeated) = script.of_repeats() {
                repeats = alike & self.match_repeated(map, block, from);
                scripts[repeated as usize] += repeats.count_ones();
            }
            scripts[script as usize] += (alike & !repeats).count_ones();
            rest &= !alike;
        }
    }

    /// Marks the first bytes of characters of three bytes that repeat the character before.
    #[inline(always)]
    fn match_repeated(&self, map: impl BlockMatcher, block: &[u8; BLOCK], from: usize) -> u64 {
        let equal = match_repeats::<3>(map, self.raw, block, from);
        let within = equal & equal >> 1 & equal >> 2;
        let repeats_last = |at: &usize| {
            let last = self.raw.get((from + at).wrapping_sub(3)..from + at + 3);
            last.is_some_and(|last| last[..3] == last[3..])
        };
        let over_the_end = [BLOCK - 2, BLOCK - 1].into_iter().filter(repeats_last);
        over_the_end.fold(within, |bits, at| bits | 1 << at)
    }
}

#[cfg(test)]
mod tests;
