//! Prompt sizes at which the levels caution and critical begin.
//!
//! Configured limits are used as written. The defaults let both levels occur although the guard keeps
//! prompts under the budget: 90 % of a small window is above the budget, and so is 90 % of the usual
//! budget if a request reserves more than usual for its answer. An assumed window gives no limit, since
//! its level would be a guess.

use crate::config::{GuardConfig, ModelConfig};

/// Above this models are known to lose track, whatever their window.
const OPTIMAL_MAX_TOKENS: u32 = 100_000;
/// The guard leaves one part in this many of every budget free.
const MARGIN: u32 = 64;

/// Largest prompts of a level, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLimits {
    /// Above this the level is caution.
    pub optimal_max_tokens: u32,
    /// Above this the level is critical. `None` if the window is unknown.
    pub critical_max_tokens: Option<u32>,
}

/// The limits of a model with this window and this cap on prompts, in tokens. An unknown window
/// (`None`) has only the optimal limit, as configured or by default; a configured critical limit has no
/// effect then. `answer_inside` says that the answer shares the window with the prompt.
/// `request_budget` is that of one request in tokens, if the limits are for one; it counts only if it
/// is smaller than the usual budget.
pub fn choose_health_limits(
    window: Option<u32>,
    input: Option<u32>,
    answer_inside: bool,
    guard: &GuardConfig,
    model: &ModelConfig,
    request_budget: Option<u32>,
) -> HealthLimits {
    let Some(window) = window else {
        return HealthLimits {
            optimal_max_tokens: model.optimal_max_tokens.unwrap_or(OPTIMAL_MAX_TOKENS),
            critical_max_tokens: None,
        };
    };
    let usual = usual_budget(window, input, answer_inside, guard);
    let budget = usual.min(request_budget.unwrap_or(u32::MAX));
    let critical = model.critical_max_tokens;
    let critical = critical.unwrap_or_else(|| percent_of(window.min(budget), 90));
    let default_optimal = match OPTIMAL_MAX_TOKENS < critical {
        true => OPTIMAL_MAX_TOKENS,
        false => percent_of(budget, 60),
    };
    HealthLimits {
        optimal_max_tokens: model.optimal_max_tokens.unwrap_or(default_optimal),
        critical_max_tokens: Some(critical),
    }
}

/// The budget of a request without an answer cap.
fn usual_budget(window: u32, input: Option<u32>, answer_inside: bool, guard: &GuardConfig) -> u32 {
    let reserve = match answer_inside {
        true => guard.reserve_tokens.min(window / 4),
        false => 0,
    };
    let cap = guard.max_prompt_tokens.unwrap_or(u32::MAX);
    let least = (window - reserve).min(input.unwrap_or(u32::MAX)).min(cap);
    least - least / MARGIN
}

/// `percent` (at most 100) of `tokens`, rounded down.
fn percent_of(tokens: u32, percent: u32) -> u32 {
    (u64::from(tokens) * u64::from(percent) / 100) as u32
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
        let (guard, model) = (Config::default().guard, ModelConfig::default());
        let found = choose_health_limits(Some(window), input, inside, &guard, &model, None);
        assert_eq!(found, expected, "window {window}, input {input:?}");
    }

    #[test]
    fn the_critical_limit_is_a_share_of_the_budget() {
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
    fn an_answer_outside_the_window_leaves_all_of_it() {
        check(200_000, None, false, 100_000, 177_187);
        check(100_000, None, false, 59_062, 88_594);
    }

    #[test]
    fn an_input_limit_lowers_the_limits() {
        check(400_000, Some(272_000), true, 100_000, 240_975);
        check(128_000, Some(64_000), true, 37_800, 56_700);
    }

    #[test]
    fn a_configured_prompt_cap_lowers_the_limits() {
        let mut guard = Config::default().guard;
        guard.max_prompt_tokens = Some(50_000);
        let model = ModelConfig::default();
        let found = choose_health_limits(Some(200_000), None, true, &guard, &model, None);
        assert_eq!(found.critical_max_tokens, Some(44_297));
        assert_eq!(found.optimal_max_tokens, 29_531);
    }

    #[test]
    fn an_unknown_window_has_the_default_optimal_limit_and_no_critical_one() {
        let mut guard = Config::default().guard;
        guard.max_prompt_tokens = Some(50_000);
        let model = ModelConfig::default();
        for (input, budget) in [(None, None), (Some(30_000), Some(20_000))] {
            let found = choose_health_limits(None, input, true, &guard, &model, budget);
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
        for budget in [None, Some(1_000)] {
            let found = choose_health_limits(Some(128_000), None, true, &guard, &model, budget);
            assert_eq!(found.optimal_max_tokens, 500_000);
            assert_eq!(found.critical_max_tokens, Some(400_000));
            let unknown = choose_health_limits(None, None, true, &guard, &model, budget);
            assert_eq!(unknown.optimal_max_tokens, 500_000);
            assert_eq!(unknown.critical_max_tokens, None);
        }
    }

    /// The budget of a request with this answer cap.
    fn request_budget(window: u32, max_tokens: Option<u32>) -> u32 {
        let field = max_tokens.map(|most| format!(r#","max_tokens":{most}"#));
        let field = field.unwrap_or_default();
        let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{field}}}"#);
        let settings = Config::default().guard;
        let policy = Policy {
            profile: profile::find_profile("openai").unwrap(),
            window,
            input_limit: None,
            tokens: crate::config::tokens::unknown_model(),
            settings: &settings,
        };
        compute_request_budget(&chat::index_body(Bytes::from(body)).unwrap(), &policy).tokens
    }

    #[test]
    fn critical_begins_before_the_guard_cuts_for_any_answer_cap() {
        let guard = Config::default().guard;
        for window in [32_768, 128_000, 200_000, 1_000_000] {
            let model = ModelConfig::default();
            let usual = choose_health_limits(Some(window), None, true, &guard, &model, None);
            let asked = [4_096, 16_384, 32_768, window / 2].map(Some);
            for max_tokens in [None].into_iter().chain(asked) {
                let budget = request_budget(window, max_tokens);
                let found =
                    choose_health_limits(Some(window), None, true, &guard, &model, Some(budget));
                let critical = found.critical_max_tokens.unwrap();
                let most = u64::from(budget) * 9 / 10;
                assert!(u64::from(critical) <= most, "{window}, {max_tokens:?}");
                assert!(found.optimal_max_tokens < critical);
                // A smaller answer than usual changes nothing.
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
            budget in proptest::option::of(500u32..=100_000_000),
        ) {
            let mut guard = Config::default().guard;
            guard.reserve_tokens = reserve;
            let model = ModelConfig::default();
            let found = choose_health_limits(Some(window), input, inside, &guard, &model, budget);
            let critical = found.critical_max_tokens.unwrap();
            prop_assert!(0 < found.optimal_max_tokens);
            prop_assert!(found.optimal_max_tokens < critical);
            prop_assert!(critical < window);
            if let Some(budget) = budget {
                prop_assert!(u64::from(critical) * 10 <= u64::from(budget) * 9);
            }
        }
    }
}
