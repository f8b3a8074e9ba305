//! Learns from usage to turn raw tokens into expected tokens.

use serde::{Deserialize, Serialize};

/// The relation of a session's raw tokens to the usage that its provider reports.
///
/// Expected tokens lie on a line through the last answer's usage: its tokens, plus those added since times the learnt slope.
/// An overhead outside of the body (a chat template, the provider's instructions) therefore counts once and not as a factor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Reported tokens per raw token that is added.
    slope: f64,
    /// The last request as sent, in raw tokens, and what the provider reported for it.
    anchor: Option<(u32, u32)>,
    /// A count far below the estimate proved to be that of a part of a prompt: from then on, such counts are not believed.
    doubts_low: bool,
}

/// How many of the provider's tokens one raw token counts as in caps and shares, in hundredths.
///
/// It is held from request to request, so that the front of a prompt stays as it was sent: usage raises it only if caps
/// would be passed by more than one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenScale(u16);

impl Default for TokenScale {
    fn default() -> Self {
        Self(100)
    }
}

impl TokenScale {
    /// The most raw tokens within so many tokens.
    pub fn to_raw(self, tokens: u32) -> u32 {
        (f64::from(tokens) * 100.0 / f64::from(self.0.max(1))) as u32
    }

    pub fn to_tokens(self, raw: u32) -> u32 {
        super::round_up_tokens(f64::from(raw) * f64::from(self.0) / 100.0)
    }
}

impl Default for Calibration {
    fn default() -> Self {
        Self::from_ratio(1.0)
    }
}

/// No tokenizer has a slope outside of these bounds.
pub const SLOPES: std::ops::RangeInclusive<f64> = 0.4..=2.5;
/// How much denser a new text may be than all texts before: of 137 larger additions to a recorded session, 95 % took at
/// most 1.17 times the tokens expected by the slope so far (`tests/it/estimate.rs`). The usage of the last answer is
/// certain, so this applies only to the tokens added since, which are few but for one large result.
const DENSER: f64 = 1.2;
/// The largest overhead outside of a body; tokens. A report beyond it does not count this request.
const MOST_OVERHEAD: f64 = 64_000.0;
/// A count under this share of what is expected may be that of a part of the prompt.
const FAR_BELOW: f64 = 0.5;
/// The most expected tokens per raw token with which a report is compared to see whether it is far too low.
const MOST_EXPECTED: f64 = 1.5;
/// Raw tokens at which the difference of two requests counts as much as the slope learnt so far.
const WEIGHT: f64 = 4_000.0;
/// By how much caps may be passed before they are held to a new slope. New sessions begin at a multiple of it, so that
/// those of one model have the same front.
const SCALE_STEP: f64 = 0.05;
/// Raw tokens from which on a request's usage shows how dense its text is: what is outside of the body is small in
/// comparison.
const DENSITY_LEAST: u32 = 2_000;

impl Calibration {
    /// For a new session of a model whose ratio of reported to raw tokens is known.
    pub fn from_ratio(ratio: f64) -> Self {
        Self {
            slope: ratio.clamp(*SLOPES.start(), *SLOPES.end()),
            anchor: None,
            doubts_low: false,
        }
    }

    /// The calibration without the last count, which was that of a part of the prompt. Later low counts are ignored.
    pub fn doubt_low_counts(&self) -> Self {
        Self {
            anchor: None,
            doubts_low: true,
            ..*self
        }
    }

    /// Whether the last count was under half of the raw tokens.
    pub fn is_far_below(&self) -> bool {
        let anchor = self.anchor.map(|it| (f64::from(it.0), f64::from(it.1)));
        anchor.is_some_and(|(raw, tokens)| tokens < raw * FAR_BELOW)
    }

    /// Whether a provider has counted the session's tokens.
    pub const fn is_counted(&self) -> bool {
        self.anchor.is_some()
    }

    pub const fn slope(&self) -> f64 {
        self.slope
    }

    /// The scale that a session begins with. A slope between 0.9 and 1 counts as 1: estimates of single texts are no better.
    pub fn to_scale(&self) -> TokenScale {
        let is_near = (0.9..1.0).contains(&self.slope);
        let steps = (if is_near { 1.0 } else { self.slope } / SCALE_STEP).round();
        TokenScale((steps * SCALE_STEP * 100.0).round() as u16)
    }

    /// The scale of a request after one with scale `held`.
    pub fn hold_scale(&self, held: TokenScale) -> TokenScale {
        let most = f64::from(held.0) / 100.0 * (1.0 + SCALE_STEP);
        let is_large = self.anchor.is_some_and(|(raw, _)| raw >= DENSITY_LEAST);
        if is_large && self.slope > most {
            self.to_scale()
        } else {
            held
        }
    }

    /// Expected tokens of a request of `raw` tokens.
    pub fn to_expected_tokens(&self, raw: u32) -> u32 {
        let (base_raw, base) = self.anchor.unwrap_or((0, 0));
        let tokens = f64::from(base) + (f64::from(raw) - f64::from(base_raw)) * self.slope;
        super::round_up_tokens(tokens.max(0.0))
    }

