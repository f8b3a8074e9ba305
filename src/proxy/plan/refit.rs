//! Plans a request again for a smaller window, after its provider refused it as too long.

use super::{
    begin_planning, level_limits, planned_request::session_policy,
    prompt_timing::is_cut_below_prompt, replan_request, trial::find_best_trial,
};
use crate::{
    guard::{self, EarlierPlan, Plan},
    provider::{Target, Window, WindowSource, overflow::Overflow},
    proxy::{FollowedConversation, PlannedRequest},
};

/// The largest prompt where only what must stay is left.
const LEAST_PROMPT: u32 = 1;

/// Plans for the window of `target`, which turned out smaller. `counted`: the provider's count of the refused request.
/// Returns `None` if no plan makes the request or its answer cap smaller.
pub fn refit_request(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
    target: &Target,
    counted: Option<u32>,
) -> Option<PlannedRequest> {
    let (_span, begun) = begin_planning(followed.session);
    let mut held = remeasure_for_target(followed, refused.clone(), target);
    held.knowledge.refused.was_too_long = true;
    let dense = counted.and_then(|counted| refit_dense_reasoning(followed, &held, counted));
    let mut planned = match dense {
        Some(planned) => planned,
        None => refit_by_ratio(followed, held, counted)?,
    };
    planned.guard_took += begun.elapsed();
    planned.refits += 1;
    Some(planned)
}

/// Plans the refused request for `target` with an answer cap of `most` tokens, in place of further cuts. Returns `None` if
/// the cap gets no lower.
pub fn lower_cap(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
    target: &Target,
    most: u32,
) -> Option<PlannedRequest> {
    let mut held = refused.clone();
    held.knowledge.refused.most_cap = Some(most);
    let lowered = refit_request(followed, &held, target, None)?;
    let cap = |planned: &PlannedRequest| planned.plan.report.answer_cap.map(|cap| cap.sent);
    (cap(&lowered) < cap(refused)).then_some(lowered)
}

/// Makes the refused request smaller as if each part of it took its share of `counted`.
fn refit_by_ratio(
    followed: FollowedConversation<'_>,
    refused: PlannedRequest,
    counted: Option<u32>,
) -> Option<PlannedRequest> {
    let is_smaller = |plan: &Plan| {
        let cap = |plan: &Plan| plan.report.answer_cap.map(|cap| cap.sent);
        // The count may teach that more tokens fit, so a prompt may even grow if its answer's cap makes room.
        plan.report.raw_after < refused.raw_sent || cap(plan) < cap(&refused.plan)
    };
    let mut planned = refused.clone();
    if let Some(counted) = counted {
        let calibration = refused.knowledge.calibration;
        planned.knowledge.calibration = calibration.learn_refusal(refused.raw_sent, counted);
        planned.knowledge.refused.was_counted = true;
    }
    let trial = find_best_trial(followed, &planned, is_smaller)?;
    trial.take_over(&mut planned);
    if is_cut_below_prompt(&planned) {
        planned.recovery.withdraw_prompt();
        find_best_trial(followed, &planned, is_smaller)?.take_over(&mut planned);
    }
    Some(planned)
}

/// Makes the refused request fit as if its reasoning alone accounted for a count far above the estimate. Encrypted reasoning
/// is the only text whose tokens nobody but its provider can count. If the ratio of the count applied to all texts, then a
/// cut that removes the reasoning would also remove nearly everything else. Returns `None` if reasoning cannot account for
/// the count, if the request does not fit then, or if it was refitted before.
fn refit_dense_reasoning(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
    counted: u32,
) -> Option<PlannedRequest> {
    if refused.refits > 0 {
        return None;
    }
    let mut planned = refused.clone();
    planned.knowledge.refused.reasoning_density =
        find_reasoning_density(followed, refused, counted)?;
    planned = replan_request(followed, planned);
    if planned.plan.report.over_budget {
        return None;
    }
    // The cuts stay. What is left weighs as it does in other requests, so that its count can be learnt.
    planned.knowledge.earlier_plan = Some(planned.plan.to_earlier_plan());
    planned.knowledge.history = planned.plan.history;
    planned.knowledge.refused.reasoning_density = 0.0;
    if is_cut_below_prompt(&planned) {
        planned.recovery.withdraw_prompt();
    }
    Some(replan_request(followed, planned))
}

