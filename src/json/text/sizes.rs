//! What is counted of a text, for the estimate of its tokens.
//!
//! ASCII text is counted by runs: a token is about a word, a run of marks, or up to three digits. Other text is counted
//! by character. A *mark* is any ASCII character but letters, digits, blanks (space, tab) and line ends. A blank merges
//! with the word or mark behind it, a line end with the mark before it; beside digits neither does.

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
    /// Consonants in a row, from the fifth on.
    pub late_consonants: u32,
    /// Characters by [`Script`].
    pub scripts: [u32; SCRIPTS],
}

/// The counts of ASCII text that have weights.
pub const ASCII_COUNTS: usize = 12;

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