    /// The most raw tokens that will hardly be counted as more than `tokens`, for a request with `added` raw tokens since
    /// the last answer: the inverse of [`Self::to_expected_tokens`], but for `DENSER`.
    ///
    /// Added texts may be dense and removed texts may be light, so the two are weighed separately: their difference says
    /// nothing if much is added and much removed.
    pub fn to_raw_tokens(&self, tokens: u32, added: u32) -> u32 {
        let tokens = f64::from(tokens);
        let Some((base_raw, base)) = self.anchor else {
            return (tokens / self.slope) as u32;
        };
        let (base_raw, base, added) = (f64::from(base_raw), f64::from(base), f64::from(added));
        let dense = self.slope * DENSER;
        let room = tokens - added * dense;
        let kept = if room >= base {
            base_raw + (room - base) / dense
        } else {
            // The kept part is the last request without the removed part. It is no denser than any text may be.
            let overhead = (base - base_raw * self.slope).max(0.0);
            let without_removed = base_raw - (base - room) * DENSER / self.slope;
            without_removed.max((room - overhead) / dense)
        };
        (kept + added).max(0.0) as u32
    }

    /// Raw tokens that texts cannot account for, if a request of `raw` tokens was `counted` as so many: a part of it is far
    /// denser than its estimate. `None` if the count may be that of denser texts.
    pub fn find_excess(&self, raw: u32, counted: u32) -> Option<f64> {
        let (expected, counted) = (f64::from(self.to_expected_tokens(raw)), f64::from(counted));
        let most = if self.is_counted() {
            DENSER
        } else {
            MOST_EXPECTED
        };
        (counted > expected * most).then(|| (counted - expected) / self.slope)
    }

    /// Learns from an answer: `raw` tokens were sent, and `reported` was their usage.
    ///
    /// A report that no tokenizer could give is ignored. A report under half of the expected tokens is ignored too, unless
    /// it `is_proved`: the provider may count only the tokens that its cache missed, or drop the beginning of a prompt.
    pub fn learn_usage(&self, raw: u32, reported: u32, is_proved: bool) -> Self {
        let raw_tokens = f64::from(raw);
        // The expected tokens may come from one bad report, which must not keep out all later reports.
        let expected = f64::from(self.to_expected_tokens(raw)).min(raw_tokens * MOST_EXPECTED);
        let is_far_below = f64::from(reported) < expected * FAR_BELOW;
        if is_far_below && (!is_proved || self.doubts_low) {
            return *self;
        }
        // The rest of a small request's tokens is overhead outside of the body.
        let densest = if raw < DENSITY_LEAST {
            self.slope * DENSER
        } else {
            *SLOPES.end()
        };
        self.learn_count(raw, reported, is_far_below, densest)
    }

    /// Learns from a refusal, which counts all of a prompt of `raw` tokens.
    pub fn learn_refusal(&self, raw: u32, counted: u32) -> Self {
        self.learn_count(raw, counted, false, *SLOPES.end())
    }