/// Returns the raw tokens by which each byte of the sent reasoning exceeds its estimate, if reasoning alone accounts for the
/// count.
fn find_reasoning_density(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
    counted: u32,
) -> Option<f64> {
    let calibration = refused.knowledge.calibration;
    let excess = calibration.find_excess(refused.raw_sent, counted)?;
    let conversation = followed.conversation;
    let sent = refused.request_edits().apply(&conversation.body).to_bytes();
    let sent = conversation.format.index_body(sent).ok()?;
    let items = sent.items.iter();
    let bytes: usize = items.map(|item| sent.count_reasoning_bytes(item)).sum();
    let density = excess / bytes as f64;
    // No byte of a text is more than a token.
    (density * calibration.slope() <= 1.0).then_some(density)
}

/// Plans without the oldest images and other media: the newest half of the steps and messages with media stays, at most
/// `most` of them. Returns `None` if the request gets no smaller.
pub fn clear_old_media(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
    most: usize,
) -> Option<PlannedRequest> {
    if !refused.is_guarded() {
        return None;
    }
    let app = &followed.session.app;
    let policy = session_policy(app, &refused.target, refused.reasoning);
    let memory =
        guard::clear_old_media(followed.conversation, &policy, &refused.plan.memory, most)?;
    let mut planned = refused.clone();
    planned.knowledge.earlier_plan = Some(EarlierPlan {
        memory,
        due: refused.plan.report.due,
    });
    planned = replan_request(followed, planned);
    planned.size_refits += 1;
    (planned.raw_sent < refused.raw_sent).then_some(planned)
}

/// Plans for half of the tokens of the refused request. The cuts of the refused request stay, and later requests keep the
/// cuts of this plan, although they are made for a smaller window. Returns `None` if the request gets no smaller.
pub fn halve_request(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
) -> Option<PlannedRequest> {
    let half = refused.expected_tokens() / 2;
    let mut smaller = refit_once(followed, refused, false, |it| it.input = Some(half))?;
    smaller.refits = refused.refits;
    smaller.size_refits += 1;
    Some(smaller)
}

/// Plans for half of the tokens, but keeps images and other media. Returns `None` also if hardly any text can be removed.
pub fn halve_texts(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
) -> Option<PlannedRequest> {
    let half = refused.expected_tokens() / 2;
    let smaller = refit_once(followed, refused, true, |it| it.input = Some(half))?;
    (smaller.raw_sent < refused.raw_sent / 10 * 9).then_some(smaller)
}

/// Plans for a limit of single requests, which holds prompt and answer together, or prompts alone. The provider counts by a
/// rule of its own, so only the ratio of its numbers is used. Returns `None` if the request is within the limit, or gets no
/// smaller.
pub fn fit_to_request_limit(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
    limit: &Overflow,
) -> Option<PlannedRequest> {
    let expected = refused.expected_tokens();
    let cap = refused.plan.report.answer_cap.map_or(0, |cap| cap.sent);
    let asked = u64::from(expected) + u64::from(cap);
    refit_once(followed, refused, false, |window| {
        narrow_to_limit(window, limit, expected, asked);
    })
}

