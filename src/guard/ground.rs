//! What a grid of cuts stands on: the window, the settings, and what no cut can take.
//!
//! The step of the grid is `1 - low_water` of the room that the fixed part (system messages, tools, the first user
//! message) leaves in the usual budget. A session keeps its ground while the fixed part moves by a sixteenth of the
//! window at most: what lies at a boundary of the rounding then moves no cut.

use serde::{Deserialize, Serialize};

use super::{Policy, budget, clear};

/// Windows up to this are cut to half, larger ones to 0.7 of their budget.
pub(super) const SMALL_WINDOW: u32 = 65_536;

/// What a grid stands on. The same ground gives the same grid in any process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ground {
    window: u32,
    /// The budget of a request that says nothing of its own.
    usual: u32,
    /// In thousandths.
    low_water: u32,
    /// Raw tokens of system messages, tools and the first user message, rounded up to a sixteenth
    /// of the window, so that a word more in the system prompt does not move every cut.
    fixed: u32,
    /// Raw tokens between two places to which old rounds may be cleared; 0 where none are.
    clear_step: u32,
    /// Digest of what else says which results those are.
    clear_rules: u64,
}

impl Ground {
    pub(super) fn from_policy(policy: &Policy<'_>, fixed: u32) -> Self {
        let window = policy.window;
        let usual_mark = if window <= SMALL_WINDOW { 0.5 } else { 0.7 };
        let low_water = policy.settings.low_water.unwrap_or(usual_mark);
        let sixteenth = window_sixteenth(window);
        let usual = budget::default_budget(policy).tokens;
        Self {
            window,
            usual,
            low_water: (low_water * 1_000.0) as u32,
            fixed: fixed.div_ceil(sixteenth).saturating_mul(sixteenth),
            clear_step: clear::clearing_step(policy, usual),
            clear_rules: clear::digest_clear_rules(policy),
        }
    }

    /// The ground of before, where this one is hardly another: what lies at a boundary of the
    /// rounding would otherwise move every cut to and fro.
    pub(super) fn or_previous(self, before: Self) -> Self {
        let near = self.fixed.abs_diff(before.fixed) <= window_sixteenth(self.window);
        let same = Self {
            fixed: before.fixed,
            ..self
        };
        if near && same == before { before } else { self }
    }

    /// Raw tokens between two places to which old rounds may be cleared, where they are at all.
    pub(super) fn clear_step(&self) -> Option<u32> {
        Some(self.clear_step).filter(|&step| step > 0)
    }

    /// Raw tokens between two cuts.
    pub(super) fn grid_step(&self) -> u32 {
        let room = f64::from(self.usual.saturating_sub(self.fixed));
        let step = room * f64::from(1_000 - self.low_water.min(1_000)) / 1_000.0;
        (step as u32).max(self.window / 64).max(64)
    }
}

fn window_sixteenth(window: u32) -> u32 {
    (window / 16).max(1)
}
