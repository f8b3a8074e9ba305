//! The endings of a model's name that only mark a release, such as a date.
//!
//! A release has the window of its model: `gpt-4o-2024-08-06` is `gpt-4o`. Other endings may mean another
//! window (`-32k`, `-mini`, `:8b`), so only those listed here are removed. A release with a different
//! window has its own row in the table (`gpt-4-1106-preview`), which is found first.

use std::ops::RangeInclusive;

const SEPARATORS: [char; 4] = ['-', ':', '@', '_'];

/// Words for the state of a release. `default` is Google Vertex's, `exp` Gemini's.
const STATES: [&str; 5] = ["latest", "preview", "exp", "beta", "default"];

/// OpenRouter's words after a colon: how it picks one of a model's providers.
const ROUTES: [&str; 4] = ["nitro", "floor", "online", "exacto"];

/// The name itself, then every shorter one of which it is a release, the longest first.
pub(super) fn base_names(model: &str) -> impl Iterator<Item = &str> {
    let ends = model.rmatch_indices(SEPARATORS).map(|(end, _)| end);
    let shorter = ends.filter(|&end| is_release(&model[end..]));
    std::iter::once(model).chain(shorter.map(|end| &model[..end]))
}

/// Whether `rest`, which begins with a separator, only marks a release.
fn is_release(rest: &str) -> bool {
    let route = rest.strip_prefix(':');
    if route.is_some_and(|route| ROUTES.contains(&route)) {
        return true;
    }
    let words: Vec<&str> = rest.split(SEPARATORS).skip(1).collect();
    let (mut rest, mut has_date, mut has_state) = (&words[..], false, false);
    while let Some(word) = rest.first() {
        let dated = |taken| Some((taken, true, has_state));
        let taken = match rest {
            [year, month, day, ..] if is_year(year) && is_month(month) && is_day(day) => dated(3),
            [month, year, ..] if is_month(month) && is_year(year) => dated(2),
            // Gemini's previews have no year: `-preview-05-06`.
            [month, day, ..] if has_state && is_month(month) && is_day(day) => dated(2),
            _ if is_date(word) || is_number_of_release(word) => dated(1),
            // Amazon Bedrock's: `-20240620-v1:0`.
            [_, minor, ..] if has_date && is_version(word) && is_digit(minor) => dated(2),
            _ if has_date && is_version(word) => dated(1),
            _ if STATES.contains(word) => Some((1, has_date, true)),
            _ => None,
        };
        let Some((count, date, state)) = taken else {
            return false;
        };
        (rest, has_date, has_state) = (&rest[count..], date, state);
    }
    !words.is_empty()
}

/// A number of exactly this many digits, in that range.
fn is_number(word: &str, digits: usize, range: RangeInclusive<u32>) -> bool {
    word.len() == digits
        && word.bytes().all(|byte| byte.is_ascii_digit())
        && word.parse().is_ok_and(|number| range.contains(&number))
}

fn is_year(word: &str) -> bool {
    is_number(word, 4, 2000..=2099)
}

fn is_month(word: &str) -> bool {
    is_number(word, 2, 1..=12)
}

fn is_day(word: &str) -> bool {
    is_number(word, 2, 1..=31)
}

/// A date in one word: `20240620`, `240620`, and of four digits month and day (`0613`) or year and
/// month (`2407`).
fn is_date(word: &str) -> bool {
    if !word.is_ascii() {
        return false;
    }
    let is_short_year = |word: &str| is_number(word, 2, 20..=39);
    match word.len() {
        8 => is_year(&word[..4]) && is_month(&word[4..6]) && is_day(&word[6..]),
        6 => is_short_year(&word[..2]) && is_month(&word[2..4]) && is_day(&word[4..]),
        4 => {
            let (first, second) = word.split_at(2);
            (is_month(first) && is_day(second)) || (is_short_year(first) && is_month(second))
        }
        _ => false,
    }
}

/// `001`: Google's numbers of releases.
fn is_number_of_release(word: &str) -> bool {
    is_number(word, 3, 0..=99)
}

/// `v2`.
fn is_version(word: &str) -> bool {
    word.strip_prefix('v').is_some_and(is_digit)
}

fn is_digit(word: &str) -> bool {
    is_number(word, 1, 0..=9)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{base_names, is_release};

    #[test]
    fn dates_versions_and_states_are_releases() {
        for end in [
            "-2024-08-06",
            "-20240620",
            "@20240620",
            "-250115",
            "-0613",
            "-2407",
            "-08-2024",
            "-001",
            "-latest",
            ":latest",
            "@default",
            "-preview",
            "-preview-05-06",
            "-preview-2024-12-17",
            "-preview-09-2025",
            "-exp-0827",
            "-1106-preview",
            "-20241022-v2:0",
            "-20241022-v2",
            ":nitro",
        ] {
            assert!(is_release(end), "{end}");
        }
    }

    #[test]
    fn sizes_and_kinds_of_models_are_no_releases() {
        for end in [
            "-32k",
            "-16k",
            "-128k",
            "-1m",
            "-mini",
            "-nano",
            "-lite",
            "-small",
            "-medium",
            "-large",
            "-flash",
            "-pro",
            "-max",
            "-turbo",
            "-8b",
            ":8b",
            "-70b",
            "-a22b",
            "-fast",
            "-high",
            "-vision",
            "-vision-preview",
            "-audio-preview",
            "-mini-2024-07-18",
            "-32k-0613",
            "-5",
            "-7",
            "-4-20250514",
            "-10",
            "-05-06",
            "-v3",
            "-2048",
            "-4096",
            "-8192",
            "-32768",
            "-instruct",
            "-thinking",
            ":free",
            ":extended",
            "-nitro",
            "-",
            "--latest",
            "-latest-",
            "-202",
            "-é",
            "-éé",
            "-2é2",
        ] {
            assert!(!is_release(end), "{end}");
        }
    }

    #[test]
    fn the_longest_name_comes_first() {
        let found: Vec<_> = base_names("gpt-4-1106-preview").collect();
        assert_eq!(found, ["gpt-4-1106-preview", "gpt-4-1106", "gpt-4"]);
        let release = "claude-3-5-sonnet-20241022-v2:0";
        let found: Vec<_> = base_names(release).collect();
        assert_eq!(found, [release, "claude-3-5-sonnet"]);
    }

    proptest! {
        #[test]
        fn base_names_are_ever_shorter_beginnings(model in ".*") {
            let mut last = usize::MAX;
            for name in base_names(&model) {
                prop_assert!(model.starts_with(name) && name.len() < last);
                last = name.len();
            }
        }
    }
}
