//! The budget of each request of a replay, and how deep a cut is.

use crate::{
    conversation::units::UnitKind,
    guard::{
        request::{
            budget::Budget, measured_request::MeasuredRequest, policy::Policy, view::RequestView,
        },
        shrink::{clearing, message_cuts::MessageCuts},
    },
};

/// The budgets of the requests that ended at each unit; raw tokens.
pub(super) struct ReplayBudgets {
    /// Without the tolerance.
    budgets: Vec<u32>,
    /// The tokens that no cut can free: system messages, the task, and what is sent in addition to the messages. Annotated
    /// texts that may be left out do not count, so that a cut is as deep with them as without them.
    fixed: Vec<u32>,
    /// The share of the room that a cut leaves filled. The room is the budget without the fixed tokens.
    pub(super) low_water: f64,
    /// Where clearing begins before the budget is reached; `None` where that is not set.
    pub(super) early: Option<EarlyClearing>,
    /// The share by which a request may exceed its budget before the first cut. It is 0 if a provider has counted or refused
    /// the conversation, or if the policy does not send when unsure. After the first cut it is 0, too, since a refused
    /// request costs more than a cut that comes early.
    tolerance: f64,
}

/// Clearing of old results before the budget is reached, as the settings ask for it.
pub(super) struct EarlyClearing {
    /// The share of the budget above which early clearing begins.
    share: f64,
    /// The budget that counts for early clearing, the same for all requests of a session; raw tokens.
    steady: u32,
    /// The fewest raw tokens that early clearing frees at once; with fewer it does nothing.
    pub(super) least_freed: u32,
}

impl ReplayBudgets {
    /// `raw` converts tokens of a budget into raw tokens; `is_counted`: a provider counted the conversation, or refused it.
    pub(super) fn new(
        view: RequestView<'_>,
        measured: &MeasuredRequest<'_>,
        cuts: &MessageCuts<'_>,
        low_water: f64,
        is_counted: bool,
        raw: impl Fn(u32) -> u32,
    ) -> Self {
        let raw = |budget: Budget| raw(budget.uncut_tokens());
        let steady = raw(measured.budgets.clearing_budget());
        let ends = view.units.iter().map(|unit| unit.messages.end);
        let is_tolerant = !is_counted && view.policy.sends_when_unsure();
        Self {
            early: EarlyClearing::from_settings(&view.policy, steady),
            budgets: ends
                .map(|end| raw(measured.budgets.budget_at(end)))
                .collect(),
            fixed: sum_fixed_messages(view, cuts, measured.shares.tools),
            low_water,
            tolerance: if is_tolerant {
                view.policy.rules.uncounted_error
            } else {
                0.0
            },
        }
    }

    /// The most raw tokens of the request that ended at a unit.
    pub(super) fn budget_at(&self, at: usize) -> u32 {
        self.budgets[at]
    }

    /// The same, and the tolerance while it lasts.
    pub(super) fn budget_with_tolerance(&self, at: usize) -> u32 {
        self.add_tolerance(self.budget_at(at))
    }

    /// The lowest budget of all requests.
    pub(super) fn lowest(&self) -> u32 {
        self.budgets.iter().min().copied().unwrap_or(0)
    }

    /// Raw tokens of the whole request that no cut can free.
    pub(super) fn fixed_tokens(&self) -> u32 {
        self.fixed.last().copied().unwrap_or(0)
    }

    /// The room: the budget without the fixed tokens.
    pub(super) fn room(&self, at: usize) -> u32 {
        self.budgets[at].saturating_sub(self.fixed[at])
    }

    /// The raw tokens that a cut leaves if it fills the share `low_water` of the room.
    pub(super) fn goal(&self, at: usize, low_water: f64) -> u32 {
        let filled = (f64::from(self.room(at)) * low_water) as u32;
        self.fixed[at].min(self.budgets[at]) + filled
    }

    /// The middle between the budget and what a cut with `low_water` leaves of it.
    pub(super) fn middle(&self, at: usize) -> u32 {
        let free = f64::from(self.room(at)) * (1.0 - self.low_water) / 2.0;
        (f64::from(self.budgets[at]) - free) as u32
    }

    /// The most raw tokens that are sent with a budget of `budget`.
    pub(super) fn add_tolerance(&self, budget: u32) -> u32 {
        budget.saturating_add((f64::from(budget) * self.tolerance) as u32)
    }

    /// Ends the tolerance, since a unit is cleared or left out, or the ledger is: from now on no request may exceed its budget.
    pub(super) fn end_tolerance(&mut self) {
        self.tolerance = 0.0;
    }

    /// Takes the raw tokens that clearing can free off the fixed ones: `freed` yields those of each unit.
    pub(super) fn take_off_fixed(&mut self, freed: impl Iterator<Item = u32>) {
        let mut sum = 0u32;
        for (fixed, freed) in self.fixed.iter_mut().zip(freed) {
            sum = sum.saturating_add(freed);
            *fixed = fixed.saturating_sub(sum);
        }
    }
}

impl EarlyClearing {
    fn from_settings(policy: &Policy<'_>, steady: u32) -> Option<Self> {
        let settings = &policy.settings.clear;
        let share = settings.at.filter(|_| settings.enabled)?;
        let least_freed = match (share, settings.at_least) {
            (0.0, None) => 1,
            _ => clearing::least_freed(policy),
        };
        Some(Self {
            share,
            steady,
            least_freed,
        })
    }

    /// The raw tokens above which early clearing begins in a request with a budget of `budget`.
    pub(super) fn find_mark(&self, budget: u32) -> u32 {
        (f64::from(self.steady.min(budget)) * self.share) as u32
    }
}

fn sum_fixed_messages(view: RequestView<'_>, cuts: &MessageCuts<'_>, beside: u32) -> Vec<u32> {
    let sums = view.units.iter().scan(beside, |sum, unit| {
        let is_task = unit.is_user() && unit.is_pinned;
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
