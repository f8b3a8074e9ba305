//! Beyond which prompt size a model counts as used beyond its best, and as nearly full.
//!
//! Configured limits are used as written. The others are chosen so that both levels can occur:
//! the guard keeps prompts under the budget, so a plain 90 % of a small window would never be seen,
//! nor would 90 % of the usual budget where a request keeps more than usual free for its answer.
//! A window that is only assumed gives no limit, because a level that rests on it would be a guess.

use crate::config::{GuardConfig, ModelConfig};

/// Beyond this, models are known to lose track, however large their window is.
const OPTIMAL_MAX_TOKENS: u32 = 100_000;
/// What the guard leaves free below every budget, as a share of it.
const MARGIN: u32 = 64;

/// Prompt sizes in tokens at which the level changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLimits {
    /// Beyond this the level is caution.
    pub optimal_max_tokens: u32,
    /// Beyond this the level is critical; tested first. `None`: the window is not known.
    pub critical_max_tokens: Option<u32>,
}

/// The limits of a model with this window, in tokens, and, if it has one, this cap on the prompt
/// alone. Of an unknown window (`None`) only the optimal limit remains, as configured or at its plain
/// default; a configured critical limit has no effect then.
/// `answer_inside` says whether the answer shares the window with the prompt. `own` is the budget
/// of one request in tokens, where the limits are for one; a larger one than usual changes nothing.
pub fn choose_health_limits(
    window: Option<u32>,
    input: Option<u32>,
    answer_inside: bool,
    guard: &GuardConfig,
    model: &ModelConfig,
    own: Option<u32>,
) -> HealthLimits {
    let Some(window) = window else {
        return HealthLimits {
            optimal_max_tokens: model.optimal_max_tokens.unwrap_or(OPTIMAL_MAX_TOKENS),
            critical_max_tokens: None,
        };
    };
    let usual = usual_budget(window, input, answer_inside, guard);
    let budget = own.map_or(usual, |own| own.min(usual));
    let critical = model
        .critical_max_tokens
        .unwrap_or_else(|| percent_of(window, 90).min(percent_of(budget, 90)));
    let optimal = model.optimal_max_tokens.unwrap_or_else(|| {
        if OPTIMAL_MAX_TOKENS < critical {
            OPTIMAL_MAX_TOKENS
        } else {
            percent_of(budget, 60)
        }
    });
    HealthLimits {
        optimal_max_tokens: optimal,
        critical_max_tokens: Some(critical),
    }
}

/// What a prompt may use when the request says nothing about its answer.
fn usual_budget(window: u32, input: Option<u32>, answer_inside: bool, guard: &GuardConfig) -> u32 {
    let reserve = match answer_inside {
        true => guard.reserve_tokens.min(window / 4),
        false => 0,
    };
    let cap = guard.max_prompt_tokens.unwrap_or(u32::MAX);
    let least = (window - reserve).min(input.unwrap_or(u32::MAX)).min(cap);
    least - least / MARGIN
}

