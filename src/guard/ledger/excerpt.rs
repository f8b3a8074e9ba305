//! Short excerpts of messages: their texts and the beginnings of these.

use crate::conversation::{Conversation, Item, texts::decode};

/// The text of a message, a line for each of its texts.
pub(super) fn content<'a>(
    conversation: &'a Conversation,
    message: &'a Item,
) -> impl Iterator<Item = char> + 'a {
    let texts = conversation.texts(message);
    texts.flat_map(|text| decode(conversation.raw(text)).chain(['\n']))
}

/// Characters that are read for one line, white space included.
const MAX_READ: usize = 2_000;

/// A text as one line, where that is shorter than `most` characters; else its beginning, with an
/// ellipsis.
pub(super) fn head(text: impl IntoIterator<Item = char>, most: usize) -> String {
    let (mut line, mut chars, mut gap) = (String::new(), 0, false);
    for c in text.into_iter().take(MAX_READ) {
        if c.is_whitespace() || c.is_control() {
            gap = chars > 0;
            continue;
        }
        if chars + 1 + usize::from(gap) >= most {
            line.push('…');
            break;
        }
        if std::mem::take(&mut gap) {
            line.push(' ');
            chars += 1;
        }
        line.push(c);
        chars += 1;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_one_line_within_their_length() {
        assert_eq!(head(" a\n\n b\u{0}c ".chars(), 10), "a b c");
        assert_eq!(head("abcdef".chars(), 5), "abcd…");
        assert_eq!(head("abc def".chars(), 5), "abc…");
        assert_eq!(head("字字字字".chars(), 3), "字字…");
        assert_eq!(head("".chars(), 3), "");
        let long = head("x ".repeat(500).chars(), 200);
        assert!(long.chars().count() <= 200);
    }
}
