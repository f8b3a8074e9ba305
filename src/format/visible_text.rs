//! The text that the client sees, over all answers of one response.

use std::borrow::Cow;

use super::{PrecedingText, ResponseSummarizer};
use crate::json::text::TextWalk;

/// What parts the texts of two answers, as JSON spells it.
const SEPARATOR: &[u8] = br"\n\n";

pub(super) struct VisibleText {
    chars: u32,
    /// The text so far ends with white space, or there is none.
    open: bool,
    /// Half a surrogate pair at the end.
    half: bool,
    /// Text of an earlier answer, and none yet of this one.
    fresh: bool,
    before: PrecedingText,
}

impl Default for VisibleText {
    fn default() -> Self {
        Self {
            chars: 0,
            open: true,
            half: false,
            fresh: false,
            before: PrecedingText::default(),
        }
    }
}

impl VisibleText {
    /// Takes what stands between the quotes of a text that goes to the client; gives it as it
    /// must go, parted from the text of the answer before.
    pub(super) fn push_text<'a>(
        &mut self,
        text: Cow<'a, [u8]>,
        listener: &mut ResponseSummarizer,
    ) -> Cow<'a, [u8]> {
        if text.is_empty() {
            return text;
        }
        if std::mem::take(&mut self.fresh) {
            let parts = !self.open;
            if parts {
                self.record_text(SEPARATOR, listener);
            }
            self.before = self.text_so_far(listener);
            if parts {
                self.record_text(&text, listener);
                return [SEPARATOR, &text].concat().into();
            }
        }
        self.record_text(&text, listener);
        text
    }

    /// The next answer begins.
    pub(super) fn begin_answer(&mut self, listener: &ResponseSummarizer) {
        self.before = self.text_so_far(listener);
        self.fresh = true;
    }

    /// What was seen before the last answer's own text.
    pub(super) const fn preceding_text(&self) -> PrecedingText {
        self.before
    }

    fn text_so_far(&self, listener: &ResponseSummarizer) -> PrecedingText {
        if self.chars == 0 {
            return PrecedingText::default();
        }
        PrecedingText {
            chars: self.chars,
            digest: listener.text_digest(),
        }
    }

    fn record_text(&mut self, raw: &[u8], listener: &mut ResponseSummarizer) {
        listener.add_text(raw);
        for character in TextWalk::new(raw) {
            let second = self.half && (0xDC00..=0xDFFF).contains(&character.code);
            self.chars = self.chars.saturating_add(u32::from(!second));
            self.half = (0xD800..=0xDBFF).contains(&character.code);
            self.open = char::from_u32(character.code).is_some_and(char::is_whitespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::VisibleText;
    use crate::{
        format::{PrecedingText, ResponseSummarizer},
        json::text::digest_text,
    };

    #[test]
    fn answers_are_parted_and_what_came_before_is_known() {
        let mut visible = VisibleText::default();
        let mut listener = ResponseSummarizer::default();
        let mut all = Vec::new();
        let mut say = |visible: &mut VisibleText, listener: &mut ResponseSummarizer, text: &str| {
            all.extend_from_slice(&visible.push_text(text.as_bytes().into(), listener));
            String::from_utf8(all.clone()).unwrap()
        };
        say(&mut visible, &mut listener, r"a\ud83d");
        say(&mut visible, &mut listener, r"\ude00");
        assert_eq!(visible.preceding_text(), PrecedingText::default());
        visible.begin_answer(&listener);
        visible.begin_answer(&listener);
        let before = |chars, text: &str| PrecedingText {
            chars,
            digest: digest_text(text.as_bytes()),
        };
        assert_eq!(visible.preceding_text(), before(2, "a😀"));
        say(&mut visible, &mut listener, "");
        assert_eq!(
            say(&mut visible, &mut listener, "b "),
            r"a\ud83d\ude00\n\nb "
        );
        assert_eq!(visible.preceding_text(), before(4, r"a😀\n\n"));
        visible.begin_answer(&listener);
        assert!(say(&mut visible, &mut listener, "c").ends_with("b c"));
        assert_eq!(visible.preceding_text(), before(6, r"a😀\n\nb "));
    }
}
