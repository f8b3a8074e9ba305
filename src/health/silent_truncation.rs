//! Detects providers that truncate prompts silently: status 200, but fewer tokens than were sent.
//!
//! One answer proves nothing: an estimate may be far off, and some engines count only cache misses. Two
//! answers prove it if the second request was longer and its count was not. Pure functions.

use serde::{Deserialize, Serialize};

/// Smaller prompts prove nothing; tokens as reported.
const MIN_PROMPT_TOKENS: u32 = 512;
/// Less that is added refutes nothing; raw tokens.
const MIN_ADDED_TOKENS: u32 = 256;

/// The size of one request, as estimated and as reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSample {
    /// Raw tokens of the request as it was sent.
    pub raw_sent: u32,
    /// As reported, including cached ones.
    pub prompt_tokens: u32,
}

/// The tokens to which a provider truncates prompts, if two successive answers of a session prove it.
/// `counts_misses_only` says that the provider may report cache misses only. Then it reports just the added tokens of a
/// growing session, so the count must be much larger than these, and the same twice.
pub fn detect_truncation(
    before: Option<UsageSample>,
    now: UsageSample,
    counts_misses_only: bool,
) -> Option<u32> {
    let before = before?;
    let [raw_before, raw] = [before.raw_sent, now.raw_sent].map(u64::from);
    let [first, second] = [before.prompt_tokens, now.prompt_tokens].map(u64::from);
    let added = raw.checked_sub(raw_before)?;
    // By 5 % at least.
    let grew = added * 20 >= raw_before && added > 0;
    let far_under = first * 2 < raw_before && second * 2 < raw;
    // An estimate that is too high by a constant factor must not look like a cap: the count has to
    // grow by less than a quarter of the share by which the request did.
    let same =
        second * 20 <= first * 21 && second.saturating_sub(first) * raw_before * 4 <= first * added;
    let misses = counts_misses_only && (second < added * 4 || second * 20 < first * 19);
    let large = first.min(second) >= u64::from(MIN_PROMPT_TOKENS);
    (grew && far_under && same && large && !misses)
        .then_some(before.prompt_tokens.max(now.prompt_tokens))
}

/// Whether a count is that of the whole prompt, however far it is below the estimate: the request was longer than the one
/// `before`, and its count grew with what was added. A provider that drops the beginning of prompts counts as many as before;
/// one that may report cache misses only (`counts_misses_only`) counts about what was added.
pub fn proves_whole_count(
    before: Option<UsageSample>,
    now: UsageSample,
    counts_misses_only: bool,
) -> bool {
    let Some(before) = before else { return false };
    let grew = |now: u32, before: u32| u64::from(now.saturating_sub(before));
    let added = grew(now.raw_sent, before.raw_sent);
    let more = grew(now.prompt_tokens, before.prompt_tokens);
    // No tokenizer counts a text for less or more than this beside its estimate.
    let grew_alike = added <= more * 4 && more * 2 <= added * 5;
    let misses = counts_misses_only && u64::from(now.prompt_tokens) * 4 < added * 5;
    added > 0 && grew_alike && !misses
}

/// Whether a count is that of a part of the prompt, as earlier ones may have been: the request was clearly longer than the one
/// `before`, and its count did not grow with it.
pub fn refutes_whole_count(before: Option<UsageSample>, now: UsageSample) -> bool {
    let Some(before) = before else { return false };
    let added = now.raw_sent.saturating_sub(before.raw_sent);
    let more = now.prompt_tokens.saturating_sub(before.prompt_tokens);
    added >= MIN_ADDED_TOKENS && u64::from(more) * 4 < u64::from(added)
}

