//! The text that the client sees, over all answers of one response.
//!
//! A blank line is added between the texts of two answers, unless the first one ends with white space, or the format
//! keeps the texts apart.

use std::borrow::Cow;

use crate::{
    format::{PrecedingText, ResponseSummarizer},
    json::text::TextWalk,
};

/// A blank line, as JSON spells it.
const SEPARATOR: &[u8] = br"\n\n";

#[derive(Default)]
pub(in crate::format) struct VisibleText {
    chars: u32,
    /// The last character is not white space.
    needs_separator: bool,
    /// The text ends with the first half of a surrogate pair.
    ends_with_half: bool,
    /// The format keeps the texts of two answers apart, without a blank line.
    is_apart: bool,
    /// The answer is not the first one, and has no text yet.
    is_new_answer: bool,
    /// The text before the text of the last answer.
    pub(in crate::format) preceding: PrecedingText,
}

impl VisibleText {
    /// `is_apart`: the format keeps the texts of two answers apart.
    pub(in crate::format) fn new(is_apart: bool) -> Self {
        Self {
            is_apart,
            ..Self::default()
        }
    }

    /// Takes the raw content of a text for the client; returns it, separated from the text of the
    /// answer before.
    pub(in crate::format) fn push_text<'a>(
        &mut self,
        text: Cow<'a, [u8]>,
        summarizer: &mut ResponseSummarizer,
    ) -> Cow<'a, [u8]> {
        if text.is_empty() {
            return text;
        }
        let begins_answer = std::mem::take(&mut self.is_new_answer);
        let needs_separator = begins_answer && self.needs_separator && !self.is_apart;
        if needs_separator {
            self.record_text(SEPARATOR, summarizer);
        }
        if begins_answer {
            self.preceding = self.text_so_far(summarizer);
        }
        self.record_text(&text, summarizer);
        if needs_separator {
            [SEPARATOR, &text].concat().into()
        } else {
            text
        }
    }

    pub(in crate::format) fn begin_answer(&mut self, summarizer: &ResponseSummarizer) {
        self.preceding = self.text_so_far(summarizer);
        self.is_new_answer = true;
    }

    /// Characters of the last answer's text so far.
    pub(in crate::format) const fn answer_chars(&self) -> u32 {
        self.chars.saturating_sub(self.preceding.chars)
    }

    fn text_so_far(&self, summarizer: &ResponseSummarizer) -> PrecedingText {
        match self.chars {
            0 => PrecedingText::default(),
            chars => PrecedingText {
                chars,
                digest: summarizer.text_digest(),
            },
        }
    }

    fn record_text(&mut self, raw: &[u8], summarizer: &mut ResponseSummarizer) {
        summarizer.add_text(raw);
        for character in TextWalk::new(raw) {
            let ends_pair = self.ends_with_half && (0xDC00..=0xDFFF).contains(&character.code);
            self.chars = self.chars.saturating_add(u32::from(!ends_pair));
            self.ends_with_half = (0xD800..=0xDBFF).contains(&character.code);
            let is_space = char::from_u32(character.code).is_some_and(char::is_whitespace);
            self.needs_separator = !is_space;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        format::{PrecedingText, ResponseSummarizer, answer::visible_text::VisibleText},
        json::text::digest_text,
    };

    #[test]
    fn texts_of_answers_are_separated_and_the_preceding_text_is_known() {
        let mut visible = VisibleText::default();
        let mut summarizer = ResponseSummarizer::default();
        let mut all = Vec::new();
        let mut push =
            |visible: &mut VisibleText, summarizer: &mut ResponseSummarizer, text: &str| {
                all.extend_from_slice(&visible.push_text(text.as_bytes().into(), summarizer));
                String::from_utf8(all.clone()).unwrap()
            };
        push(&mut visible, &mut summarizer, r"a\ud83d");
        push(&mut visible, &mut summarizer, r"\ude00");
        assert_eq!(visible.preceding, PrecedingText::default());
        visible.begin_answer(&summarizer);
        visible.begin_answer(&summarizer);
        let before = |chars, text: &str| PrecedingText {
            chars,
            digest: digest_text(text.as_bytes()),
        };
        assert_eq!(visible.preceding, before(2, "a😀"));
        push(&mut visible, &mut summarizer, "");
        assert_eq!(
            push(&mut visible, &mut summarizer, "b "),
            r"a\ud83d\ude00\n\nb "
        );
        assert_eq!(visible.preceding, before(4, r"a😀\n\n"));
        visible.begin_answer(&summarizer);
        assert!(push(&mut visible, &mut summarizer, "c").ends_with("b c"));
        assert_eq!(visible.preceding, before(6, r"a😀\n\nb "));
    }
}
