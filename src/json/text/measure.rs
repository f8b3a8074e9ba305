//! Counts words, marks, digits and characters by script, a block of bytes at a time.
//!
//! Each byte of a block has a bit in the mask of its class. A run begins where a mask has a bit and the byte before
//! has none, so a shift and a population count give the number of runs. An escape belongs to the class of its
//! character: its second byte stands for it, and the backslash before belongs to no class.

use super::{Character, Script, TextSizes, TextWalk};
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
    counted.unwrap_or_default()
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
            bits.letters &= !escaped;
            bits.capitals &= !escaped;
            bits.consonants &= !escaped;
            bits.digits &= !escaped;
            bits.blanks = bits.blanks & !escaped | tabs;
        }
        if bits.high != 0 {
            self.high = true;
            self.count_wide(map, block, from);
        }
        let words = bits.letters | bits.digits;
        let marks = chars & !(words | bits.blanks | bits.line_ends | first);
        self.sizes.ascii += chars.count_ones();
        self.count_letters(&bits);
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
    fn count_letters(&mut self, bits: &ClassBits) {
        let letters = bits.letters << 1 | self.before.letters >> 63;
        let high = bits.high << 1 | self.before.high >> 63;
        self.sizes.words += (bits.letters & !(letters | high)).count_ones();
        self.sizes.letters += bits.letters.count_ones();
        if bits.capitals != 0 {
            let capitals = bits.capitals << 1 | self.before.capitals >> 63;
            self.sizes.capital_starts += (bits.capitals & !letters).count_ones();
            self.sizes.humps += (bits.capitals & letters & !capitals).count_ones();
        }
        let (now, before) = (bits.consonants, self.before.consonants);
        let third = now & (now << 1 | before >> 63) & (now << 2 | before >> 62);
        let fifth = third & (third << 2 | self.third_consonants >> 62);
        if fifth != 0 {
            self.sizes.late_consonants += fifth.count_ones();
        }
        self.third_consonants = third;
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

    /// Counts the characters beyond ASCII that begin in a block.
    #[inline(always)]
    fn count_wide(&mut self, map: impl BlockMatcher, block: &[u8; BLOCK], from: usize) {
        let above = |least| map.match_bytes_from(block, least);
        let scripts = &mut self.sizes.scripts;
        let mut add = |script, mask: u64| scripts[script as usize] += mask.count_ones();
        let han = above(0xE4) & !above(0xEA);
        add(Script::Han, han);
        let mut others = above(0xC0) & !han;
        if others.count_ones() > MANY_OTHERS {
            let [two, greek, cyrillic, semitic, three, symbols] =
                [0xC0, 0xCE, 0xD0, 0xD4, 0xE0, 0xE2].map(above);
            add(Script::Latin, two & !greek);
            add(Script::Greek, greek & !cyrillic);
            add(Script::Cyrillic, cyrillic & !semitic);
            add(Script::Semitic, semitic & !three);
            add(Script::Indic, three & !symbols);
            let hangul = above(0xEA) & !above(0xEE);
            add(Script::Hangul, hangul);
            let kana = above(0xE3) & !above(0xE4) & (above(0x81) & !above(0x84)) >> 1;
            add(Script::Kana, kana);
            others &= symbols & !(hangul | kana);
        }
        // These are few in most texts.
        while others != 0 {
            let at = from + others.trailing_zeros() as usize;
            let second = self.raw.get(at + 1).copied().unwrap_or_default();
            let script = Script::from_bytes(self.raw[at], second);
            self.sizes.scripts[script as usize] += 1;
            others &= others - 1;
        }
    }
}

/// Characters in a block from which on they are not counted one by one.
const MANY_OTHERS: u32 = 4;

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

#[cfg(test)]
mod tests;