    /// `leaves_out`: something is not counted at all, such as tools that a chat template leaves out. `densest`: the largest
    /// slope that is learnt from a first count.
    fn learn_count(&self, raw: u32, reported: u32, leaves_out: bool, densest: f64) -> Self {
        let (raw_tokens, tokens) = (f64::from(raw), f64::from(reported));
        if raw == 0 || reported == 0 || tokens > raw_tokens * SLOPES.end() + MOST_OVERHEAD {
            return *self;
        }
        let overall = tokens / raw_tokens;
        let (sample, weight) = match self.anchor {
            // A difference gives the best slope where it is larger than noise.
            Some((base_raw, base)) if raw > base_raw && reported > base => {
                let added = f64::from(raw - base_raw);
                (f64::from(reported - base) / added, added / (added + WEIGHT))
            }
            // Such a count says nothing about texts.
            _ if leaves_out => (self.slope, 0.0),
            Some(_) => (overall, 0.1),
            None => (overall.min(densest), 1.0),
        };
        let slope = self.slope + (sample - self.slope) * weight;
        Self {
            slope: slope.clamp(*SLOPES.start(), *SLOPES.end()),
            anchor: Some((raw, reported)),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_overhead_outside_of_the_body_is_counted_once() {
        let truth = |raw: u32| 3_000 + raw * 9 / 10;
        let mut calibration = Calibration::default();
        for raw in (1_000..40_000).step_by(1_500) {
            calibration = calibration.learn_usage(raw, truth(raw), false);
        }
        let (expected, got) = (truth(50_000), calibration.to_expected_tokens(50_000));
        assert!(
            got.abs_diff(expected) * 20 < expected,
            "{got} for {expected}"
        );
    }

    #[test]
    fn an_overhead_of_a_small_first_request_is_no_density() {
        // A coding agent's first request in a window of 8,192.
        let learnt = Calibration::default().learn_usage(1_059, 2_075, false);
        assert!(learnt.to_expected_tokens(2_607) < 4_000);
        // A refusal needs room, whatever it is of.
        let refused = Calibration::default().learn_refusal(1_059, 2_075);
        assert!(refused.to_expected_tokens(2_607) > 5_000);
    }

    #[test]
    fn a_count_of_cache_misses_is_ignored() {
        let learnt = Calibration::default().learn_usage(10_000, 11_000, false);
        assert_eq!(learnt.learn_usage(11_000, 900, false), learnt);
        assert_eq!(learnt.learn_usage(0, 900, true), learnt);
    }

    #[test]
    fn a_proved_count_holds_however_low_it_is() {
        // Tools of 4,000 raw tokens are not counted, and texts are counted as they are estimated.
        let learnt = Calibration::default().learn_usage(4_500, 500, true);
        assert_eq!(learnt.to_expected_tokens(9_000), 5_000);
        assert!(learnt.to_raw_tokens(6_000, 0) > 9_000);
        let later = learnt.learn_usage(5_000, 1_000, false);
        assert_eq!(later.to_expected_tokens(9_000), 5_000);
    }

    #[test]
    fn a_low_count_that_was_of_a_part_is_forgotten_with_all_later_ones() {
        let learnt = Calibration::default().learn_usage(10_000, 3_000, true);
        assert!(learnt.is_far_below());
        let doubted = learnt.doubt_low_counts();
        assert_eq!(doubted.to_expected_tokens(12_000), 12_000);
        assert_eq!(doubted.learn_usage(12_000, 3_100, true), doubted);
        let later = doubted.learn_usage(12_000, 11_000, false);
        assert_eq!(later.learn_usage(13_000, 3_100, true), later);
    }

    #[test]
    fn a_refusal_below_half_of_the_estimate_holds_for_all_texts() {
        let learnt = Calibration::default().learn_refusal(40_000, 16_000);
        assert_eq!(learnt.to_expected_tokens(10_000), 4_000);
    }

    #[test]
    fn one_absurd_report_does_not_keep_out_the_true_ones() {
        for absurd in [30_000, 80_000, u32::MAX] {
            let mut calibration = Calibration::default().learn_usage(10_000, absurd, false);
            for raw in (10_300..12_000).step_by(300) {
                calibration = calibration.learn_usage(raw, raw * 11 / 10, false);
            }
            let expected = calibration.to_expected_tokens(12_000);
            assert!(expected.abs_diff(13_200) < 1_000, "{absurd}: {expected}");
        }
    }

    proptest! {
        #[test]
        fn a_request_within_its_raw_tokens_is_expected_to_fit(slope in 0.4f64..2.5, base in 0u32..200_000, tokens in 1_000u32..1_000_000, added in 0u32..100_000) {
            let calibration = Calibration { slope, anchor: Some((base, base)), doubts_low: false };
            let raw = calibration.to_raw_tokens(tokens, added);
            prop_assume!(raw > 0 && raw >= added);
            prop_assert!(calibration.to_expected_tokens(raw) <= tokens + 1);
            // Also where all added text is denser, and all removed text was lighter.
            let kept = f64::from(raw - added);
            let came = f64::from(added) * slope * DENSER;
            let stayed = f64::from(base) + (kept - f64::from(base)) * slope / DENSER;
            let overhead = (f64::from(base) * (1.0 - slope)).max(0.0);
            let stayed = stayed.min(overhead + kept * slope * DENSER);
            prop_assert!(kept > f64::from(base) || came + stayed <= f64::from(tokens) + 1.0);
        }

        #[test]
        fn the_reported_count_holds_for_the_same_request(slope in 0.4f64..2.5, raw in 1u32..200_000, base in 1u32..200_000) {
            let calibration = Calibration { slope, anchor: Some((raw, base)), doubts_low: false };
            prop_assert_eq!(calibration.to_raw_tokens(base, 0), raw);
        }

        #[test]
        fn without_an_answer_the_ratio_alone_decides(slope in 0.4f64..2.5, tokens in 1_000u32..1_000_000) {
            let calibration = Calibration::from_ratio(slope);
            let raw = calibration.to_raw_tokens(tokens, 1_000);
            prop_assert!(calibration.to_expected_tokens(raw) <= tokens + 1);
            prop_assert!(calibration.to_expected_tokens(raw + 2) + 3 >= tokens);
        }

        #[test]
        fn slopes_stay_within_their_bounds(samples in prop::collection::vec((any::<u32>(), any::<u32>(), any::<bool>()), 0..20)) {
            let mut calibration = Calibration::default();
            for (raw, reported, is_proved) in samples {
                calibration = calibration.learn_usage(raw, reported, is_proved);
                prop_assert!(SLOPES.contains(&calibration.slope()));
            }
        }
    }
}
