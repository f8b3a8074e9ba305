//! Beyond which prompt size a model counts as used beyond its best, and as nearly full.
//!
//! Configured limits are used as written. The others are chosen so that both levels can occur:
//! the guard keeps prompts under the budget, so a plain 90 % of a small window would never be seen.

use crate::config::{GuardConfig, ModelConfig};

/// Beyond this, models are known to lose track, however large their window is.
const OPTIMAL_MAX_TOKENS: u32 = 100_000;

/// Prompt sizes in tokens at which the level changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Beyond this the level is caution.
    pub optimal_max_tokens: u32,
    /// Beyond this the level is critical; tested first.
    pub critical_max_tokens: u32,
}

/// The limits of a model with this window and, if it has one, this cap on the prompt alone.
/// `answer_inside` says whether the answer shares the window with the prompt.
pub fn limits(
    window: u32,
    input: Option<u32>,
    answer_inside: bool,
    guard: &GuardConfig,
    model: &ModelConfig,
) -> Limits {
    let budget = budget(window, input, answer_inside, guard);
    let critical = model
        .critical_max_tokens
        .unwrap_or_else(|| share(window, 90).min(share(budget, 90)));
    let optimal = model.optimal_max_tokens.unwrap_or_else(|| {
        if OPTIMAL_MAX_TOKENS < critical {
            OPTIMAL_MAX_TOKENS
        } else {
            share(budget, 60)
        }
    });
    Limits {
        optimal_max_tokens: optimal,
        critical_max_tokens: critical,
    }
}

/// What a prompt may use when the request says nothing about its answer.
fn budget(window: u32, input: Option<u32>, answer_inside: bool, guard: &GuardConfig) -> u32 {
    let reserve = match answer_inside {
        true => guard.reserve_tokens.min(window / 4),
        false => 0,
    };
    let cap = guard.max_prompt_tokens.unwrap_or(u32::MAX);
    (window - reserve).min(input.unwrap_or(u32::MAX)).min(cap)
}

/// `percent` of `tokens`, rounded down.
fn share(tokens: u32, percent: u32) -> u32 {
    let part = u64::from(tokens) * u64::from(percent) / 100;
    u32::try_from(part).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Limits, limits};
    use crate::config::{Config, ModelConfig};

    fn check(window: u32, input: Option<u32>, inside: bool, optimal: u32, critical: u32) {
        let expected = Limits {
            optimal_max_tokens: optimal,
            critical_max_tokens: critical,
        };
        let guard = Config::default().guard;
        let found = limits(window, input, inside, &guard, &ModelConfig::default());
        assert_eq!(found, expected, "window {window}, input {input:?}");
    }

    #[test]
    fn the_budget_pulls_the_critical_limit_under_the_plain_share() {
        check(128_000, None, true, 100_000, 107_827);
        check(200_000, None, true, 100_000, 172_627);
        check(1_000_000, None, true, 100_000, 892_627);
    }

    #[test]
    fn a_small_window_gets_limits_that_a_prompt_can_reach() {
        // The reserve is a quarter of 8,192 here, so 6,144 are left.
        check(8_192, None, true, 3_686, 5_529);
        check(32_768, None, true, 14_745, 22_118);
    }

    #[test]
    fn an_answer_counted_apart_leaves_the_whole_window() {
        check(200_000, None, false, 100_000, 180_000);
        check(100_000, None, false, 60_000, 90_000);
    }

    #[test]
    fn a_cap_on_the_prompt_alone_counts() {
        check(400_000, Some(272_000), true, 100_000, 244_800);
        check(128_000, Some(64_000), true, 38_400, 57_600);
    }

    #[test]
    fn a_cap_on_every_prompt_counts() {
        let mut guard = Config::default().guard;
        guard.max_prompt_tokens = Some(50_000);
        let found = limits(200_000, None, true, &guard, &ModelConfig::default());
        assert_eq!(found.critical_max_tokens, 45_000);
        assert_eq!(found.optimal_max_tokens, 30_000);
    }

    #[test]
    fn configured_limits_are_used_as_written() {
        let guard = Config::default().guard;
        let model = ModelConfig {
            optimal_max_tokens: Some(500_000),
            critical_max_tokens: Some(400_000),
            ..ModelConfig::default()
        };
        let found = limits(128_000, None, true, &guard, &model);
        assert_eq!(found.optimal_max_tokens, 500_000);
        assert_eq!(found.critical_max_tokens, 400_000);
    }

    proptest! {
        #[test]
        fn without_configured_limits_every_level_can_occur(
            window in 1024u32..=100_000_000,
            input in proptest::option::of(1024u32..=100_000_000),
            inside: bool,
            reserve in 1u32..=10_000_000,
        ) {
            let mut guard = Config::default().guard;
            guard.reserve_tokens = reserve;
            let found = limits(window, input, inside, &guard, &ModelConfig::default());
            prop_assert!(0 < found.optimal_max_tokens);
            prop_assert!(found.optimal_max_tokens < found.critical_max_tokens);
            prop_assert!(found.critical_max_tokens < window);
        }
    }
}
