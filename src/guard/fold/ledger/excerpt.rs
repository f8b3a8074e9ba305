//! Short excerpts of messages.

/// Characters that are read for one line, white space included.
const MAX_READ: usize = 2_000;

/// A text as one line with single blanks. One of `max_chars` characters or more is cut, with an ellipsis.
pub(super) fn excerpt_line(text: impl IntoIterator<Item = char>, max_chars: usize) -> String {
    let (mut line, mut chars, mut gap) = (String::new(), 0, false);
    for c in text.into_iter().take(MAX_READ) {
        if c.is_whitespace() || c.is_control() {
            gap = chars > 0;
            continue;
        }
        if chars + 1 + usize::from(gap) >= max_chars {
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
    fn an_excerpt_is_one_line_within_its_length() {
        assert_eq!(excerpt_line(" a\n\n b\u{0}c ".chars(), 10), "a b c");
        assert_eq!(excerpt_line("abcdef".chars(), 5), "abcd…");
        assert_eq!(excerpt_line("abc def".chars(), 5), "abc…");
        assert_eq!(excerpt_line("字字字字".chars(), 3), "字字…");
        assert_eq!(excerpt_line("".chars(), 3), "");
        let long = excerpt_line("x ".repeat(500).chars(), 200);
        assert!(long.chars().count() <= 200);
    }
}
