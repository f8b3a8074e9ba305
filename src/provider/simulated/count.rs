//! Tokens by a rule of the simulated provider's own.
//!
//! Text is split the way a byte-pair encoder splits it first: words with the space before them,
//! groups of up to three digits, runs of punctuation, runs of white space, single CJK characters.
//! A long word costs a token per piece. Deliberately not the guard's estimate, which goes by
//! characters per kind of text, so that a mistake in the estimate shows here.

/// Letters that a word may have as one token, and letters of each token after it.
const WHOLE_WORD: usize = 8;
const WORD_PIECE: usize = 5;

/// Tokens of a text.
pub(super) fn count_tokens(text: &str) -> u32 {
    Pieces(text).map(|(_, tokens)| tokens).sum()
}

/// Where a text ends that may have `limit` tokens: a byte index at a piece's boundary.
pub(super) fn find_end(text: &str, limit: u32) -> usize {
    let (mut used, mut end) = (0u32, 0);
    for (piece, tokens) in Pieces(text) {
        used = used.saturating_add(tokens);
        if used > limit {
            break;
        }
        end += piece.len();
    }
    end
}

/// The pieces of a text, in order and without gaps, each with its tokens.
pub(super) struct Pieces<'a>(pub(super) &'a str);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Space,
    /// Han, kana, Hangul: a token each.
    Ideograph,
    /// Pictographs and rare characters fall apart into bytes.
    Rare,
    Mark,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (&'a str, u32);

    fn next(&mut self) -> Option<Self::Item> {
        let mut characters = self.0.char_indices().peekable();
        let mut class = classify(characters.next()?.1);
        // One space belongs to the word or mark after it.
        if self.0.starts_with(' ')
            && let Some((_, after)) = characters
                .next_if(|(_, next)| matches!(classify(*next), Class::Letter | Class::Mark))
        {
            class = classify(after);
        }
        let mut length = 1usize;
        // No piece costs more than a few tokens.
        let longest = match class {
            Class::Letter => 48,
            Class::Digit => 3,
            Class::Ideograph | Class::Rare => 1,
            Class::Space => 16,
            Class::Mark => 12,
        };
        while length < longest
            && characters
                .next_if(|(_, it)| classify(*it) == class)
                .is_some()
        {
            length += 1;
        }
        let end = characters.peek().map_or(self.0.len(), |(at, _)| *at);
        let (piece, rest) = self.0.split_at(end);
        self.0 = rest;
        let tokens = match class {
            Class::Letter if piece.is_ascii() => {
                1 + length.saturating_sub(WHOLE_WORD).div_ceil(WORD_PIECE)
            }
            // Alphabets that the vocabulary knows less of.
            Class::Letter | Class::Mark => length.div_ceil(3),
            Class::Digit | Class::Space | Class::Ideograph => 1,
            Class::Rare => 2,
        };
        Some((piece, tokens as u32))
    }
}

fn classify(character: char) -> Class {
    match character {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Digit,
        '\u{1100}'..='\u{11ff}'
        | '\u{2e80}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff00}'..='\u{ffef}' => Class::Ideograph,
        '\u{2600}'..='\u{27bf}' | '\u{10000}'.. => Class::Rare,
        _ if character.is_whitespace() => Class::Space,
        _ if character.is_alphabetic() => Class::Letter,
        _ => Class::Mark,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(text: &str) -> Vec<&str> {
        Pieces(text).map(|(piece, _)| piece).collect()
    }

    #[test]
    fn text_falls_into_words_digits_marks_and_characters() {
        assert_eq!(
            pieces("Hello world, 12345!"),
            ["Hello", " world", ",", " ", "123", "45", "!"]
        );
        assert_eq!(pieces("    x\n\n\ty"), ["    ", "x", "\n\n\t", "y"]);
        assert_eq!(pieces("你好吗"), ["你", "好", "吗"]);
    }

    #[test]
    fn long_words_and_rare_characters_cost_more() {
        assert_eq!(count_tokens("word"), 1);
        assert_eq!(count_tokens("internationalisation"), 4);
        assert_eq!(count_tokens("🚢"), 2);
        assert_eq!(count_tokens("привет"), 2);
        assert_eq!(count_tokens(""), 0);
        assert!(count_tokens(&"x".repeat(10_000)) > 1_000);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_text(text in "\\PC{0,60}|[a-zA-Z0-9 .,\n]{0,200}") {
            prop_assert_eq!(pieces(&text).concat(), text);
        }

        #[test]
        fn a_prefix_keeps_its_limit(text in "[a-zA-Z0-9 .,你好\n]{0,200}", limit in 0u32..60) {
            let end = find_end(&text, limit);
            prop_assert!(count_tokens(&text[..end]) <= limit);
            prop_assert!(end == text.len() || count_tokens(&text) > limit);
        }
    }
}