/// `percent` of `tokens`, rounded down.
fn percent_of(tokens: u32, percent: u32) -> u32 {
    let part = u64::from(tokens) * u64::from(percent) / 100;
    u32::try_from(part).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{HealthLimits, choose_health_limits};
    use crate::{
        config::{Config, ModelConfig},
        format::chat,
        guard::{Policy, budget::compute_request_budget, profile},
    };

    fn check(window: u32, input: Option<u32>, inside: bool, optimal: u32, critical: u32) {
        let expected = HealthLimits {
            optimal_max_tokens: optimal,
            critical_max_tokens: Some(critical),
        };
        let guard = Config::default().guard;
        let found = choose_health_limits(
            Some(window),
            input,
            inside,
            &guard,
            &ModelConfig::default(),
            None,
        );
        assert_eq!(found, expected, "window {window}, input {input:?}");
    }

    #[test]
    fn the_budget_pulls_the_critical_limit_under_the_plain_share() {
        check(128_000, None, true, 100_000, 106_142);
        check(200_000, None, true, 100_000, 169_929);
        check(1_000_000, None, true, 100_000, 878_679);
    }

    #[test]
    fn a_small_window_gets_limits_that_a_prompt_can_reach() {
        // The reserve is a quarter of 8,192 here, so 6,144 are left, 96 of them as a margin.
        check(8_192, None, true, 3_628, 5_443);
        check(32_768, None, true, 14_515, 21_772);
    }

    #[test]
    fn an_answer_counted_apart_leaves_the_whole_window() {
        check(200_000, None, false, 100_000, 177_187);
        check(100_000, None, false, 59_062, 88_594);
    }

    #[test]
    fn a_cap_on_the_prompt_alone_counts() {
        check(400_000, Some(272_000), true, 100_000, 240_975);
        check(128_000, Some(64_000), true, 37_800, 56_700);
    }

    #[test]
    fn a_cap_on_every_prompt_counts() {
        let mut guard = Config::default().guard;
        guard.max_prompt_tokens = Some(50_000);
        let model = ModelConfig::default();
        let found = choose_health_limits(Some(200_000), None, true, &guard, &model, None);
        assert_eq!(found.critical_max_tokens, Some(44_297));
        assert_eq!(found.optimal_max_tokens, 29_531);
    }

    /// Whatever else is set: nothing is derived from a window that nobody knows.
    #[test]
    fn an_unknown_window_has_the_plain_optimal_limit_and_no_critical_one() {
        let mut guard = Config::default().guard;
        guard.max_prompt_tokens = Some(50_000);
        let model = ModelConfig::default();
        for (input, own) in [(None, None), (Some(30_000), Some(20_000))] {
            let found = choose_health_limits(None, input, true, &guard, &model, own);
            assert_eq!(found.optimal_max_tokens, 100_000);
            assert_eq!(found.critical_max_tokens, None);
        }
    }

    #[test]
    fn configured_limits_are_used_as_written() {
        let guard = Config::default().guard;
        let model = ModelConfig {
            optimal_max_tokens: Some(500_000),
            critical_max_tokens: Some(400_000),
            ..ModelConfig::default()
        };
        for own in [None, Some(1_000)] {
            let found = choose_health_limits(Some(128_000), None, true, &guard, &model, own);
            assert_eq!(found.optimal_max_tokens, 500_000);
            assert_eq!(found.critical_max_tokens, Some(400_000));
            let unknown = choose_health_limits(None, None, true, &guard, &model, own);
            assert_eq!(unknown.optimal_max_tokens, 500_000);
            assert_eq!(unknown.critical_max_tokens, None);
        }
    }

    /// What the guard lets a prompt use where the request asks for so long an answer.
    fn own_budget(window: u32, max_tokens: Option<u32>) -> u32 {
        let asked =
            max_tokens.map_or_else(String::new, |asked| format!(r#","max_tokens":{asked}"#));
        let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{asked}}}"#);
        let settings = Config::default().guard;
        let policy = Policy {
            profile: profile::find_profile("openai").unwrap(),
            window,
            input_limit: None,
            settings: &settings,
        };
        compute_request_budget(&chat::index_body(Bytes::from(body)).unwrap(), &policy).tokens
    }

    #[test]
    fn critical_comes_before_the_guard_cuts_whatever_the_answer_may_be() {
        let guard = Config::default().guard;
        for window in [32_768, 128_000, 200_000, 1_000_000] {
            let model = ModelConfig::default();
            let usual = choose_health_limits(Some(window), None, true, &guard, &model, None);
            let asked = [4_096, 16_384, 32_768, window / 2].map(Some);
            for max_tokens in [None].into_iter().chain(asked) {
                let own = own_budget(window, max_tokens);
                let found =
                    choose_health_limits(Some(window), None, true, &guard, &model, Some(own));
                let critical = found.critical_max_tokens.unwrap();
                let most = u64::from(own) * 9 / 10;
                assert!(u64::from(critical) <= most, "{window}, {max_tokens:?}");
                assert!(found.optimal_max_tokens < critical);
                // Room for less answer than usual moves nothing.
                if max_tokens.is_none_or(|asked| asked <= 8_192) {
                    assert_eq!(found, usual, "{window}, {max_tokens:?}");
                } else {
                    assert_eq!(u64::from(critical), most);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn without_configured_limits_every_level_can_occur(
            window in 1024u32..=100_000_000,
            input in proptest::option::of(1024u32..=100_000_000),
            inside: bool,
            reserve in 1u32..=10_000_000,
            own in proptest::option::of(500u32..=100_000_000),
        ) {
            let mut guard = Config::default().guard;
            guard.reserve_tokens = reserve;
            let model = ModelConfig::default();
            let found = choose_health_limits(Some(window), input, inside, &guard, &model, own);
            let critical = found.critical_max_tokens.unwrap();
            prop_assert!(0 < found.optimal_max_tokens);
            prop_assert!(found.optimal_max_tokens < critical);
            prop_assert!(critical < window);
            if let Some(own) = own {
                prop_assert!(u64::from(critical) * 10 <= u64::from(own) * 9);
            }
        }
    }
}
