//! Finds a wording in a text, and reads the numbers in it.
//!
//! A template is text with holes: `maximum context length is {window} tokens`. It begins with text; a
//! hole takes one whole number, which `{_}` ignores; `{*}` takes up to [`MAX_GAP`] characters, or none.

use super::Overflow;

/// Characters that `{*}` stands for, at most.
const MAX_GAP: usize = 40;

/// Whether the wording is in the text.
pub(super) fn is_in_text(template: &str, text: &str) -> bool {
    find_first_match(template, text).is_some()
}

/// Records the numbers of the wording that are not known yet.
pub(super) fn read_numbers(template: &str, text: &str, known: &mut Overflow) {
    for (name, number) in find_first_match(template, text).into_iter().flatten() {
        if let Some(figure) = known.figure_mut(name) {
            *figure = figure.or(number);
        }
    }
}

/// A hole's name and its number.
type Hole<'t> = (&'t str, Option<u32>);

/// The holes of the wording's first match in the text.
fn find_first_match<'t>(template: &'t str, text: &str) -> Option<Vec<Hole<'t>>> {
    let head = template.split('{').next()?;
    let mut starts = text.match_indices(head);
    starts.find_map(|(start, _)| match_at_start(template, text.get(start..)?))
}

/// The holes where the text begins with the wording.
fn match_at_start<'t>(mut template: &'t str, mut text: &str) -> Option<Vec<Hole<'t>>> {
    let mut holes = Vec::new();
    while let Some((literal, rest)) = template.split_once('{') {
        let (name, rest) = rest.split_once('}')?;
        let text_after = text.strip_prefix(literal)?;
        if name == "*" {
            let ends = text_after.char_indices().map(|(end, _)| end);
            let mut ends = ends.chain([text_after.len()]).take(MAX_GAP + 1);
            let others = ends.find_map(|end| match_at_start(rest, &text_after[end..]))?;
            holes.extend(others);
            return Some(holes);
        }
        let (number, after) = parse_number(text_after)?;
        holes.push((name, number));
        (template, text) = (rest, after);
    }
    text.starts_with(template).then_some(holes)
}

/// A whole number at the start of a text, `1234` or `1,234`, and the rest. A number too large for a
/// count of tokens is read as `None`.
fn parse_number(text: &str) -> Option<(Option<u32>, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut end = digits(text);
    if end == 0 {
        return None;
    }
    if end <= 3 {
        while text[end..].starts_with(',') && digits(&text[end + 1..]) == 3 {
            end += 4;
        }
    }
    let mut after = text[end..].chars();
    match after.next() {
        // `128k`, or a fraction: no count.
        Some(next) if next.is_alphanumeric() => return None,
        Some('.') if after.next().is_some_and(|next| next.is_ascii_digit()) => return None,
        _ => {}
    }
    let plain = text[..end].replace(',', "");
    Some((plain.parse().ok(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::{Overflow, find_first_match, is_in_text, read_numbers};

    #[test]
    fn numbers_are_read_whole_or_not_at_all() {
        let check = |text: &str, window: Option<Option<u32>>| {
            let found = find_first_match("of {window}", text);
            assert_eq!(found.map(|holes| holes[0].1), window, "{text}");
        };
        check("of 8192", Some(Some(8_192)));
        check("of 8192.", Some(Some(8_192)));
        check("of 8192, however", Some(Some(8_192)));
        check("of 131,072 tokens", Some(Some(131_072)));
        check("of 1,048,576", Some(Some(1_048_576)));
        check("of 99999999999", Some(None));
        check("of 8192.5", None);
        check("of 128k", None);
        check("of none", None);
        check("out of it, or of 7", Some(Some(7)));
        check("of 1,20", Some(Some(1)));
    }

    #[test]
    fn every_hole_must_match() {
        let row = "length {prompt} exceeds {limit} tokens";
        let text = "the length 12 exceeds the length 13 exceeds 10 tokens";
        let mut found = Overflow::default();
        read_numbers(row, text, &mut found);
        let expected = Overflow {
            prompt_tokens: Some(13),
            prompt_limit: Some(10),
            ..Overflow::default()
        };
        assert_eq!(found, expected);
        assert!(!is_in_text(row, "length 12 exceeds 10 characters"));
        assert!(is_in_text("got -{_}", "got -186."));
        assert!(!is_in_text("got -{_}", "got 0."));
    }

    #[test]
    fn a_gap_is_short() {
        let row = "context{*}over {limit}";
        assert!(is_in_text(row, "the context is over 12"));
        assert!(is_in_text(row, "a context, a contextover 12"));
        assert!(!is_in_text(row, "the context is over it"));
        let far = format!("context{}over 12", " ".repeat(41));
        assert!(!is_in_text(row, &far));
        assert!(is_in_text("上下文{*}超", "上下文长度超出模型最大限制"));
    }
}
