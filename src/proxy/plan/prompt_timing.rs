//! Whether a prompt goes with this request or another one.
//!
//! A prompt asks the model to save what a cut would take. Beside the cut it comes too late: what it is about is gone, and
//! the level falls without it. So it goes into the last request before a cut, if need be before it is due.

use super::{PlannedRequest, is_same_model, summary_due::expects_summary};
use crate::{
    proxy::{
        FollowedConversation,
        recovery_step::{PromptTiming, RecoveryRules},
    },
    recovery::{RecoveryAction, RecoveryHold, hold::FixedTokens},
};

/// Generations whose growth tells how large the next step may be.
const GROWTH_GENERATIONS: usize = 4;
/// A prompt with its tools may take this part of the budget, and so many tokens in a small one.
const PROMPT_SHARE: u32 = 8;
const PROMPT_TOKENS: u32 = 1_000;

/// How a request is compared with what is left of the budget.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GrowthCheck {
    /// It has no prompt yet: any that comes near is planned with one.
    Rough,
    /// It has the prompt.
    Exact,
}

/// The rules by which the request is planned again, where its plan shows that others hold for it.
pub(super) fn revise_rules<'a>(
    planned: &mut PlannedRequest,
    rules: RecoveryRules<'a>,
) -> Option<RecoveryRules<'a>> {
    let timing = match planned.caution_waits_since_ms {
        Some(_) => PromptTiming::CautionWaits,
        None if is_cut_below_prompt(planned) => PromptTiming::AllWait,
        None => PromptTiming::WhenDue,
    };
    let hold = match planned.recovery.depends_on_size() {
        true => {
            let fixed = FixedTokens::from_report(&planned.plan.report);
            RecoveryHold::of_fixed_part(fixed, planned.target.window.tokens, &planned.limits)
        }
        false => rules.hold,
    };
    let is_like = match (rules.hold, hold) {
        (Some(before), Some(hold)) => before.is_like(hold),
        (before, hold) => before == hold,
    };
    if let Some(hold) = hold {
        planned.recovery.note_hold(hold);
    }
    let revised = RecoveryRules {
        timing,
        hold,
        ..rules
    };
    (timing != rules.timing || !is_like).then_some(revised)
}

/// Whether the request has a prompt beside a cut that brings it below the level of the prompt.
pub(super) fn is_cut_below_prompt(planned: &PlannedRequest) -> bool {
    let (report, limits) = (&planned.plan.report, &planned.limits);
    let limit = match planned.recovery.injected() {
        Some(RecoveryAction::Caution) => Some(limits.optimal_max_tokens),
        Some(RecoveryAction::Critical { .. }) => limits.critical_max_tokens,
        Some(RecoveryAction::Course) | None => None,
    };
    report.is_cut_anew() && limit.is_some_and(|limit| report.expected <= limit)
}

/// Whether the session is healthy, and the request after this one is expected to be cut, so that a prompt goes with this one.
pub(super) fn precedes_cut(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
    check: GrowthCheck,
) -> bool {
    let (report, inherited) = (&planned.plan.report, &followed.session.inherited);
    let Some(state) = inherited.state.as_ref() else {
        return false;
    };
    let Some(last) = state.prompt_tokens else {
        return false;
    };
    let growth = report.expected.saturating_sub(last);
    let growth = growth.max(state.history.largest_growth(GROWTH_GENERATIONS));
    let next = report.expected.saturating_add(growth);
    let budget = report.budget.uncut_tokens();
    let is_near = match check {
        GrowthCheck::Rough => {
            let prompt = (budget / PROMPT_SHARE).max(PROMPT_TOKENS);
            planned.recovery.injected().is_none() && next.saturating_add(prompt) > budget
        }
        GrowthCheck::Exact => planned.recovery.injected().is_some() && next > budget,
    };
    is_near
        && next > planned.limits.optimal_max_tokens
        && planned.is_guarded()
        && planned.recovery.may_prompt_ahead()
        && !report.is_cut_anew()
        && !report.over_budget
        && is_same_model(inherited, &planned.target)
        && planned.target.has_meaningful_caution()
        && !expects_summary(followed, planned)
}
