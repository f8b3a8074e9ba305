//! Prompt sizes at which the levels caution and critical begin.
//!
//! Configured limits are used as written. By default, critical begins at nine tenths of the window, or of the session's
//! budget if the guard does not let prompts grow so far. If the window is only assumed, there is no critical limit,
//! since the level would be a guess.

use crate::config::ModelConfig;

/// Above this many tokens models are known to lose track, whatever their window.
const OPTIMAL_MAX_TOKENS: u32 = 100_000;
/// In percent of the window, or of the budget.
const CRITICAL_PERCENT: u32 = 90;
/// In percent of the budget; used if [`OPTIMAL_MAX_TOKENS`] would not be below the critical limit.
const OPTIMAL_PERCENT: u32 = 80;

/// Largest prompts of a level, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLimits {
    /// Above this the level is caution.
    pub optimal_max_tokens: u32,
    /// Above this the level is critical. `None` if the window is unknown.
    pub critical_max_tokens: Option<u32>,
}

/// The limits of a model with this window, for a request whose prompt may have `budget` tokens. An unknown window
/// (`None`) has only the optimal limit, as configured or by default; a configured critical limit has no effect then.
pub fn choose_health_limits(window: Option<u32>, budget: u32, model: &ModelConfig) -> HealthLimits {
    let Some(window) = window else {
        return HealthLimits {
            optimal_max_tokens: model.optimal_max_tokens.unwrap_or(OPTIMAL_MAX_TOKENS),
            critical_max_tokens: None,
        };
    };
    let of_window = percent_of(window, CRITICAL_PERCENT);
    let default_critical = if budget > of_window {
        of_window
    } else {
        percent_of(budget, CRITICAL_PERCENT)
    };
    let critical = model.critical_max_tokens.unwrap_or(default_critical);
    let default_optimal = if OPTIMAL_MAX_TOKENS < critical {
        OPTIMAL_MAX_TOKENS
    } else {
        let most = budget.min(window);
        percent_of(
            most.min(model.critical_max_tokens.unwrap_or(most)),
            OPTIMAL_PERCENT,
        )
    };
    HealthLimits {
        optimal_max_tokens: model.optimal_max_tokens.unwrap_or(default_optimal),
        critical_max_tokens: Some(critical),
    }
}

/// `percent` (at most 100) of `tokens`, rounded down.
fn percent_of(tokens: u32, percent: u32) -> u32 {
    (u64::from(tokens) * u64::from(percent) / 100) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::GuardConfig;

    /// The limits by default, with the budget of a request without an answer cap.
    fn limits(window: u32, input: Option<u32>, inside: bool, guard: &GuardConfig) -> HealthLimits {
        let reserve = if inside {
            guard.default_reserve(window)
        } else {
            0
        };
        let budget = guard.limit_prompt(window - reserve, input);
        choose_health_limits(Some(window), budget, &ModelConfig::default())
    }

    fn check(window: u32, input: Option<u32>, inside: bool, optimal: u32, critical: u32) {
        let expected = HealthLimits {
            optimal_max_tokens: optimal,
            critical_max_tokens: Some(critical),
        };
        let found = limits(window, input, inside, &GuardConfig::default());
        assert_eq!(found, expected, "window {window}, input {input:?}");
    }

    #[test]
    fn critical_begins_at_nine_tenths_of_the_window_or_of_a_smaller_budget() {
        // 7,168 are left beside the least reserve of 1,024, of them 112 as a margin.
        check(8_192, None, true, 5_644, 6_350);
        check(32_768, None, true, 24_730, 29_491);
        check(128_000, None, true, 100_000, 115_200);
        check(200_000, None, true, 100_000, 180_000);
        check(1_000_000, None, true, 100_000, 900_000);
    }

    #[test]
    fn an_answer_outside_the_window_leaves_all_of_it() {
        check(200_000, None, false, 100_000, 180_000);
        check(100_000, None, false, 78_750, 90_000);
    }

    #[test]
    fn an_input_limit_lowers_the_limits() {
        check(400_000, Some(272_000), true, 100_000, 240_975);
        check(128_000, Some(64_000), true, 50_400, 56_700);
    }

    #[test]
    fn a_configured_prompt_cap_lowers_the_limits() {
        let guard = GuardConfig {
            max_prompt_tokens: Some(50_000),
            ..GuardConfig::default()
        };
        let found = limits(200_000, None, true, &guard);
        assert_eq!(found.critical_max_tokens, Some(44_297));
        assert_eq!(found.optimal_max_tokens, 39_375);
    }

    #[test]
    fn the_limits_follow_the_budget_of_the_session() {
        let model = ModelConfig::default();
        let found = choose_health_limits(Some(32_768), 20_000, &model);
        assert_eq!(found.critical_max_tokens, Some(18_000));
        assert_eq!(found.optimal_max_tokens, 16_000);
    }

    #[test]
    fn an_unknown_window_has_the_default_optimal_limit_and_no_critical_one() {
        for budget in [20_000, u32::MAX] {
            let found = choose_health_limits(None, budget, &ModelConfig::default());
            assert_eq!(found.optimal_max_tokens, 100_000);
            assert_eq!(found.critical_max_tokens, None);
        }
    }

    #[test]
    fn configured_limits_are_used_as_written() {
        let model = ModelConfig {
            optimal_max_tokens: Some(500_000),
            critical_max_tokens: Some(400_000),
            ..ModelConfig::default()
        };
        for budget in [1_000, 126_000] {
            let found = choose_health_limits(Some(128_000), budget, &model);
            assert_eq!(found.optimal_max_tokens, 500_000);
            assert_eq!(found.critical_max_tokens, Some(400_000));
            let unknown = choose_health_limits(None, budget, &model);
            assert_eq!(unknown.optimal_max_tokens, 500_000);
            assert_eq!(unknown.critical_max_tokens, None);
        }
    }

    proptest! {
        #[test]
        fn without_configured_limits_every_level_can_occur(
            window in 1024u32..=100_000_000,
            budget in 500u32..=100_000_000,
        ) {
            let found = choose_health_limits(Some(window), budget.min(window - 1), &ModelConfig::default());
            let critical = found.critical_max_tokens.unwrap();
            prop_assert!(0 < found.optimal_max_tokens);
            prop_assert!(found.optimal_max_tokens < critical);
            prop_assert!(critical < budget);
        }
    }
}
