//! Silent truncation: detects a provider that cuts prompts without an error, by the tokens that it counts.
//!
//! Two answers of a session in a row prove it (`health/silent_truncation.rs`). Then the health of the answer is unknown, so
//! that recovery's clock does not advance, and later prompts are limited to what the provider takes.

use std::time::SystemTime;

use crate::{
    health::silent_truncation::{self, UsageSample},
    proxy::{
        GuardMode, PlannedRequest, SessionContext,
        judged_answer::{counted_tokens, reported_tokens},
        plan::is_same_model,
    },
    relay::ResponseSummary,
};

/// Samples the sent tokens, and the tokens that the provider reports to have read. Returns `None` if the provider says that
/// the model did not read all thinking, or all of the images: the count leaves out an unknown part of them. Returns `None`
/// too if the provider holds messages that were not sent.
pub(super) fn sample_prompt(
    planned: &PlannedRequest,
    response: &ResponseSummary,
) -> Option<UsageSample> {
    let is_all = response.input_changes.is_all_read()
        && !planned.lacks_history
        && !leaves_out_images(planned, response);
    let counted = counted_tokens(response).filter(|_| is_all);
    counted.map(|prompt_tokens| UsageSample {
        raw_sent: planned.raw_sent,
        prompt_tokens,
    })
}

/// Whether the count may leave out parts of images, since the server made the images smaller.
pub(super) fn leaves_out_images(planned: &PlannedRequest, response: &ResponseSummary) -> bool {
    let report = &planned.plan.report;
    let shares = match planned.mode {
        GuardMode::Guard => &report.sent,
        _ => &report.shares,
    };
    response.input_changes.has_compressed_images() && shares.images > 0
}

/// Finds the sample of the session's previous answer, if the same model gave that answer.
fn find_sample_before(session: &SessionContext, planned: &PlannedRequest) -> Option<UsageSample> {
    let state = session.inherited.state.as_ref();
    let state = state.filter(|_| is_same_model(&session.inherited, &planned.target));
    state.and_then(|state| state.sample)
}

/// Whether the reported tokens are those of the whole prompt, however few they are: some of them were cached, or they grew
/// with the request.
pub(super) fn is_count_proved(
    session: &SessionContext,
    planned: &PlannedRequest,
    response: &ResponseSummary,
) -> bool {
    let names_cached = response.usage.is_some_and(|usage| {
        let cached = usage.cached_tokens.unwrap_or(0);
        (1..=usage.prompt_tokens).contains(&cached)
    });
    let proves = |sample| {
        let before = find_sample_before(session, planned);
        let misses = planned.target.provider.config.profile.counts_missed_only;
        silent_truncation::proves_whole_count(before, sample, misses)
    };
    names_cached || sample_prompt(planned, response).is_some_and(proves)
}

/// Whether the reported tokens are those of a part of the prompt: the prompt grew, and the reported tokens did not.
pub(super) fn is_count_refuted(
    session: &SessionContext,
    planned: &PlannedRequest,
    response: &ResponseSummary,
) -> bool {
    let before = find_sample_before(session, planned);
    let now = sample_prompt(planned, response);
    now.is_some_and(|now| silent_truncation::refutes_whole_count(before, now))
}

/// Whether the prompt filled a known window, although the provider accepted it.
pub(super) fn is_overfull(planned: &PlannedRequest, response: &ResponseSummary) -> bool {
    let window = planned.target.window.whole_tokens();
    let Some((tokens, window)) = reported_tokens(response).zip(window) else {
        return false;
    };
    let completion = response.usage.and_then(|usage| usage.completion_tokens);
    silent_truncation::has_filled_window(tokens, window, completion, response.cut_off)
}

/// Whether the provider cuts prompts silently, by the session's last two answers. Learns the model's cap or size.
pub(super) fn detect_silent_cut(
    session: &SessionContext,
    planned: &PlannedRequest,
    response: &ResponseSummary,
) -> bool {
    let (app, target) = (&session.app, &planned.target);
    let (provider, model) = (&target.provider.name, &target.model);
    let key = target.lesson_key();
    let learnt = &app.registry.learnt;
    let missed_only = target.provider.config.profile.counts_missed_only;
    let (before, now) = (find_sample_before(session, planned), SystemTime::now());
    let cap = sample_prompt(planned, response)
        .and_then(|sample| silent_truncation::detect_truncation(before, sample, missed_only));
    let Some(cap) = cap else {
        if let Some(tokens) = reported_tokens(response) {
            learnt.record_accepted_prompt(&key, tokens, now);
        }
        return false;
    };
    learnt.record_truncation(&key, cap, now);
    let truncations = &app.metrics.silent_truncations;
    truncations.with_label_values(&[&**provider]).inc();
    tracing::warn!(
        session = %session.inherited.session, provider = &**provider, model = &**model, tokens = cap,
        "silent truncation: {provider} cuts prompts to {cap} tokens; health is unknown, and later prompts stay below this size"
    );
    true
}
