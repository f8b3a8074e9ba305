//! Finds continuation blocks in a text that comes in pieces.
//!
//! The scanner reads the raw content of JSON strings. It finds a tag whatever its escapes are, and wherever a piece ends.
//! Positions are bytes of the whole text.

use std::{borrow::Cow, ops::Range};

use crate::{format::ContinuationBlock, json::text::TextWalk};

const OPENING: &str = "<continuation_package>";
const CLOSING: &str = "</continuation_package>";

/// Whether a text is a continuation block and nothing else but white space.
pub(in crate::format) fn is_block_alone(text: &str) -> bool {
    let inside = text.trim().strip_prefix(OPENING);
    inside.is_some_and(|inside| {
        let closing = inside.find(CLOSING);
        closing.is_none_or(|at| at + CLOSING.len() == inside.len())
    })
}

/// Bytes of text kept of all blocks of an answer.
const MAX_KEPT: usize = 64 << 10;

#[derive(Default)]
pub(in crate::format) struct ContinuationScanner {
    /// Bytes of text so far.
    len: usize,
    inside: bool,
    /// How many characters of the next tag are matched.
    matched: usize,
    /// Where a possible opening tag begins.
    tag_start: usize,
    /// The ranges of blocks that later pieces may still reach into.
    hidden: Vec<Range<usize>>,
    /// The text of all blocks.
    kept: String,
    /// Characters of visible text before the first block.
    before_chars: Option<u32>,
    /// Characters of visible text so far.
    chars: u32,
    /// There is visible text other than white space.
    has_text: bool,
}

impl ContinuationScanner {
    /// Takes the next piece; returns its range.
    pub(in crate::format) fn push(&mut self, raw: &[u8]) -> Range<usize> {
        let begin = self.len;
        for character in TextWalk::new(raw) {
            let code = char::from_u32(character.code).unwrap_or(char::REPLACEMENT_CHARACTER);
            let end = begin + (character.at + character.len).min(raw.len());
            if self.inside {
                self.read_block(code, end);
            } else {
                self.find_block(code, begin + character.at);
            }
        }
        self.len = begin + raw.len();
        begin..self.len
    }

    fn find_block(&mut self, code: char, at: usize) {
        // `<` is only the first character of the tag, so a mismatch may begin another tag.
        if OPENING.as_bytes()[self.matched] as char != code {
            self.give_up();
        }
        if OPENING.as_bytes()[self.matched] as char != code {
            self.chars += 1;
            self.has_text |= !code.is_whitespace();
            return;
        }
        if self.matched == 0 {
            self.tag_start = at;
        }
        self.matched += 1;
        if self.matched == OPENING.len() {
            self.matched = 0;
            self.inside = true;
            self.hidden.push(self.tag_start..usize::MAX);
            self.before_chars.get_or_insert(self.chars);
            let separator = if self.kept.is_empty() { "" } else { "\n\n" };
            let kept = separator.chars().chain(OPENING.chars());
            kept.for_each(|character| self.keep_char(character));
        }
    }

    fn read_block(&mut self, code: char, end: usize) {
        self.keep_char(code);
        if CLOSING.as_bytes()[self.matched] as char != code {
            self.matched = 0;
        }
        if CLOSING.as_bytes()[self.matched] as char == code {
            self.matched += 1;
        }
        if self.matched == CLOSING.len() {
            self.matched = 0;
            self.inside = false;
            if let Some(block) = self.hidden.last_mut() {
                block.end = end;
            }
        }
    }

    fn keep_char(&mut self, character: char) {
        if self.kept.len() + character.len_utf8() <= MAX_KEPT {
            self.kept.push(character);
        }
    }

    /// Treats the beginning of an opening tag as text, since no more text comes or the scanner cannot wait for it. An
    /// unclosed block stays hidden.
    pub(in crate::format) fn give_up(&mut self) {
        if !self.inside {
            self.chars += self.matched as u32;
            self.has_text |= self.matched > 0;
            self.matched = 0;
        }
    }

    /// Ends a text. What follows is another text, and a tag does not continue in it.
    pub(in crate::format) fn end_text(&mut self) {
        self.give_up();
        if std::mem::take(&mut self.inside) {
            self.matched = 0;
            if let Some(block) = self.hidden.last_mut() {
                block.end = self.len;
            }
        }
    }

    /// Whether all text up to `end` is known to be visible or hidden.
    pub(in crate::format) const fn is_decided(&self, end: usize) -> bool {
        self.inside || self.matched == 0 || end <= self.tag_start
    }