/// Whether the prompt of an accepted request filled the window: the provider counted more tokens than
/// the window holds, or the answer ended by its length without a single token.
pub fn has_filled_window(
    prompt_tokens: u32,
    window: u32,
    completion_tokens: Option<u32>,
    finish_reason_is_length: bool,
) -> bool {
    let full = u64::from(prompt_tokens) * 100 >= u64::from(window) * 99;
    prompt_tokens > window || (finish_reason_is_length && completion_tokens == Some(0) && full)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        UsageSample, detect_truncation, has_filled_window, proves_whole_count, refutes_whole_count,
    };

    fn sample(raw_sent: u32, prompt_tokens: u32) -> UsageSample {
        UsageSample {
            raw_sent,
            prompt_tokens,
        }
    }

    /// Two answers in a row, at a provider that counts all, and at one that may not.
    fn check(before: (u32, u32), now: (u32, u32), counts_all: bool, misses_only: bool) {
        let (before, now) = (sample(before.0, before.1), sample(now.0, now.1));
        let cap = Some(before.prompt_tokens.max(now.prompt_tokens));
        for (counts, expected) in [(false, counts_all), (true, misses_only)] {
            let found = detect_truncation(Some(before), now, counts);
            let expected = cap.filter(|_| expected);
            assert_eq!(found, expected, "{before:?} {now:?}, {counts}");
        }
    }

    #[test]
    fn two_growing_requests_with_one_count_prove_a_cap() {
        check((10_000, 4_096), (11_000, 4_096), true, true);
        check((20_000, 2_050), (21_000, 2_040), true, false);
        check((20_000, 4_100), (21_000, 4_090), true, true);
        // A lower count, since the provider drops whole messages.
        check((20_000, 4_100), (21_000, 3_000), true, false);
    }

    #[test]
    fn one_answer_proves_nothing() {
        assert_eq!(detect_truncation(None, sample(100_000, 2_048), false), None);
    }

    #[test]
    fn a_count_that_grows_with_the_request_is_no_cap() {
        // An estimate that is three times too high.
        check((30_000, 10_000), (31_500, 10_490), false, false);
        check((30_000, 10_000), (60_000, 20_000), false, false);
        // Near the estimate.
        check((10_000, 8_000), (11_000, 8_000), false, false);
        // Hardly grown, or shorter: a retry, or a cut of the guard.
        check((10_000, 4_096), (10_100, 4_096), false, false);
        check((10_000, 4_096), (9_000, 4_096), false, false);
        // Small.
        check((1_000, 100), (2_000, 100), false, false);
    }

    #[test]
    fn a_count_of_cache_misses_is_no_cap() {
        // A session that grows evenly: each answer counts the added tokens.
        let steps = [
            (20_000, 20_000),
            (22_000, 2_000),
            (24_200, 2_050),
            (26_600, 2_060),
        ];
        for pair in steps.windows(2) {
            let [before, now] = [pair[0], pair[1]].map(|(raw, tokens)| sample(raw, tokens));
            assert_eq!(detect_truncation(Some(before), now, true), None, "{pair:?}");
        }
    }

    #[test]
    fn a_count_that_grows_with_what_was_added_is_whole() {
        let proves = |before: (u32, u32), now: (u32, u32)| {
            proves_whole_count(Some(sample(before.0, before.1)), sample(now.0, now.1), true)
        };
        // Tools of 6,000 tokens that are not counted, and an estimate that is three times too high.
        assert!(proves((6_500, 500), (7_000, 1_000)));
        assert!(proves((30_000, 10_000), (31_500, 10_500)));
        assert!(!proves_whole_count(None, sample(7_000, 1_000), false));
        // A cap, a count that hardly grew, and one that grew by more than any text has.
        assert!(!proves((10_000, 4_096), (11_000, 4_096)));
        assert!(!proves((10_000, 4_000), (11_000, 4_096)));
        assert!(!proves((10_000, 1_000), (11_000, 4_096)));
        // Shorter, or the same.
        assert!(!proves((10_000, 4_000), (9_000, 3_000)));
        assert!(!proves((10_000, 4_000), (10_000, 4_000)));
    }

    #[test]
    fn a_count_that_does_not_grow_with_a_longer_prompt_is_of_a_part() {
        let refutes = |before: (u32, u32), now: (u32, u32)| {
            refutes_whole_count(Some(sample(before.0, before.1)), sample(now.0, now.1))
        };
        // Whole messages are dropped from the beginning.
        assert!(refutes((6_250, 3_518), (7_500, 3_450)));
        assert!(refutes((6_250, 4_000), (7_500, 4_077)));
        assert!(!refutes((6_250, 3_450), (7_500, 4_077)));
        assert!(!refutes((6_250, 3_450), (6_300, 3_450)));
        assert!(!refutes((6_250, 3_450), (5_000, 2_000)));
        assert!(!refutes_whole_count(None, sample(7_500, 10)));
    }

    proptest! {
        /// A provider that counts all tokens, with an estimate that is wrong by any factor.
        #[test]
        fn a_constant_factor_is_no_cap(
            raw in 1_u32..1_000_000,
            added in 1_u32..500_000,
            percent in 5_u64..200,
        ) {
            let count = |raw: u32| (u64::from(raw) * percent / 100) as u32;
            let (before, now) = (raw, raw + added);
            let found = detect_truncation(
                Some(sample(before, count(before))), sample(now, count(now)), false,
            );
            prop_assert_eq!(found, None);
        }

        /// An engine that counts new tokens, give or take half of them.
        #[test]
        fn a_count_of_new_tokens_is_no_cap(
            raw in 1_u32..1_000_000,
            first in 1_u32..500_000,
            second in 1_u32..500_000,
            slack in 0.5_f64..1.5,
        ) {
            let count = |added: u32| (f64::from(added) * slack) as u32;
            let before = sample(raw + first, count(first));
            let now = sample(raw + first + second, count(second));
            prop_assert_eq!(detect_truncation(Some(before), now, true), None);
            // Estimates are less off than that.
            let is_near = slack < 1.24;
            prop_assert!(!is_near || !proves_whole_count(Some(before), now, true));
        }

        #[test]
        fn nothing_panics(a: u32, b: u32, c: u32, d: u32, counts: bool, length: bool) {
            detect_truncation(Some(sample(a, b)), sample(c, d), counts);
            proves_whole_count(Some(sample(a, b)), sample(c, d), counts);
            refutes_whole_count(Some(sample(a, b)), sample(c, d));
            has_filled_window(a, b, Some(c), length);
        }
    }

    #[test]
    fn a_prompt_that_fills_the_window_is_detected() {
        assert!(has_filled_window(8_193, 8_192, Some(12), false));
        assert!(has_filled_window(8_150, 8_192, Some(0), true));
        assert!(!has_filled_window(8_150, 8_192, Some(0), false));
        assert!(!has_filled_window(8_150, 8_192, None, true));
        assert!(!has_filled_window(8_150, 8_192, Some(1), true));
        assert!(!has_filled_window(8_000, 8_192, Some(0), true));
        assert!(!has_filled_window(8_192, 8_192, Some(10), false));
    }
}
