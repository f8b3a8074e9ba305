//! Continuation blocks in a text that comes in pieces.
//!
//! Works on what stands between the quotes of JSON strings: a tag is found however it is spelled
//! and cut. Places are counted in bytes of the whole text.

use std::{borrow::Cow, ops::Range};

use super::ContinuationBlock;
use crate::json::text::TextWalk;

const OPENING: &str = "<continuation_package>";
const CLOSING: &str = "</continuation_package>";

/// Bytes of text kept of all blocks of an answer.
const MAX_KEPT: usize = 64 << 10;

#[derive(Default)]
pub(super) struct ContinuationScanner {
    /// Bytes of text so far.
    at: usize,
    inside: bool,
    /// Characters of the tag looked for that were matched.
    matched: usize,
    /// Where the tag begins that may be an opening one.
    tag: usize,
    /// Where blocks lie that may not have gone out of the text yet.
    hidden: Vec<Range<usize>>,
    kept: String,
    /// Characters of visible text before the first block.
    before: Option<u32>,
    chars: u32,
    /// Something other than white space was said outside.
    has_text: bool,
}

impl ContinuationScanner {
    /// Takes the next piece; gives its place.
    pub(super) fn push(&mut self, raw: &[u8]) -> Range<usize> {
        let begin = self.at;
        for character in TextWalk::new(raw) {
            let code = char::from_u32(character.code).unwrap_or(char::REPLACEMENT_CHARACTER);
            let end = begin + (character.at + character.len).min(raw.len());
            if self.inside {
                self.read_block(code, end);
            } else {
                self.find_block(code, begin + character.at);
            }
        }
        self.at = begin + raw.len();
        begin..self.at
    }

    fn find_block(&mut self, code: char, at: usize) {
        // `<` stands at the beginning of the tag only: what does not go on begins anew.
        if OPENING.as_bytes()[self.matched] as char != code {
            self.give_up();
        }
        if OPENING.as_bytes()[self.matched] as char != code {
            self.chars += 1;
            self.has_text |= !code.is_whitespace();
            return;
        }
        if self.matched == 0 {
            self.tag = at;
        }
        self.matched += 1;
        if self.matched == OPENING.len() {
            self.matched = 0;
            self.inside = true;
            self.hidden.push(self.tag..usize::MAX);
            self.before.get_or_insert(self.chars);
            if !self.kept.is_empty() {
                self.keep_char('\n');
                self.keep_char('\n');
            }
            OPENING
                .chars()
                .for_each(|character| self.keep_char(character));
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

    /// What may be an opening tag is taken for text: no more text comes, or it cannot be waited for. A
    /// block that is still open stays hidden.
    pub(super) fn give_up(&mut self) {
        if !self.inside {
            self.chars += self.matched as u32;
            self.has_text |= self.matched > 0;
            self.matched = 0;
        }
    }

    /// Whether all of the text before a place is known to be visible or not.
    pub(super) const fn is_decided(&self, end: usize) -> bool {
        self.inside || self.matched == 0 || end <= self.tag
    }

    /// What the client may see of a piece that lay at this place. Asked for in the order of the pieces.
    pub(super) fn visible_part<'a>(
        &mut self,
        raw: &'a [u8],
        place: &Range<usize>,
    ) -> Cow<'a, [u8]> {
        self.hidden.retain(|block| block.end > place.start);
        if self.hidden.iter().all(|block| block.start >= place.end) {
            return raw.into();
        }
        let mut visible = Vec::with_capacity(raw.len());
        let mut from = place.start;
        for block in &self.hidden {
            let start = block.start.clamp(from, place.end);
            visible.extend_from_slice(&raw[from - place.start..start - place.start]);
            from = block.end.clamp(start, place.end);
        }
        visible.extend_from_slice(&raw[from - place.start..]);
        visible.into()
    }

    /// The blocks that were taken out. `calls`: there were calls besides.
    pub(super) fn build_block(&self, calls: bool) -> Option<ContinuationBlock> {
        Some(ContinuationBlock {
            before_chars: self.before?,
            text: self.kept.as_str().into(),
            alone: !self.has_text && !calls,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CLOSING, ContinuationScanner, MAX_KEPT, OPENING};

    fn take<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, ContinuationScanner) {
        let mut blocks = ContinuationScanner::default();
        let pieces: Vec<_> = pieces.into_iter().map(str::as_bytes).collect();
        let places: Vec<_> = pieces.iter().map(|piece| blocks.push(piece)).collect();
        blocks.give_up();
        let mut visible = Vec::new();
        for (piece, place) in pieces.into_iter().zip(places) {
            assert!(blocks.is_decided(place.end));
            visible.extend_from_slice(&blocks.visible_part(piece, &place));
        }
        (String::from_utf8(visible).unwrap(), blocks)
    }

    #[test]
    fn blocks_go_and_all_else_stays() {
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
