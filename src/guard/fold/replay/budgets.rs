//! What each request of a replay may have, and how far a cut goes.

use crate::{
    conversation::units::UnitKind,
    guard::{
        request::{measured_request::MeasuredRequest, policy::Policy, view::RequestView},
        shrink::{clear, cuts::MessageCuts},
    },
};

/// The part of a budget that an estimate without any usage may pass by its error: that of 95 % of the recorded requests
/// of 2 kB and more lies within it (`tests/it/estimate.rs`).
const UNCOUNTED_ERROR: f64 = 0.07;

/// What the request may have that ended at each unit; raw tokens.
pub(in crate::guard) struct ReplayBudgets {
    high: Vec<u32>,
    /// What no cut can take: system messages, the task, and what stands beside the messages. Annotated texts that may go
    /// are none of it, so that a cut goes as deep whether they went or not.
    fixed: Vec<u32>,
    /// How full a cut leaves the room beside what is fixed.
    pub(super) low_water: f64,
    /// Where clearing begins before the budget is reached; `None` where that is not set.
    pub(super) early: Option<EarlyClearing>,
    /// The part of a budget that may be passed before the first cut: 0 but where nothing was counted. After it a
    /// cut was due for certain, and requests that are refused cost more than one that comes early.
    tolerance: f64,
}

/// Clearing of old results before the budget is reached, as the settings ask for it.
pub(super) struct EarlyClearing {
    /// Raw tokens of the request that ended at each unit, past which it begins.
    pub(super) marks: Vec<u32>,
    /// Raw tokens that it frees at least.
    pub(super) least_freed: u32,
}

impl ReplayBudgets {
    /// `raw` makes raw tokens of a budget's; `is_counted`: a provider counted the conversation, or refused it.
    pub(in crate::guard) fn new(
        view: RequestView<'_>,
        measured: &MeasuredRequest<'_>,
        cuts: &MessageCuts<'_>,
        low_water: f64,
        is_counted: bool,
        raw: impl Fn(u32) -> u32,
    ) -> Self {
        let steady = raw(measured.budgets.clearing_budget().uncut_tokens());
        let high = compute_high_marks(view, measured, raw);
        let is_tolerant = !is_counted && view.policy.sends_when_unsure();
        Self {
            early: EarlyClearing::from_settings(&view.policy, steady, &high),
            high,
            fixed: sum_fixed_messages(view, cuts, measured.shares.tools),
            low_water,
            tolerance: if is_tolerant { UNCOUNTED_ERROR } else { 0.0 },
        }
    }

    /// The most raw tokens of the request that ended at a unit.
    pub(super) fn most(&self, at: usize) -> u32 {
        self.high[at]
    }

    /// The least that any request may have.
    pub(super) fn lowest(&self) -> u32 {
        self.high.iter().min().copied().unwrap_or(0)
    }

    /// The room beside what is fixed.
    pub(super) fn room(&self, at: usize) -> u32 {
        self.high[at].saturating_sub(self.fixed[at])
    }

    /// What a cut leaves that fills so much of the room.
    pub(super) fn goal(&self, at: usize, low_water: f64) -> u32 {
        let filled = (f64::from(self.room(at)) * low_water) as u32;
        self.fixed[at].min(self.high[at]) + filled
    }

    /// Midway between the budget and what a cut leaves of it in general.
    pub(super) fn middle(&self, at: usize) -> u32 {
        let free = f64::from(self.room(at)) * (1.0 - self.low_water) / 2.0;
        (f64::from(self.high[at]) - free) as u32
    }

    /// The most raw tokens that go out with a budget of so many.
    pub(in crate::guard) fn add_tolerance(&self, high: u32) -> u32 {
        high.saturating_add((f64::from(high) * self.tolerance) as u32)
    }

    /// Something is cut: no budget is passed any more.
    pub(super) fn end_tolerance(&mut self) {
        self.tolerance = 0.0;
    }

    /// Clearing takes raw tokens off what is fixed, of which `freed` yields those of each unit.
    pub(super) fn take_off_fixed(&mut self, freed: impl Iterator<Item = u32>) {
        let mut sum = 0u32;
        for (fixed, freed) in self.fixed.iter_mut().zip(freed) {
            sum = sum.saturating_add(freed);
            *fixed = fixed.saturating_sub(sum);
        }
    }
}

impl EarlyClearing {
    /// `steady`: the raw tokens by which it goes.
    fn from_settings(policy: &Policy<'_>, steady: u32, high: &[u32]) -> Option<Self> {
        let settings = &policy.settings.clear;
        let at = settings.at.filter(|_| settings.enabled)?;
        let mark = |high: &u32| (f64::from(steady.min(*high)) * at) as u32;
        Some(Self {
            marks: high.iter().map(mark).collect(),
            least_freed: match (at, settings.at_least) {
                (0.0, None) => 1,
                _ => clear::least_freed(policy),
            },
        })
    }
}

/// Raw tokens that the request may have that ended at each unit; `raw` makes them of a budget's tokens.
fn compute_high_marks(
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    raw: impl Fn(u32) -> u32,
) -> Vec<u32> {
    // Budgets change with the longest answer so far: seldom.
    let mut before = None;
    let ends = view.units.iter().map(|unit| unit.messages.end);
    ends.map(|end| {
        let budget = measured.budgets.budget_at(end).uncut_tokens();
        let high = match before {
            Some((same, high)) if same == budget => high,
            _ => raw(budget),
        };
        before = Some((budget, high));
        high
    })
    .collect()
}

fn sum_fixed_messages(view: RequestView<'_>, cuts: &MessageCuts<'_>, beside: u32) -> Vec<u32> {
    let sums = view.units.iter().scan(beside, |sum, unit| {
        let is_task = unit.is_user() && unit.stays;
        let fixed = if is_task || unit.kind == UnitKind::System {
            unit.messages.clone()
        } else {
            unit.bound_messages()
        };
        *sum = sum.saturating_add(cuts.weigh_least(fixed));
        Some(*sum)
    });
    sums.collect()
}
