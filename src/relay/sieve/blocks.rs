//! Continuation blocks in a text that comes in pieces.
//!
//! Works on what stands between the quotes of JSON strings: a tag is found however it is spelled
//! and cut. Held back is only what may be the beginning of the opening tag.

use crate::{json::text::Walk, relay::Package};

const OPENING: &str = "<continuation_package>";
const CLOSING: &str = "</continuation_package>";

/// Bytes of text kept of all blocks of an answer.
const MAX_KEPT: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Blocks {
    inside: bool,
    /// Characters of the tag looked for that were matched.
    matched: usize,
    /// The spelling of those, while it may be an opening tag.
    held: Vec<u8>,
    kept: String,
    /// Characters of visible text before the first block.
    before: Option<u32>,
    chars: u32,
    /// Something other than white space was said outside.
    said: bool,
}

impl Blocks {
    /// Takes the next piece; gives what the client may see.
    pub(super) fn push(&mut self, raw: &[u8]) -> Vec<u8> {
        let mut visible = Vec::with_capacity(raw.len());
        for character in Walk::new(raw) {
            let end = (character.at + character.len).min(raw.len());
            let spelled = &raw[character.at..end];
            let code = char::from_u32(character.code).unwrap_or(char::REPLACEMENT_CHARACTER);
            if self.inside {
                self.swallow(code);
            } else {
                self.look(code, spelled, &mut visible);
            }
        }
        visible
    }

    fn look(&mut self, code: char, spelled: &[u8], visible: &mut Vec<u8>) {
        // `<` stands at the beginning of the tag only: what does not go on begins anew.
        if OPENING.as_bytes()[self.matched] as char != code {
            self.release(visible);
        }
        if OPENING.as_bytes()[self.matched] as char != code {
            visible.extend_from_slice(spelled);
            self.chars += 1;
            self.said |= !code.is_whitespace();
            return;
        }
        self.matched += 1;
        self.held.extend_from_slice(spelled);
        if self.matched == OPENING.len() {
            self.matched = 0;
            self.held.clear();
            self.inside = true;
            self.before.get_or_insert(self.chars);
            if !self.kept.is_empty() {
                self.keep('\n');
                self.keep('\n');
            }
            OPENING.chars().for_each(|character| self.keep(character));
        }
    }

    fn swallow(&mut self, code: char) {
        self.keep(code);
        if CLOSING.as_bytes()[self.matched] as char != code {
            self.matched = 0;
        }
        if CLOSING.as_bytes()[self.matched] as char == code {
            self.matched += 1;
        }
        if self.matched == CLOSING.len() {
            self.matched = 0;
            self.inside = false;
        }
    }

    fn keep(&mut self, character: char) {
        if self.kept.len() + character.len_utf8() <= MAX_KEPT {
            self.kept.push(character);
        }
    }

    fn release(&mut self, visible: &mut Vec<u8>) {
        self.chars += self.matched as u32;
        self.said |= self.matched > 0;
        self.matched = 0;
        visible.append(&mut self.held);
    }

    /// The text is over: gives what was held and is no tag. A block that is still open stays out.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut visible = Vec::new();
        if !self.inside {
            self.release(&mut visible);
        }
        visible
    }

    pub(super) const fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The blocks that were taken out. `calls`: there were calls besides.
    pub(super) fn package(&self, calls: bool) -> Option<Package> {
        Some(Package {
            before_chars: self.before?,
            text: self.kept.as_str().into(),
            alone: !self.said && !calls,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Blocks, CLOSING, MAX_KEPT, OPENING};

    fn take<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, Blocks) {
        let mut blocks = Blocks::default();
        let mut visible = Vec::new();
        for piece in pieces {
            visible.extend(blocks.push(piece.as_bytes()));
            assert!(blocks.held.len() < 6 * OPENING.len());
        }
        visible.extend(blocks.finish());
        (String::from_utf8(visible).unwrap(), blocks)
    }

    #[test]
    fn blocks_go_and_all_else_stays() {
        let check = |text: &str, left: &str, package: Option<(&str, u32, bool)>| {
            let (visible, blocks) = take([text]);
            assert_eq!(visible, left, "{text}");
            let found = blocks.package(false);
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
        assert_eq!(blocks.package(false).unwrap().text.len(), MAX_KEPT);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(parts in prop::collection::vec(prop_oneof![
            Just(OPENING), Just(CLOSING), Just("<"), Just("\\u003c"), Just("<cont"), Just(" "), Just("x\\n")
        ], 0..8), cuts in prop::collection::vec(0usize..5, 0..60)) {
            // Cut between characters: each piece of a stream is a whole JSON string.
            let text: String = parts.concat();
            let characters: Vec<_> = crate::json::text::Walk::new(text.as_bytes()).collect();
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
            prop_assert_eq!(again.package(false), blocks.package(false));
        }
    }
}
