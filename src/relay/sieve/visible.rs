//! The text that the client sees, over all answers of one response.

use crate::{
    json::text::{Digester, Walk},
    relay::Before,
};

/// What parts the texts of two answers, as JSON spells it.
const PARTED: &[u8] = br"\n\n";

pub(super) struct Visible {
    digester: Digester,
    chars: u32,
    /// The text so far ends with white space.
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
            digester: Digester::new(),
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
    pub(super) fn say(&mut self, text: Vec<u8>) -> Vec<u8> {
        if text.is_empty() {
            return text;
        }
        let mut said = text;
        if std::mem::take(&mut self.fresh) {
            if !self.open {
                self.add(PARTED);
                said = [PARTED, &said].concat();
                self.before = self.now();
                self.add(&said[PARTED.len()..]);
                return said;
            }
            self.before = self.now();
        }
        self.add(&said);
        said
    }

    /// The next answer begins.
    pub(super) fn turn(&mut self) {
        self.before = self.now();
        self.fresh = true;
    }

    /// What was seen before the last answer's own text.
    pub(super) const fn before(&self) -> Before {
        self.before
    }

    fn now(&self) -> Before {
        if self.chars == 0 {
            return Before::default();
        }
        Before {
            chars: self.chars,
            digest: self.digester.clone().finish(),
        }
    }

    fn add(&mut self, raw: &[u8]) {
        self.digester.push(raw);
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
    use crate::{json::text::digest, relay::Before};

    #[test]
    fn answers_are_parted_and_what_came_before_is_known() {
        let mut visible = Visible::default();
        let mut all = Vec::new();
        let mut say = |visible: &mut Visible, text: &str| {
            all.extend(visible.say(text.as_bytes().to_vec()));
            String::from_utf8(all.clone()).unwrap()
        };
        say(&mut visible, r"a\ud83d");
        say(&mut visible, r"\ude00");
        assert_eq!(visible.before(), Before::default());
        visible.turn();
        visible.turn();
        let before = |chars, text: &str| Before {
            chars,
            digest: digest(text.as_bytes()),
        };
        assert_eq!(visible.before(), before(2, "a😀"));
        say(&mut visible, "");
        assert_eq!(say(&mut visible, "b "), r"a\ud83d\ude00\n\nb ");
        assert_eq!(visible.before(), before(4, r"a😀\n\n"));
        visible.turn();
        assert!(say(&mut visible, "c").ends_with("b c"));
        assert_eq!(visible.before(), before(6, r"a😀\n\nb "));
    }
}
