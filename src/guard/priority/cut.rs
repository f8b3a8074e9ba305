//! A text cut down to raw tokens: its beginning and end stay around a marker.
//!
//! Cuts lie between characters, never inside an escape, and at the end of a line where one is near.

use super::piece::With;
use crate::{
    guard::{estimate::Weights, truncate::Marker},
    json::text::{self, Walk},
};

/// How far a cut moves to reach the end of a line, at most: characters, and a part of what stays.
const NEAR_CHARS: usize = 200;
const NEAR_PART: usize = 4;
/// What sums of fractions may be off by; raw tokens.
const SLACK: f64 = 0.01;

/// What stays of a text within so many raw tokens, marker included, where these hold the marker;
/// `None` where all of it stays, or where it has no decoded form.
pub(super) fn within(raw: &[u8], most: u32, weights: &Weights) -> Option<With> {
    let whole = text::measure(raw);
    if weights.whole(&whole) <= most {
        return None;
    }
    let longest = Marker::Plain.text(whole.chars());
    let marker = weights.text(&text::measure(longest.as_bytes()));
    let room = (f64::from(most) - marker - SLACK).max(0.0);
    let kept = Ends::of(raw, (weights.text(&whole), room / 2.0), weights)?;
    let gone = kept.head..kept.tail;
    let marker = Marker::Plain.text(Walk::new(&raw[gone.clone()]).count());
    let mut sizes = text::measure(&raw[..gone.start]);
    sizes += text::measure(marker.as_bytes());
    sizes += text::measure(&raw[gone.end..]);
    Some(With {
        gone,
        text: marker,
        sizes,
    })
}

/// Where the beginning ends that stays, and where the end begins; bytes.
struct Ends {
    head: usize,
    tail: usize,
}

impl Ends {
    /// As much of both as weighs `room` each, of a text that weighs `whole` in all.
    fn of(raw: &[u8], (whole, room): (f64, f64), weights: &Weights) -> Option<Self> {
        let mut walk = Walk::new(raw);
        let mut passed = 0.0;
        let mut head = Last::default();
        let mut tail: Option<usize> = None;
        let mut line = None;
        for (place, character) in walk.by_ref().enumerate() {
            let ends_line = character.code == u32::from('\n');
            if whole - passed <= room {
                let (from, first) = (*tail.get_or_insert(place), character.at);
                let first = line.get_or_insert((first, None));
                if ends_line && first.1.is_none() && place - from <= NEAR_CHARS {
                    first.1 = Some((place + 1 - from, character.at + character.len));
                }
            }
            passed += weights.character(character.code);
            if passed <= room {
                head.pass(
                    place + 1,
                    character.at + character.len,
                    ends_line.then_some(character.at),
                );
            }
        }
        let chars = raw_chars(&walk, raw)?;
        let tail = match (tail, line) {
            (Some(from), Some((first, near))) => {
                let stays = chars - from;
                let near = near.filter(|&(skips, _)| skips <= stays / NEAR_PART);
                near.map_or(first, |(_, next)| next)
            }
            _ => raw.len(),
        };
        let head = head.at_line();
        Some(Self {
            head,
            tail: tail.max(head),
        })
    }
}

/// All characters, where the text has a decoded form.
fn raw_chars(walked: &Walk<'_>, raw: &[u8]) -> Option<usize> {
    walked.sound().then(|| text::measure(raw).chars())
}

/// How far a beginning goes.
#[derive(Default)]
struct Last {
    chars: usize,
    end: usize,
    /// The last end of a line: characters before it, and where it stands.
    line: Option<(usize, usize)>,
}

impl Last {
    const fn pass(&mut self, chars: usize, end: usize, line: Option<usize>) {
        (self.chars, self.end) = (chars, end);
        if let Some(at) = line {
            self.line = Some((chars - 1, at));
        }
    }

    /// At the end of the last line, where that is near.
    fn at_line(&self) -> usize {
        let near = NEAR_CHARS.min(self.chars / NEAR_PART);
        let line = self.line.filter(|&(chars, _)| self.chars - chars <= near);
        line.map_or(self.end, |(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::text::{decode, escape};

    fn cut(text: &str, most: u32) -> Option<(String, u32)> {
        let (raw, weights) = (escape(text), Weights::new(3.0));
        let with = within(raw.as_bytes(), most, &weights)?;
        let left = format!(
            "{}{}{}",
            &raw[..with.gone.start],
            with.text,
            &raw[with.gone.end..]
        );
        assert_eq!(text::measure(left.as_bytes()), with.sizes);
        let left = decode(left.as_bytes()).unwrap();
        Some((left, weights.whole(&with.sizes)))
    }

    #[test]
    fn beginning_and_end_stay_around_the_marker() {
        let text = format!("{}{}", "a".repeat(600), "z".repeat(600));
        let (left, tokens) = cut(&text, 100).unwrap();
        assert!(left.starts_with("aaa") && left.ends_with("zzz"), "{left}");
        assert!(left.contains("characters truncated"), "{left}");
        assert!((90..=100).contains(&tokens), "{tokens}");
        assert_eq!(cut(&text, 400), None);
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
    fn half_a_pair_is_left_alone() {
        let raw = format!("{}\\ud800", "a".repeat(900));
        assert!(within(raw.as_bytes(), 64, &Weights::new(3.0)).is_none());
    }

    proptest! {
        #[test]
        fn what_is_left_is_within_and_is_not_cut_again(
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
