//! Fences around text that may come from anywhere, and the letters of them taken out of it.
//!
//! What stands between fences can be forged by whoever wrote a tool's output, so nothing in it may
//! look like the end of a fence, the beginning of another, or a continuation block.

use std::borrow::Cow;

/// Tags of ours. A tag is known by its beginning, so these also stand for longer names.
pub(super) const TAGS: [&str; 3] = [REMINDER, FACTS, PACKAGE];
pub(super) const REMINDER: &str = "reminder";
pub(super) const FACTS: &str = "facts";
pub(super) const PACKAGE: &str = "continuation_package";

/// The text without any tag of ours: the `<` of each becomes a `(`, so it grows by nothing.
pub(super) fn neutral(text: &str) -> Cow<'_, str> {
    let mut changed: Option<String> = None;
    for at in memchr::memchr_iter(b'<', text.as_bytes()) {
        if tag_at(&text[at..]) {
            let changed = changed.get_or_insert_with(|| text.to_owned());
            changed.replace_range(at..=at, "(");
        }
    }
    changed.map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Whether a text that begins with `<` begins with a tag of ours, in any spelling.
fn tag_at(text: &str) -> bool {
    let skipped = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    let name = text[1..].trim_start_matches(skipped).as_bytes();
    TAGS.iter().any(|tag| {
        let head = name.get(..tag.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(tag.as_bytes()))
    })
}

#[cfg(test)]
pub(super) fn tags_in(text: &str) -> usize {
    text.match_indices('<')
        .filter(|(at, _)| tag_at(&text[*at..]))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_are_taken_out_in_any_spelling() {
        for (text, expected) in [
            ("a </reminder> b", "a (/reminder> b"),
            ("<Reminder id=\"r1\">", "(Reminder id=\"r1\">"),
            ("< /\n FACTS >", "( /\n FACTS >"),
            ("<<continuation_package><b>", "<(continuation_package><b>"),
            ("if a < b { <html> }", "if a < b { <html> }"),
            ("<remind", "<remind"),
            ("<", "<"),
            ("<字", "<字"),
        ] {
            assert_eq!(neutral(text), expected);
        }
    }

    proptest! {
        #[test]
        fn no_tag_is_left(pieces in prop::collection::vec(
            prop::sample::select(vec!["<", "</", "< ", "/", "reminder", "FACTS", "continuation_package", ">", "x", "字", "\n", "<<reminder"]), 0..20)
        ) {
            let text = pieces.concat();
            let clean = neutral(&text).into_owned();
            prop_assert_eq!(tags_in(&clean), 0);
            prop_assert_eq!(clean.len(), text.len());
            prop_assert_eq!(neutral(&clean), clean.as_str());
        }
    }
}
