//! The estimate of texts in many languages, scripts and drawings, against o200k.

use super::kinds::weigh;
use crate::support::{
    count::TokenCounter,
    generate::{
        figures::{KINDS, write_kind},
        tongues::write_tongues,
    },
};

/// Row 001.1: by o200k, no kind of text is counted under nine tenths, and none far over.
#[test]
fn no_language_script_or_drawing_is_counted_low() {
    let counter = TokenCounter::o200k();
    let texts = write_tongues();
    assert!(texts.len() > 100, "{}", texts.len());
    let kinds = KINDS
        .iter()
        .map(|kind| (kind.0.to_owned(), write_kind(*kind, 8)));
    let wrong: Vec<String> = texts
        .into_iter()
        .chain(kinds)
        .filter_map(|(name, text)| {
            let ratio = weigh("gpt-4o", &text) / counter.text(&text) as f64;
            (!(0.9..=1.6).contains(&ratio)).then(|| format!("{name}: {ratio:.2}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A run of one letter costs what a token of eight does, however long it is.
#[test]
fn runs_of_one_letter_are_capped() {
    let counter = TokenCounter::o200k();
    for letter in ["x", "a", "A"] {
        for times in [64, 1_000, 8_000] {
            let text = letter.repeat(times);
            let ratio = weigh("gpt-4o", &text) / counter.text(&text) as f64;
            assert!(
                (0.9..=1.6).contains(&ratio),
                "{letter}, {times}: {ratio:.2}"
            );
        }
    }
}
