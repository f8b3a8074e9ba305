//! What is counted of a text, for the estimate of its tokens.
//!
//! ASCII text is counted by runs: a token is about a word, a run of marks or a run of digits. Other text is counted by
//! character. A *mark* is any ASCII character but letters, digits, blanks (space, tab) and line ends. Line ends count
//! nothing: they merge with the mark or the indent beside them.

use std::ops::{AddAssign, SubAssign};

/// The script of a character beyond ASCII, told by its first byte in UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// C2 to CD: accented Latin.
    Latin,
    /// CE and CF.
    Greek,
    /// D0 to D3.
    Cyrillic,
    /// D4 to DF: Armenian, Hebrew, Arabic.
    Semitic,
    /// E0 and E1: the scripts of India and South-East Asia.
    Indic,
    /// E2: punctuation, arrows, symbols.
    Symbols,
    /// E3 followed by 81 to 83.
    Kana,
    /// Any other E3, EE and EF: full-width punctuation.
    CjkMarks,
    /// E4 to E9.
    Han,
    /// EA to ED.
    Hangul,
    /// F0 to F7: pictographs, rare Chinese characters.
    Beyond,
}

/// The number of scripts.
pub const SCRIPTS: usize = 11;

impl Script {
    /// The script of the character with these first two bytes in UTF-8; the first is at least 0xC0.
    pub(super) const fn from_bytes(first: u8, second: u8) -> Self {
        match first {
            ..0xCE => Self::Latin,
            0xCE..=0xCF => Self::Greek,
            0xD0..=0xD3 => Self::Cyrillic,
            0xD4..=0xDF => Self::Semitic,
            0xE0..=0xE1 => Self::Indic,
            0xE2 => Self::Symbols,
            0xE3 if matches!(second, 0x81..=0x83) => Self::Kana,
            0xE3 | 0xEE | 0xEF => Self::CjkMarks,
            0xE4..=0xE9 => Self::Han,
            0xEA..=0xED => Self::Hangul,
            0xF0.. => Self::Beyond,
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
    pub letters: u32,
    /// Capitals with no letter before them.
    pub capital_starts: u32,
    /// Marks with no mark before them, …
    pub mark_runs: u32,
    /// … and those with one.
    pub more_marks: u32,
    /// Digits with no digit before them.
    pub digit_runs: u32,
    pub digits: u32,
    /// Runs of two blanks or more.
    pub wide_blanks: u32,
    /// Consonants in a row, from the fifth on.
    pub late_consonants: u32,
    /// Characters by [`Script`].
    pub scripts: [u32; SCRIPTS],
}

impl TextSizes {
    pub fn total_chars(&self) -> usize {
        self.ascii as usize + self.scripts.iter().map(|&it| it as usize).sum::<usize>()
    }

    /// Characters of one script.
    pub const fn script(&self, script: Script) -> u32 {
        self.scripts[script as usize]
    }

    fn counts_mut(&mut self) -> [&mut u32; 10 + SCRIPTS] {
        let Self {
            ascii,
            words,
            letters,
            capital_starts,
            mark_runs,
            more_marks,
            digit_runs,
            digits,
            wide_blanks,
            late_consonants,
            scripts: [a, b, c, d, e, f, g, h, i, j, k],
        } = self;
        [
            ascii,
            words,
            letters,
            capital_starts,
            mark_runs,
            more_marks,
            digit_runs,
            digits,
            wide_blanks,
            late_consonants,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            i,
            j,
            k,
        ]
    }
}

impl AddAssign for TextSizes {
    fn add_assign(&mut self, mut more: Self) {
        for (count, more) in self.counts_mut().into_iter().zip(more.counts_mut()) {
            *count += *more;
        }
    }
}

impl SubAssign for TextSizes {
    fn sub_assign(&mut self, mut less: Self) {
        for (count, less) in self.counts_mut().into_iter().zip(less.counts_mut()) {
            *count = count.saturating_sub(*less);
        }
    }
}
