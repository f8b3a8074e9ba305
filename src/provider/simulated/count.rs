//! Tokens by a rule of the simulated provider's own.
//!
//! Text is split the way a byte-pair encoder splits it first: words with the space before them,
//! groups of up to three digits, runs of punctuation, runs of white space, single CJK characters.
//! A long word costs a token per piece. Deliberately not the guard's estimate, which goes by
//! characters per kind of text: what fits there must prove itself here.

/// Letters a word may have as one piece, and letters of each piece after it.
const WHOLE_WORD: u32 = 8;
const WORD_PIECE: u32 = 5;
/// Tokens of a text.
pub(super) fn text(text: &str) -> u32 {
    Pieces::of(text).map(|(_, tokens)| tokens).sum()
}

/// Where a text ends that may have `limit` tokens: a byte index at a piece's boundary.
pub(super) fn prefix(text: &str, limit: u32) -> usize {
    let (mut used, mut end) = (0u32, 0);
    for (piece, tokens) in Pieces::of(text) {
        used = used.saturating_add(tokens);
        if used > limit {
            break;
        }
        end += piece.len();
    }
    end
}

/// The pieces of a text, in order and without gaps, each with its tokens.
pub(super) struct Pieces<'a> {
    rest: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Space,
    Newline,
    /// One piece each, with its tokens.
    Alone(u32),
    Mark,
}

impl<'a> Pieces<'a> {
    pub(super) fn of(rest: &'a str) -> Self {
        Self { rest }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (&'a str, u32);

    fn next(&mut self) -> Option<Self::Item> {
        let mut characters = self.rest.char_indices().peekable();
        let (_, first) = characters.next()?;
        let mut class = class_of(first);
        // One space belongs to the word or mark after it.
        if first == ' '
            && let Some((_, after)) = characters
                .next_if(|(_, next)| matches!(class_of(*next), Class::Letter | Class::Mark))
        {
            class = class_of(after);
        }
        let (mut length, mut last) = (1u32, first);
        let longest = longest(class);
        while length < longest
            && let Some((_, next)) = characters.next_if(|(_, next)| {
                class_of(*next) == class && !(last.is_lowercase() && next.is_uppercase())
            })
        {
            (length, last) = (length + 1, next);
        }
        let end = characters.peek().map_or(self.rest.len(), |(at, _)| *at);
        let (piece, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some((piece, cost(class, first, length)))
    }
}

/// The most characters of one piece, so that no piece costs more than a few tokens.
fn longest(class: Class) -> u32 {
    match class {
        Class::Letter => 48,
        Class::Digit => 3,
        Class::Alone(_) => 1,
        Class::Space | Class::Newline => 16,
        Class::Mark => 12,
    }
}

fn cost(class: Class, first: char, length: u32) -> u32 {
    match class {
        Class::Letter if first.is_ascii() => {
            1 + length.saturating_sub(WHOLE_WORD).div_ceil(WORD_PIECE)
        }
        // Alphabets that the vocabulary knows less of.
        Class::Letter => length.div_ceil(3),
        Class::Mark => length.div_ceil(3),
        Class::Alone(tokens) => tokens,
        Class::Digit | Class::Space | Class::Newline => 1,
    }
}

fn class_of(character: char) -> Class {
    match character {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Digit,
        '\n' | '\r' => Class::Newline,
        '\u{0}'..='\u{7f}' if character.is_whitespace() => Class::Space,
        '\u{0}'..='\u{7f}' => Class::Mark,
        // Han, kana, Hangul and their punctuation.
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' => {
            Class::Alone(1)
        }
        '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ffef}' => Class::Alone(1),
        // Pictographs and rare characters fall apart into bytes.
        '\u{2600}'..='\u{27bf}' | '\u{10000}'.. => Class::Alone(2),
        _ if character.is_alphabetic() => Class::Letter,
        _ if character.is_whitespace() => Class::Space,
        _ => Class::Mark,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(text: &str) -> Vec<&str> {
        Pieces::of(text).map(|(piece, _)| piece).collect()
    }

    #[test]
    fn text_falls_into_words_digits_marks_and_characters() {
        assert_eq!(
            pieces("Hello world, 12345!"),
            ["Hello", " world", ",", " ", "123", "45", "!"]
        );
        assert_eq!(
            pieces("readFile(\"a\")"),
            ["read", "File", "(\"", "a", "\")"]
        );
        assert_eq!(pieces("    x\n\n\ty"), ["    ", "x", "\n\n", "\t", "y"]);
        assert_eq!(pieces("你好吗"), ["你", "好", "吗"]);
    }

    #[test]
    fn long_words_and_rare_characters_cost_more() {
        assert_eq!(text("word"), 1);
        assert_eq!(text("internationalisation"), 4);
        assert_eq!(text("🚢"), 2);
        assert_eq!(text("привет"), 2);
        assert_eq!(text(""), 0);
        assert!(text(&"x".repeat(10_000)) > 1_000);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_text(text in "\\PC{0,60}|[a-zA-Z0-9 .,\n]{0,200}") {
            prop_assert_eq!(pieces(&text).concat(), text);
        }

        #[test]
        fn a_prefix_keeps_its_limit(body in "[a-zA-Z0-9 .,你好\n]{0,200}", limit in 0u32..60) {
            let end = prefix(&body, limit);
            prop_assert!(text(&body[..end]) <= limit);
            prop_assert!(end == body.len() || text(&body) > limit);
        }
    }
}
