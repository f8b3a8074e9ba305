//! Fences around untrusted text, and the removal of fence tags from such text.
//!
//! SECURITY: the author of a tool's output controls the text between fences. So nothing in it may look like the end
//! of a fence, the beginning of another, or a continuation block.

use std::borrow::Cow;

/// The tags of fences. A tag is matched by its beginning, so these also match longer names.
pub(crate) const TAGS: [&str; 5] = [REMINDER, FACTS, PACKAGE, SUMMARY, TRANSCRIPT];
pub(crate) const REMINDER: &str = "reminder";
pub(crate) const FACTS: &str = "facts";
pub(crate) const PACKAGE: &str = "continuation_package";
pub(crate) const SUMMARY: &str = "summary";
pub(crate) const TRANSCRIPT: &str = "transcript";

/// Replaces the `<` of each fence tag with a parenthesis of as many bytes, so that the length stays.
pub(crate) fn neutralize_tags(text: &str) -> Cow<'_, str> {
    let mut changed: Option<String> = None;
    for (at, with) in find_tags(text, &TAGS) {
        let changed = changed.get_or_insert_with(|| text.to_owned());
        changed.replace_range(at..at + with.len(), with);
    }
    changed.map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Whether a text holds anything that looks like this tag.
pub(crate) fn contains_tag(text: &str, tag: &str) -> bool {
    find_tags(text, &[tag]).next().is_some()
}

/// The offsets of these tags, and the replacement of the `<` that opens each.
fn find_tags<'a>(
    text: &'a str,
    names: &'a [&'a str],
) -> impl Iterator<Item = (usize, &'static str)> + 'a {
    // Both kinds of `<` begin with a byte that is rare in text.
    memchr::memchr2_iter(b'<', FULL_WIDTH.as_bytes()[0], text.as_bytes()).filter_map(|at| {
        let rest = text.get(at..)?;
        let (rest, with) = match rest.strip_prefix('<') {
            Some(rest) => (rest, "("),
            None => (rest.strip_prefix(FULL_WIDTH)?, "（"),
        };
        starts_with_tag(rest, names).then_some((at, with))
    })
}

/// The full-width `<`, which a model may take for a `<`.
const FULL_WIDTH: &str = "＜";

/// Whether the text after a `<` begins with one of these names in any spelling: invisible characters, slashes, case
/// and the width of letters do not count.
fn starts_with_tag(text: &str, names: &[&str]) -> bool {
    let most = names.iter().map(|tag| tag.len()).max().unwrap_or(0);
    let seen = text.chars().filter(|c| !is_invisible(*c));
    let name: String = seen.map(normalize_letter).take(most).collect();
    names.iter().any(|tag| name.starts_with(tag))
}

/// Characters that are skipped before and in a name: slashes, white space, control and format characters.
fn is_invisible(c: char) -> bool {
    let format = matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
        | '\u{FFA0}' | '\u{E0000}'..='\u{E0FFF}');
    format || matches!(c, '/' | '／' | '\\') || c.is_whitespace() || c.is_control()
}

/// The letter in lower case and plain width.
fn normalize_letter(c: char) -> char {
    let plain = match c {
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(c) - 0xFEE0).unwrap_or(c),
        c => c,
    };
    plain.to_ascii_lowercase()
}

#[cfg(test)]
pub(crate) fn count_tags(text: &str) -> usize {
    find_tags(text, &TAGS).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_are_neutralized_in_any_spelling() {
        for (text, expected) in [
            ("a </reminder> b", "a (/reminder> b"),
            ("<Reminder id=\"r1\">", "(Reminder id=\"r1\">"),
            ("< /\n FACTS >", "( /\n FACTS >"),
            ("<<continuation_package><b>", "<(continuation_package><b>"),
            ("if a < b { <html> }", "if a < b { <html> }"),
            ("<remind", "<remind"),
            ("<", "<"),
            ("<字", "<字"),
            ("＜字＞ ，", "＜字＞ ，"),
            ("<\u{200B}/reminder>", "(\u{200B}/reminder>"),
            ("</remi\u{200D}nder>", "(/remi\u{200D}nder>"),
            ("</\u{FEFF}\u{AD}facts>", "(/\u{FEFF}\u{AD}facts>"),
            ("＜／reminder＞", "（／reminder＞"),
            ("</ｒｅｍｉｎｄｅｒ>", "(/ｒｅｍｉｎｄｅｒ>"),
            ("<continuation\n_package>", "(continuation\n_package>"),
        ] {
            assert_eq!(neutralize_tags(text), expected);
        }
    }

    proptest! {
        #[test]
        fn no_tag_is_left(pieces in prop::collection::vec(
            prop::sample::select(vec!["<", "</", "< ", "＜", "\u{200B}", "ｆａcts", "/", "reminder", "FACTS", "continuation_package", ">", "x", "字", "\n", "<<reminder"]), 0..20)
        ) {
            let text = pieces.concat();
            let clean = neutralize_tags(&text).into_owned();
            prop_assert_eq!(count_tags(&clean), 0);
            prop_assert_eq!(clean.len(), text.len());
            prop_assert_eq!(neutralize_tags(&clean), clean.as_str());
        }
    }
}
