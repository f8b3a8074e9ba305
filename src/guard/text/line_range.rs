//! Ranges of lines as models write them.

/// Reads `120-180`, `120`, `120-`, `-180` or `[120, 180]`: the first and the last line, counted from 1. The two numbers may
/// be in either order. `None` without a number.
pub(crate) fn parse_lines(lines: &str) -> Option<(usize, usize)> {
    let numbers = lines.split(|c: char| !c.is_ascii_digit());
    let mut numbers = numbers
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.parse().unwrap_or(usize::MAX));
    let trimmed = lines.trim();
    let (first, last) = match (numbers.next()?, numbers.next()) {
        (first, Some(last)) => (first, last),
        (first, None) if trimmed.ends_with('-') => (first, usize::MAX),
        (last, None) if trimmed.starts_with('-') => (1, last),
        (only, None) => (only, only),
    };
    Some((first.min(last).max(1), first.max(last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_in_many_spellings() {
        for (lines, expected) in [
            ("120-180", (120, 180)),
            ("180-120", (120, 180)),
            ("L120 to L180", (120, 180)),
            ("[120,180]", (120, 180)),
            ("7", (7, 7)),
            ("7-", (7, usize::MAX)),
            ("-7", (1, 7)),
            ("0-3", (1, 3)),
            ("1-99999999999999999999999", (1, usize::MAX)),
        ] {
            assert_eq!(parse_lines(lines), Some(expected), "{lines}");
        }
        assert!(parse_lines("all").is_none());
    }
}
