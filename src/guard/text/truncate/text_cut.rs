//! Cuts a text down to a number of raw tokens: its beginning and end stay around a marker.
//!
//! Cuts lie between characters, never inside an escape, and at the end of a line where one is near.

use std::{borrow::Cow, ops::Range};

use super::{TruncationMarker, find_byte_offset, widen_to_lines};
use crate::{
    guard::request::{
        estimate::{Weights, find_last_fit},
        recall_id::RecallId,
    },
    json::text::{self, TextSizes, TextWalk},
};

/// The text that replaces a part of a text.
pub(in crate::guard) struct TextReplacement {
    /// The bytes that it replaces, within the text.
    pub(in crate::guard) removed: Range<usize>,
    /// The replacement, escaped.
    pub(in crate::guard) text: String,
    /// Sizes of the whole text with the replacement.
    pub(in crate::guard) sizes: TextSizes,
}

/// The most that sums of fractions may be off by; raw tokens.
const SLACK: f64 = 0.01;

/// Characters from one remembered place to the next.
const STRIDE: usize = 64;

/// Where the characters of a text begin. Remembers every 64th place, so that it takes a small part of the text's own memory.
struct CharPlaces<'a> {
    raw: &'a [u8],
    places: Vec<usize>,
    total: usize,
}

impl<'a> CharPlaces<'a> {
    /// `None` for a text that cannot be decoded.
    fn read(raw: &'a [u8]) -> Option<Self> {
        let (mut walk, mut places, mut total) = (TextWalk::new(raw), Vec::new(), 0);
        for character in walk.by_ref() {
            if total % STRIDE == 0 {
                places.push(character.at);
            }
            total += 1;
        }
        let sound = walk.is_sound();
        sound.then_some(Self { raw, places, total })
    }

    /// The byte at which character `index` begins; the end of the text beyond its last character.
    fn find_byte(&self, index: usize) -> usize {
        let place = self.places.get(index / STRIDE);
        let rest = |&at: &usize| at + find_byte_offset(&self.raw[at..], index % STRIDE);
        place.map_or(self.raw.len(), rest)
    }
}

/// Cuts a text down to `most` raw tokens, marker included, or down to the marker alone if the marker has more. The marker
/// names the `id`. `None` if the text is within `most`, or cannot be decoded.
pub(in crate::guard) fn cut_to_tokens(
    raw: &[u8],
    most: u32,
    weights: &Weights,
    id: Option<RecallId>,
) -> Option<TextReplacement> {
    let whole = text::measure_text(raw);
    if weights.count_text_tokens(&whole) <= most {
        return None;
    }
    let longest = TruncationMarker::Plain.format_marker(whole.total_chars(), id);
    // The marker is measured behind a letter: there its line end may be a token of its own.
    let marker = weights.text_weight(&text::measure_text(format!("a{longest}").as_bytes()));
    // Raw tokens of the beginning and of the end, each.
    let room = (f64::from(most) - marker - SLACK).max(0.0) / 2.0;
    let places = CharPlaces::read(raw)?;
    let weigh = |part: &[u8]| weights.text_weight(&text::measure_text(part));
    let total = places.total;
    // The line ends of the marker keep the counts of both parts apart.
    let head = find_last_fit(total, |chars| {
        chars < total && weigh(&raw[..places.find_byte(chars)]) <= room
    });
    let fits_tail = |chars| weigh(&raw[places.find_byte(total - chars)..]) <= room;
    let tail = total - find_last_fit(total, fits_tail);
    let tail = tail.max(head);
    let removed = widen_to_lines(TextWalk::new(raw), head..tail, total);
    let marker = TruncationMarker::Plain.format_marker(removed.len(), id);
    let removed = places.find_byte(removed.start)..places.find_byte(removed.end);
    let left = [
        &raw[..removed.start],
        marker.as_bytes(),
        &raw[removed.end..],
    ];
    let sizes = text::measure_text(&left.concat());
    Some(TextReplacement {
        removed,
        text: marker,
        sizes,
    })
}

/// Shortens a text to at most `most` raw tokens: its beginning and end stay around a marker. A text that fits is returned as
/// it is; if the marker has no room, the result is empty.
pub fn shorten_to_tokens<'a>(plain: &'a str, most: u32, weights: &Weights) -> Cow<'a, str> {
    let raw = text::escape_text(plain);
    let Some(cut) = cut_to_tokens(raw.as_bytes(), most, weights, None) else {
        return Cow::Borrowed(plain);
    };
    let fits = weights.count_text_tokens(&cut.sizes) <= most;
    let mut left = raw;
    left.replace_range(cut.removed, &cut.text);
    let left = text::decode_text(left.as_bytes()).filter(|_| fits);
    Cow::Owned(left.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::text::{decode_text, escape_text};

    fn cut(text: &str, most: u32) -> Option<(String, u32)> {
        let (raw, weights) = (escape_text(text), Weights::for_unknown_model());
        let cut = cut_to_tokens(raw.as_bytes(), most, &weights, None)?;
        let mut left = raw;
        left.replace_range(cut.removed, &cut.text);
        assert_eq!(text::measure_text(left.as_bytes()), cut.sizes);
        let left = decode_text(left.as_bytes()).unwrap();
        Some((left, weights.count_text_tokens(&cut.sizes)))
    }

    #[test]
    fn beginning_and_end_stay_around_the_marker() {
        let text = format!("{}{}", "a bee ".repeat(150), "i see ".repeat(150));
        let (left, tokens) = cut(&text, 100).unwrap();
        assert!(
            left.starts_with("a bee ") && left.ends_with(" i see "),
            "{left}"
        );
        assert!(left.contains("characters truncated"), "{left}");
        assert!((90..=100).contains(&tokens), "{tokens}");
        assert_eq!(cut(&text, 600), None);
    }

    #[test]
    fn lines_stay_whole_where_their_end_is_near() {
        let line = format!("{}\n", "word ".repeat(5));
        let (left, _) = cut(&line.repeat(40), 100).unwrap();
        let (head, rest) = left.split_once("\n... [").unwrap();
        let (_, tail) = rest.split_once("] ...\n").unwrap();
        for kept in [head, tail] {
            assert!(kept.lines().count() > 1);
            assert!(
                kept.lines().all(|kept| kept == line.trim_end_matches('\n')),
                "{left}"
            );
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_not_edited() {
        let raw = format!("{}\\ud800", "a".repeat(900));
        assert!(cut_to_tokens(raw.as_bytes(), 64, &Weights::for_unknown_model(), None).is_none());
    }

    proptest! {
        #[test]
        fn a_cut_text_is_within_its_tokens_and_not_cut_again(
            pieces in prop::collection::vec(prop::sample::select(vec!["word ", "字", "\n", "😀", "\"\\", "é", "\u{1}"]), 0..600),
            most in 64u32..400,
        ) {
            let text = pieces.concat();
            if let Some((left, tokens)) = cut(&text, most) {
                prop_assert!(tokens <= most, "{} of {}", tokens, most);
                prop_assert!(cut(&left, most).is_none());
                let (first, rest) = left.split_once("\n... [").unwrap();
                let (_, last) = rest.split_once(" characters truncated] ...\n").unwrap();
                prop_assert!(text.starts_with(first) && text.ends_with(last));
            }
        }
    }
}
