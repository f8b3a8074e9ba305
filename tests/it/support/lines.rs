//! The guard's lines of defence, switched on and off in every combination.

use plimsoll::config::{ClearConfig, GuardConfig};

use super::generate::Random;

/// Settings by the seed: clearing with and without inputs, excluded tools, and every threshold.
pub(crate) fn any_settings(seed: u64) -> GuardConfig {
    let mut random = Random::part(seed, 17);
    let defaults = GuardConfig::default();
    let at = [0.3, 0.6, 0.8, 1.0][random.below(4)];
    let at_least = [None, Some(0.02), Some(0.1), Some(0.5)][random.below(4)];
    let exclude = ["read*", "bash", "f"].map(str::to_owned);
    let clear = ClearConfig {
        enabled: random.chance(85),
        at,
        at_least,
        keep_rounds: random.between(1, 3) as u32,
        keep_steps: [1, 2, 4, 10][random.below(4)],
        exclude: exclude.into_iter().take(random.below(4)).collect(),
        inputs: random.chance(50),
    };
    GuardConfig {
        clear,
        low_water: random.chance(30).then_some(0.6),
        ..defaults
    }
}