/// Makes a window as small as the limit of a single request. `expected`: tokens of the prompt; `asked`: with the answer.
fn narrow_to_limit(window: &mut Window, limit: &Overflow, expected: u32, asked: u64) {
    // A tenth less, since this is tried only once.
    let share = |limit: u32, of: u64| {
        let product = u64::from(limit).saturating_mul(asked).saturating_mul(9);
        product / (of.max(1) * 10)
    };
    match (limit.window, limit.requested, limit.prompt_limit) {
        (Some(limit), Some(requested), _) => {
            let tokens = u32::try_from(share(limit, u64::from(requested))).unwrap_or(u32::MAX);
            (window.tokens, window.source) = (tokens.min(window.tokens), WindowSource::Learnt);
        }
        (_, _, Some(limit)) if limit < expected => window.input = Some(limit / 10 * 9),
        _ => {}
    }
}

/// Plans as if the window were as `narrow` makes it. No other request uses that window. What is cut stays cut.
fn refit_once(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
    keeps_media: bool,
    narrow: impl FnOnce(&mut Window),
) -> Option<PlannedRequest> {
    if !refused.is_guarded() {
        return None;
    }
    let mut narrowed = refused.target.clone();
    narrow(&mut narrowed.window);
    let mut held = refused.clone();
    let policy = session_policy(&followed.session.app, &narrowed, refused.reasoning);
    let mut earlier = refused.plan.to_earlier_plan();
    earlier.memory.set_basis(&policy);
    held.knowledge.earlier_plan = Some(earlier);
    held.knowledge.refused.keeps_media = keeps_media;
    let mut smaller = refit_request(followed, &held, &narrowed, None)?;
    smaller.knowledge.refused.keeps_media = false;
    Some(remeasure_for_target(followed, smaller, &refused.target))
}

/// Plans with nothing but what must stay, and does not shorten that. Returns `None` if the request gets no smaller.
pub fn refit_to_required(
    followed: FollowedConversation<'_>,
    refused: &PlannedRequest,
) -> Option<PlannedRequest> {
    let mut least = refused.target.clone();
    least.window.input = Some(LEAST_PROMPT);
    let mut refused = refused.clone();
    refused.knowledge.refused.sends_only_required = true;
    let mut smaller = refit_request(followed, &refused, &least, None)?;
    smaller.knowledge.refused.sends_only_required = false;
    Some(smaller)
}

/// Sets another target, or another window of it, and the levels that follow from it.
pub fn remeasure_for_target(
    followed: FollowedConversation<'_>,
    mut planned: PlannedRequest,
    target: &Target,
) -> PlannedRequest {
    planned.target = target.clone();
    let policy = session_policy(&followed.session.app, target, planned.reasoning);
    planned.limits = level_limits(followed.conversation, &policy, target, &planned.knowledge);
    planned.plan.memory.set_basis(&policy);
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn a_limit_of_single_requests_narrows_the_window_by_the_ratio_of_its_numbers() {
        let none = Overflow::default();
        let both = |window, requested| Overflow { window: Some(window), requested: Some(requested), ..none };
        let prompt = |limit| Overflow { prompt_limit: Some(limit), ..none };
        let huge = u64::from(u32::MAX) * 2;
        // The prompt has 40,000 tokens. In each row: the tokens with the answer, and the window and the largest prompt after.
        for (name, asked, limit, tokens, input) in [
            ("no number", 50_000, none, 100_000, None),
            ("half of what the provider counts", 50_000, both(30_000, 60_000), 22_500, None),
            ("a limit beyond the request", 50_000, both(600_000, 60_000), 100_000, None),
            ("a request of nothing", 50_000, both(30_000, 0), 100_000, None),
            ("a limit of prompts", 50_000, prompt(20_000), 100_000, Some(18_000)),
            ("a limit of prompts beyond this one", 50_000, prompt(50_000), 100_000, None),
            ("the largest numbers", huge, both(u32::MAX, 1), 100_000, None),
        ] {
            let source = WindowSource::Config;
            let mut window = Window { tokens: 100_000, input: None, taught: None, source };
            narrow_to_limit(&mut window, &limit, 40_000, asked);
            assert_eq!((window.tokens, window.input), (tokens, input), "{name}");
        }
    }
}
