//! What is counted of a text, for the estimate of its tokens.
//!
//! ASCII text is counted by runs: a token is about a word, a run of marks, or up to three digits. Letters that are rare in English count
//! more, since vocabularies know fewer words with them. Other text is counted by character, by ranges of Unicode. A *mark* is any ASCII character but letters, digits, blanks (space, tab) and line ends. A blank merges
//! with the word or mark behind it, a line end with the mark before it; beside digits neither does.

use std::ops::{AddAssign, SubAssign};

/// The script of a character beyond ASCII, or a group of scripts of which vocabularies know about as much. A part of a
/// text is of one script where its characters share what `SCRIPT_ENDS` goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// U+0080 to 00BF.
    LatinMarks,
    /// U+00C0 to 00FF: accented letters of western Europe.
    Latin,
    /// U+0100 to 017F: those of its east.
    LatinMore,
    /// U+0180 to 036F: letters of Africa, of phonetics, and marks that combine. Also U+1E00 to
    /// 1E7F, and Greek with two marks.
    LatinRare,
    Greek,
    /// The letters of Russian.
    Cyrillic,
    /// All others.
    CyrillicMore,
    /// Armenian and Georgian.
    Caucasian,
    Hebrew,
    /// U+0600 to 067F.
    Arabic,
    /// U+0680 to 06FF: letters of Persian, Urdu and others.
    ArabicMore,
    /// Any other script that takes two bytes: vocabularies hold its bytes alone.
    TwoBytes,
    DevanagariThai,
    /// Bengali, Gujarati, Tamil, Kannada, Malayalam.
    Indic,
    /// Gurmukhi, Telugu, Sinhala; Khmer.
    IndicMore,
    Oriya,
    /// Lao, Tibetan, Ethiopic, old Georgian.
    Lao,
    Myanmar,
    /// U+1E80 to 1EFF.
    Vietnamese,
    /// U+2000 to 207F; selectors of variants.
    Punctuation,
    /// U+2080 to 27BF without technical ones: arrows, mathematics, dingbats. Also other full-width and half-width
    /// characters.
    Symbols,
    /// Lines for tables, one that differs from the character before it.
    Lines,
    /// One that repeats it.
    LineRepeats,
    /// The same of U+2580 to 25BF.
    Blocks,
    BlockRepeats,
    /// Punctuation of East Asia, full-width capitals and figures.
    CjkMarks,
    Kana,
    Han,
    Hangul,
    /// U+1F000 to 1FFFF.
    Emoji,
    /// Any other script that takes three bytes.
    ThreeBytes,
    /// Any other script that takes four bytes.
    FourBytes,
}

/// The number of scripts.
pub const SCRIPTS: usize = FourBytes as usize + 1;

use Script::*;

/// The end of each range of code points, and its script. Each begins with a character whose second byte in UTF-8 is the
/// first one of its kind, so that two bytes tell the script. The fit of November 2026 put scripts together whose weights are near
/// by o200k; what a vocabulary was never trained on counts by bytes.
pub(super) const SCRIPT_ENDS: &[(u32, Script)] = &[
    (0xC0, LatinMarks),
    (0x100, Latin),
    (0x180, LatinMore),
    (0x370, LatinRare),
    (0x400, Greek),
    (0x450, Cyrillic),
    (0x500, CyrillicMore),
    (0x530, TwoBytes),
    (0x590, Caucasian),
    (0x600, Hebrew),
    (0x680, Arabic),
    (0x700, ArabicMore),
    (0x800, TwoBytes),
    (0x900, ThreeBytes),
    (0x980, DevanagariThai),
    (0xA00, Indic),
    (0xA80, IndicMore),
    (0xB00, Indic),
    (0xB80, Oriya),
    (0xC00, Indic),
    (0xC80, IndicMore),
    (0xD80, Indic),
    (0xE00, IndicMore),
    (0xE80, DevanagariThai),
    (0x1000, Lao),
    (0x1080, Myanmar),
    (0x10C0, Lao),
    (0x1100, Caucasian),
    (0x1200, ThreeBytes),
    (0x1380, Lao),
    (0x1780, ThreeBytes),
    (0x1800, IndicMore),
    (0x1E00, ThreeBytes),
    (0x1E80, LatinRare),
    (0x1F00, Vietnamese),
    (0x2000, LatinRare),
    (0x2080, Punctuation),
    (0x2300, Symbols),
    (0x2400, ThreeBytes),
    (0x2500, Symbols),
    (0x2580, Lines),
    (0x25C0, Blocks),
    (0x27C0, Symbols),
    (0x3000, ThreeBytes),
    (0x3040, CjkMarks),
    (0x3100, Kana),
    (0x4E00, ThreeBytes),
    (0xA000, Han),
    (0xAC00, ThreeBytes),
    (0xD800, Hangul),
    (0xFE00, ThreeBytes),
    (0xFE40, Punctuation),
    (0xFF00, ThreeBytes),
    (0xFF40, CjkMarks),
    (0xFFC0, Symbols),
    (0x1_0000, CjkMarks),
    (0x1_F000, FourBytes),
    (0x2_0000, Emoji),
    (0x20_0000, FourBytes),
];

