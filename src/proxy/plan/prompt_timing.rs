//! Decides whether a prompt is sent with this request or with a later one, and what holds it back.
//!
//! A prompt asks the model to save what a cut would remove. In the same request as the cut it comes too late: the messages
//! are gone, and the level falls without the prompt. So the prompt is sent in the last request before a cut, even before it
//! is due.

use super::{PlannedRequest, is_same_model, summary_due::expects_summary};
use crate::{
    proxy::{
        FollowedConversation,
        recovery_step::{PromptTiming, RecoveryRules},
    },
    recovery::{RecoveryAction, RecoveryHold, has_little_room},
};

/// Generations whose growth shows how large the next step may be.
const GROWTH_GENERATIONS: usize = 4;
/// Tokens that a built-in prompt with its tools takes at most; a longer text of `prompts_dir` is caught by the second check
/// in `plan_request`.
pub(super) const PROMPT_TOKENS: u32 = 1_000;

/// Returns rules for a second plan, if the first plan shows that the prompt must wait, that the fixed part is beyond a
/// level, or that there is too little room for `recall`; else `None`.
pub(super) fn revise_rules<'a>(
    planned: &PlannedRequest,
    rules: RecoveryRules<'a>,
) -> Option<RecoveryRules<'a>> {
    let waits = planned.caution_waits_since_ms.is_some() || is_cut_below_prompt(planned);
    let (report, window) = (&planned.plan.report, planned.target.window.tokens);
    let hold = RecoveryHold::of_fixed_part(report, window, &planned.limits);
    let hold = hold.filter(|_| planned.recovery.may_begin());
    let timing = if waits {
        PromptTiming::Waits
    } else {
        PromptTiming::WhenDue
    };
    let holds_recall = planned.recovery.offers_first_recall() && has_little_room(report, window);
    (waits || hold.is_some() || holds_recall).then_some(RecoveryRules {
        timing,
        hold,
        holds_recall,
        ..rules
    })
}

/// Whether the request has both a prompt and a new cut, and the cut brings it below the level of the prompt.
pub(super) fn is_cut_below_prompt(planned: &PlannedRequest) -> bool {
    let (report, limits) = (&planned.plan.report, &planned.limits);
    let limit = match planned.recovery.injected() {
        Some(RecoveryAction::Caution) => Some(limits.optimal_max_tokens),
        Some(RecoveryAction::Critical { .. }) => limits.critical_max_tokens,
        Some(RecoveryAction::Course) | None => None,
    };
    report.is_cut_anew() && limit.is_some_and(|limit| report.expected <= limit)
}

/// Whether the session is healthy, and the next request is expected to be cut if `more` tokens are added to this one. Then a
/// prompt is sent with this request, at most once in a cadence.
pub(super) fn precedes_cut(
    followed: FollowedConversation<'_>,
    planned: &PlannedRequest,
    cadence: u32,
    more: u32,
) -> bool {
    let (report, inherited) = (&planned.plan.report, &followed.session.inherited);
    let Some(state) = &inherited.state else {
        return false;
    };
    let Some(last) = state.prompt_tokens else {
        return false;
    };
    let growth = report.expected.saturating_sub(last);
    let growth = growth.max(state.history.largest_growth(GROWTH_GENERATIONS));
    let next = report.expected.saturating_add(growth);
    let since = state.generations.saturating_sub(cadence.saturating_sub(1));
    next.saturating_add(more) > report.budget.uncut_tokens()
        && next > planned.limits.optimal_max_tokens
        && planned.is_guarded()
        && planned.recovery.may_prompt_ahead()
        && !state.history.has_prompt_after(since)
        && !report.is_cut_anew()
        && !report.over_budget
        && is_same_model(inherited, &planned.target)
        && planned.target.has_meaningful_caution()
        && !expects_summary(followed, planned)
}
