//! The session's state after an answer.

use super::{
    generation_stats::{break_down_prompt, collect_marks},
    silent_cut::{
        is_count_proved, is_count_refuted, is_overfull, leaves_out_images, sample_prompt,
    },
};
use crate::{
    guard::AnswerCap,
    health::{self, HealthLevel},
    proxy::{
        GuardMode, JudgedAnswer, PlannedRequest, SessionContext,
        judged_answer::{counted_tokens, reported_tokens},
    },
    recovery,
    session::{SessionState, history::HistoryPoint},
    unix_time::unix_seconds_now,
};

/// Builds the state to store after the answer.
pub(super) fn build_next_state(
    session: &SessionContext,
    planned: &PlannedRequest,
    answer: JudgedAnswer<'_>,
) -> SessionState {
    let (response, usage) = (answer.response, answer.response.usage);
    let reported = reported_tokens(response);
    let level = judge_level(planned, answer);
    let target = &planned.target;
    let mut state = session.inherited.begin_generation();
    state.calibration = planned.knowledge.calibration;
    let was_low = state.calibration.is_far_below();
    if answer.silently_truncated || was_low && is_count_refuted(session, planned, response) {
        // An earlier count of a part of the prompt may have been learnt.
        state.calibration = state.calibration.doubt_low_counts();
    } else if let Some(counted) = counted_tokens(response)
        && !planned.lacks_history
        && !leaves_out_images(planned, response)
    {
        let (profile, sent) = (target.provider.config.profile, planned.raw_sent);
        let is_proved = is_count_proved(session, planned, response);
        state.calibration = state.calibration.learn_usage(sent, counted, is_proved);
        // A count far below the estimate leaves out more than texts, so other sessions learn nothing from it.
        if !profile.counts_missed_only && counted >= sent / 2 {
            let (ratios, by) = (&session.app.ratios, session.inherited.session);
            ratios.learn_ratio(&target.provider.name, &target.model, by, sent, counted);
        }
    }
    if planned.mode == GuardMode::Guard {
        state.guard = planned.plan.memory.clone();
        state.sent_history = planned.plan.history;
        let dropped = response.input_changes.count_dropped() > 0;
        let (inherited, gaps) = (&session.inherited, &session.app.reasoning);
        let gap = gaps.find_left_out_places(inherited.session, &inherited.lineage);
        let keeps_older = gap.is_some_and(|gap| gap.end == planned.plan.answer.place);
        if dropped && !keeps_older && planned.reasoning.drop_by.is_some() && planned.is_guarded() {
            state.sent_history.begin_with(planned.plan.answer);
        }
    }
    state.recovery = recovery_memory(planned, level);
    state.compaction = planned.compaction_memory();
    state.caution_waits_since_ms = planned.caution_waits_since_ms;
    state.provider = (&*target.provider.name).into();
    state.model = target.model.as_str().into();
    state.window = target.window.known_tokens();
    state.optimal_max_tokens = Some(planned.limits.optimal_max_tokens);
    state.critical_max_tokens = planned.limits.critical_max_tokens;
    state.sample = sample_prompt(planned, response);
    state.prompt_tokens = reported;
    state.completion_tokens = usage.and_then(|usage| usage.completion_tokens);
    let billed = planned.recovery.billed_tokens();
    // The client's answer may join several answers of the provider. Tokens are reserved for each of them, so the largest
    // counts.
    let answer_tokens = match billed {
        Some(billed) => billed.largest_answer,
        None => state.completion_tokens.unwrap_or(0),
    };
    state.largest_answer = state.largest_answer.max(answer_tokens);
    state.cap_was_hit |= response.cut_off
        && planned.mode == GuardMode::Guard
        && fills_lowered_cap(planned.plan.report.answer_cap, answer_tokens);
    state.cached_tokens = usage.and_then(|usage| usage.cached_tokens);
    state.billed_prompt_tokens = billed.map(|billed| billed.prompt_tokens).or(reported);
    let billed_completion = billed.map(|billed| billed.completion_tokens);
    state.billed_completion_tokens = billed_completion.or(state.completion_tokens);
    state.health = level;
    state.made_of = break_down_prompt(planned, &state.calibration);
    state.history.add_point(HistoryPoint {
        generation: state.generations,
        prompt_tokens: reported,
        cached_tokens: state.cached_tokens,
        completion_tokens: state.completion_tokens,
        marks: collect_marks(planned),
    });
    state.reasoning = planned.reasoning;
    state.sketch.answer_calls = response.calls_digest;
    state.asked_ms = planned.asked_ms;
    state.updated_s = unix_seconds_now();
    state
}

/// The level of the session after the answer.
fn judge_level(planned: &PlannedRequest, answer: JudgedAnswer<'_>) -> HealthLevel {
    if answer.silently_truncated {
        // The provider's count is not that of the whole prompt.
        return HealthLevel::Unknown;
    }
    // The answer filled the window to its end.
    if answer.response.window_exceeded || is_overfull(planned, answer.response) {
        return HealthLevel::Critical;
    }
    let window = planned.target.window.known_tokens();
    health::assess_health(reported_tokens(answer.response), window, &planned.limits).level
}

/// Recovery's memory after an answer of that level.
fn recovery_memory(planned: &PlannedRequest, level: HealthLevel) -> recovery::RecoveryMemory {
    if planned.mode != GuardMode::Guard {
        return planned.recovery.inherited.clone();
    }
    let level = match level {
        HealthLevel::Caution if !planned.target.has_meaningful_caution() => HealthLevel::Unknown,
        level => level,
    };
    let left_out = planned.plan.memory.list_left_out();
    planned.recovery.memory_after(level, &left_out)
}

/// Whether an answer of so many tokens (0: not counted) may have ended at a lowered answer cap. An answer that ended
/// well before the cap met a limit of its model. Providers count the last tokens of an answer in different ways, so a
/// little less than the cap counts as reaching it.
fn fills_lowered_cap(cap: Option<AnswerCap>, answer_tokens: u32) -> bool {
    let cap = cap.filter(|cap| cap.is_lowered());
    cap.is_some_and(|cap| answer_tokens == 0 || answer_tokens >= cap.sent - cap.sent / 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn only_an_answer_that_ends_at_a_lowered_cap_was_cut_by_it() {
        let cap = |asked, sent| Some(AnswerCap { asked, sent });
        for (name, cap, tokens, expected) in [
            ("no cap", None, 6_400, false),
            ("a cap as asked", cap(6_400, 6_400), 6_400, false),
            ("a lowered cap", cap(9_000, 6_400), 6_400, true),
            ("a little less than the cap", cap(9_000, 6_400), 6_300, true),
            ("well below the cap", cap(9_000, 6_400), 6_299, false),
            ("an answer that was not counted", cap(9_000, 6_400), 0, true),
        ] {
            assert_eq!(fills_lowered_cap(cap, tokens), expected, "{name}");
        }
    }
}