/// Scripts by the first byte of a character, less 0xC0, and the second one, less 0x80.
static BY_BYTES: [[Script; 64]; 64] = {
    let mut table = [[ThreeBytes; 64]; 64];
    let (mut lead, mut range) = (2, 0);
    while lead < 0x38 {
        let mut second = 0;
        while second < 64 {
            let code = match lead {
                ..0x20 => (lead as u32) << 6 | second as u32,
                0x20..0x30 => (lead as u32 & 0xF) << 12 | (second as u32) << 6,
                _ => (lead as u32 & 7) << 18 | (second as u32) << 12,
            };
            if range > 0 && code < SCRIPT_ENDS[range - 1].0 {
                range = 0;
            }
            while range + 1 < SCRIPT_ENDS.len() && code >= SCRIPT_ENDS[range].0 {
                range += 1;
            }
            table[lead][second] = SCRIPT_ENDS[range].1;
            second += 1;
        }
        lead += 1;
    }
    table
};

impl Script {
    /// The script of the character with these first two bytes in UTF-8; the first is at least 0xC0.
    pub(super) fn from_bytes(first: u8, second: u8) -> Self {
        BY_BYTES[usize::from(first & 0x3F)][usize::from(second & 0x3F)]
    }

    /// Of two-byte characters with this first byte, the second byte from which on they are of another script; 0x80 if
    /// all are of one.
    pub(super) const fn second_script_from(first: u8) -> u8 {
        match first {
            0xCD => 0xB0,
            0xD1 | 0xD6 => 0x90,
            0xD4 => 0xB0,
            _ => 0x80,
        }
    }

    /// The script of a character that repeats the one before, where that makes a difference.
    pub(super) const fn of_repeats(self) -> Option<Self> {
        match self {
            Lines => Some(LineRepeats),
            Blocks => Some(BlockRepeats),
            _ => None,
        }
    }
}

/// Counts of a decoded text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSizes {
    /// ASCII characters of any kind.
    pub ascii: u32,
    /// Letters with neither a letter nor a character beyond ASCII before them.
    pub words: u32,
    /// Letters that are no repeats.
    pub letters: u32,
    /// Capitals with no letter before them, …
    pub capital_starts: u32,
    /// … and those with a small letter.
    pub humps: u32,
    /// Marks with no mark before them, …
    pub mark_runs: u32,
    /// … and those with one.
    pub more_marks: u32,
    /// Digits with no digit before them.
    pub digit_runs: u32,
    /// The first digit of a run, and each third one after it.
    pub digit_groups: u32,
    pub digits: u32,
    /// Runs of two blanks or more.
    pub wide_blanks: u32,
    /// Digits with a blank before them, and line ends with a letter or digit.
    pub lone_blanks: u32,
    /// Consonants in a row, from the fifth on, without repeats.
    pub late_consonants: u32,
    /// Control characters that are no white space, such as the escape before a colour. They are marks, too.
    pub controls: u32,
    /// Letters that repeat the three before them. They count as no other letters.
    pub repeats: u32,
    /// Characters by [`Script`].
    pub scripts: [u32; SCRIPTS],
}

/// The counts of ASCII text that have weights.
pub const ASCII_COUNTS: usize = 14;

impl TextSizes {
    /// The counts of ASCII text, in the order of the weights of a family.
    pub const fn ascii_counts(&self) -> [u32; ASCII_COUNTS] {
        [
            self.words,
            self.letters,
            self.capital_starts,
            self.humps,
            self.mark_runs,
            self.more_marks,
            self.digit_runs,
            self.digit_groups,
            self.digits,
            self.wide_blanks,
            self.lone_blanks,
            self.late_consonants,
            self.controls,
            self.repeats,
        ]
    }

    pub fn total_chars(&self) -> usize {
        self.ascii as usize + self.scripts.iter().map(|&it| it as usize).sum::<usize>()
    }

    /// Characters of one script.
    pub const fn script(&self, script: Script) -> u32 {
        self.scripts[script as usize]
    }

    fn counts_mut(&mut self) -> [&mut u32; 1 + ASCII_COUNTS] {
        [
            &mut self.ascii,
            &mut self.words,
            &mut self.letters,
            &mut self.capital_starts,
            &mut self.humps,
            &mut self.mark_runs,
            &mut self.more_marks,
            &mut self.digit_runs,
            &mut self.digit_groups,
            &mut self.digits,
            &mut self.wide_blanks,
            &mut self.lone_blanks,
            &mut self.late_consonants,
            &mut self.controls,
            &mut self.repeats,
        ]
    }

    /// Changes each count by that of `other`.
    fn change(&mut self, mut other: Self, change: impl Fn(u32, u32) -> u32) {
        let scripts = self.scripts.iter_mut().zip(&other.scripts);
        scripts.for_each(|(count, other)| *count = change(*count, *other));
        for (count, other) in self.counts_mut().into_iter().zip(other.counts_mut()) {
            *count = change(*count, *other);
        }
    }
}

impl AddAssign for TextSizes {
    fn add_assign(&mut self, more: Self) {
        self.change(more, |count, more| count + more);
    }
}

impl SubAssign for TextSizes {
    fn sub_assign(&mut self, less: Self) {
        self.change(less, u32::saturating_sub);
    }
}