    /// The visible part of the piece with this range. Pieces must be asked for in their order.
    pub(in crate::format) fn visible_part<'a>(
        &mut self,
        raw: &'a [u8],
        range: &Range<usize>,
    ) -> Cow<'a, [u8]> {
        self.hidden.retain(|block| block.end > range.start);
        if self.hidden.iter().all(|block| block.start >= range.end) {
            return raw.into();
        }
        let mut visible = Vec::with_capacity(raw.len());
        let mut from = range.start;
        for block in &self.hidden {
            let start = block.start.clamp(from, range.end);
            visible.extend_from_slice(&raw[from - range.start..start - range.start]);
            from = block.end.clamp(start, range.end);
        }
        visible.extend_from_slice(&raw[from - range.start..]);
        visible.into()
    }

    /// Joins all blocks so far into one; `None` if there was no block. `has_calls`: the answer has calls too.
    pub(in crate::format) fn build_block(&self, has_calls: bool) -> Option<ContinuationBlock> {
        Some(ContinuationBlock {
            before_chars: self.before_chars?,
            text: self.kept.as_str().into(),
            alone: !self.has_text && !has_calls,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::format::answer::continuation::{CLOSING, ContinuationScanner, MAX_KEPT, OPENING};

    fn take<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, ContinuationScanner) {
        let mut blocks = ContinuationScanner::default();
        let pieces: Vec<_> = pieces.into_iter().map(str::as_bytes).collect();
        let ranges: Vec<_> = pieces.iter().map(|piece| blocks.push(piece)).collect();
        blocks.give_up();
        let mut visible = Vec::new();
        for (piece, range) in pieces.into_iter().zip(ranges) {
            assert!(blocks.is_decided(range.end));
            visible.extend_from_slice(&blocks.visible_part(piece, &range));
        }
        (String::from_utf8(visible).unwrap(), blocks)
    }

    #[test]
    fn only_blocks_are_removed_from_the_text() {
        let check = |text: &str, left: &str, package: Option<(&str, u32, bool)>| {
            let (visible, blocks) = take([text]);
            assert_eq!(visible, left, "{text}");
            let found = blocks.build_block(false);
            let found = found.as_ref();
            let found = found.map(|found| (&*found.text, found.before_chars, found.alone));
            assert_eq!(found, package, "{text}");
        };
        let block = format!("{OPENING}a\\n\\u4f60{CLOSING}");
        let text = format!("{OPENING}a\n你{CLOSING}");
        check(&block, "", Some((&text, 0, true)));
        check(&format!("\\n{block} "), "\\n ", Some((&text, 1, true)));
        check(&format!("<<x{block}y"), "<<xy", Some((&text, 3, false)));
        let spelled = block.replace('<', "\\u003c").replace('/', "\\/");
        check(&spelled, "", Some((&text, 0, true)));
        let twice = format!("{text}\n\n{text}");
        check(&format!("{block}-{block}"), "-", Some((&twice, 0, false)));
        check("<continuation", "<continuation", None);
        check(OPENING, "", Some((OPENING, 0, true)));
        let unclosed = format!("x{OPENING}</cont<</continuation_packag");
        check(&unclosed, "x", Some((&unclosed[1..], 1, false)));
    }

    #[test]
    fn a_long_block_is_kept_to_its_bound() {
        let long = format!("{OPENING}{}{CLOSING}end", "x".repeat(2 * MAX_KEPT));
        let (visible, blocks) = take([&*long]);
        assert_eq!(visible, "end");
        assert_eq!(blocks.build_block(false).unwrap().text.len(), MAX_KEPT);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(parts in prop::collection::vec(prop_oneof![
            Just(OPENING), Just(CLOSING), Just("<"), Just("\\u003c"), Just("<cont"), Just(" "), Just("x\\n")
        ], 0..8), cuts in prop::collection::vec(0usize..5, 0..60)) {
            // Cut between characters: each piece of a stream is a whole JSON string.
            let text: String = parts.concat();
            let characters: Vec<_> = crate::json::text::TextWalk::new(text.as_bytes()).collect();
            let (whole, blocks) = take([&*text]);
            let mut pieces = Vec::new();
            let (mut from, mut at) = (0, 0);
            for cut in cuts {
                at = (at + cut).min(characters.len());
                let end = characters.get(at).map_or(text.len(), |character| character.at);
                pieces.push(&text[from..end]);
                from = end;
            }
            pieces.push(&text[from..]);
            let (cut, again) = take(pieces);
            prop_assert_eq!(cut, whole);
            prop_assert_eq!(again.build_block(false), blocks.build_block(false));
        }
    }
}
