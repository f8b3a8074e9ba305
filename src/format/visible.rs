//! The text that the client sees, over all answers of one response.

use std::borrow::Cow;

use super::{Before, Listener};
use crate::json::text::Walk;

/// What parts the texts of two answers, as JSON spells it.
const PARTED: &[u8] = br"\n\n";

pub(super) struct Visible {
    chars: u32,
    /// The text so far ends with white space, or there is none.
    open: bool,
    /// Half a surrogate pair at the end.
    half: bool,
    /// Text of an earlier answer, and none yet of this one.
    fresh: bool,
    before: Before,
}

impl Default for Visible {
    fn default() -> Self {
        Self {
            chars: 0,
            open: true,
            half: false,
            fresh: false,
            before: Before::default(),
        }
    }
}

impl Visible {
    /// Takes what stands between the quotes of a text that goes to the client; gives it as it
    /// must go, parted from the text of the answer before.
    pub(super) fn say<'a>(
        &mut self,
        text: Cow<'a, [u8]>,
        listener: &mut Listener,
    ) -> Cow<'a, [u8]> {
        if text.is_empty() {
            return text;
        }
        if std::mem::take(&mut self.fresh) {
            let parts = !self.open;
            if parts {
                self.add(PARTED, listener);
            }
            self.before = self.now(listener);
            if parts {
                self.add(&text, listener);
                return [PARTED, &text].concat().into();
            }
        }
        self.add(&text, listener);
        text
    }

    /// The next answer begins.
    pub(super) fn begin_answer(&mut self, listener: &Listener) {
        self.before = self.now(listener);
        self.fresh = true;
    }

    /// What was seen before the last answer's own text.
    pub(super) const fn before(&self) -> Before {
        self.before
    }

    fn now(&self, listener: &Listener) -> Before {
        if self.chars == 0 {
            return Before::default();
        }
        Before {
            chars: self.chars,
            digest: listener.text_digest(),
        }
    }

    fn add(&mut self, raw: &[u8], listener: &mut Listener) {
        listener.hear_text(raw);
        for character in Walk::new(raw) {
            let second = self.half && (0xDC00..=0xDFFF).contains(&character.code);
            self.chars = self.chars.saturating_add(u32::from(!second));
            self.half = (0xD800..=0xDBFF).contains(&character.code);
            self.open = char::from_u32(character.code).is_some_and(char::is_whitespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Visible;
    use crate::{
        format::{Before, Listener},
        json::text::digest,
    };

    #[test]
    fn answers_are_parted_and_what_came_before_is_known() {
        let mut visible = Visible::default();
        let mut listener = Listener::default();
        let mut all = Vec::new();
        let mut say = |visible: &mut Visible, listener: &mut Listener, text: &str| {
            all.extend_from_slice(&visible.say(text.as_bytes().into(), listener));
            String::from_utf8(all.clone()).unwrap()
        };
        say(&mut visible, &mut listener, r"a\ud83d");
        say(&mut visible, &mut listener, r"\ude00");
        assert_eq!(visible.before(), Before::default());
        visible.begin_answer(&listener);
        visible.begin_answer(&listener);
        let before = |chars, text: &str| Before {
            chars,
            digest: digest(text.as_bytes()),
        };
        assert_eq!(visible.before(), before(2, "a😀"));
        say(&mut visible, &mut listener, "");
        assert_eq!(
            say(&mut visible, &mut listener, "b "),
            r"a\ud83d\ude00\n\nb "
        );
        assert_eq!(visible.before(), before(4, r"a😀\n\n"));
        visible.begin_answer(&listener);
        assert!(say(&mut visible, &mut listener, "c").ends_with("b c"));
        assert_eq!(visible.before(), before(6, r"a😀\n\nb "));
    }
}
