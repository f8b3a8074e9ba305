//! The window, the budget and the depth that cuts were made for. A cut that was made for others is made anew.

use serde::{Deserialize, Serialize};

use crate::{
    config::{CutOrder, Keep},
    guard::request::{
        budget::{self, MEDIUM_WINDOW},
        policy::Policy,
    },
};

/// Tokens. With `guard.keep = "balanced"`, a cut leaves 0.7 of the room filled in windows up to this one, 0.6 in windows
/// up to [`MEDIUM_WINDOW`], and 0.7 in larger ones.
const SMALL_WINDOW: u32 = 16_384;

/// What cuts were made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::guard) struct CutBasis {
    window: u32,
    /// The largest prompt, if no room is kept for the answer; tokens. For an open budget, this is the budget that is
    /// assumed: cuts that were made for it stay.
    most: u32,
    /// The share of the room that a cut leaves filled; in thousandths.
    low_water: u32,
}

impl CutBasis {
    pub(in crate::guard) fn from_policy(policy: &Policy<'_>) -> Self {
        let window = policy.window;
        let settings = policy.settings;
        let usual = match settings.keep {
            Keep::Most => 0.8,
            Keep::Balanced if window > SMALL_WINDOW && window <= MEDIUM_WINDOW => 0.6,
            Keep::Balanced => 0.7,
            Keep::Saver => 0.3,
        };
        let low_water = match settings.order {
            CutOrder::Worth => settings.low_water.unwrap_or(usual),
            CutOrder::Oldest => 1.0,
        };
        Self {
            window,
            most: budget::budget_with_reserve(0, policy).tokens,
            low_water: (low_water * 1_000.0) as u32,
        }
    }

    /// The share of the room that a cut leaves filled. The room is the budget without the fixed tokens, which no cut can
    /// free.
    pub(in crate::guard) fn low_water(&self) -> f64 {
        f64::from(self.low_water) / 1_000.0
    }
}
