//! Silent truncation: detects a provider that cuts prompts without an error, by the tokens that it counts.
//!
//! Two answers of a session in a row show it (`health/silent_truncation.rs`). The health of the answer is unknown
//! then, so that recovery's clock stands still, and later prompts are limited to what the provider takes.

use std::time::SystemTime;

use crate::{
    health::silent_truncation::{self, UsageSample},
    proxy::{PlannedRequest, SessionContext, judged_answer::reported_tokens, plan::is_same_model},
    relay::ResponseSummary,
};

/// The sent tokens, and the tokens that the provider reports to have read.
pub(super) fn sample_prompt(
    planned: &PlannedRequest,
    response: &ResponseSummary,
) -> Option<UsageSample> {
    reported_tokens(response).map(|prompt_tokens| UsageSample {
        raw_sent: planned.raw_sent,
        prompt_tokens,
    })
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
    let Some(sample) = sample_prompt(planned, response) else {
        return false;
    };
    let (app, target) = (&session.app, &planned.target);
    let (provider, model) = (&target.provider.name, &target.model);
    let key = target.lesson_key();
    let learnt = &app.registry.learnt;
    let state = session.inherited.state.as_ref();
    let state = state.filter(|_| is_same_model(&session.inherited, target));
    let previous = state.and_then(|state| state.sample);
    let missed_only = target.provider.config.profile.counts_missed_only;
    let now = SystemTime::now();
    let Some(cap) = silent_truncation::detect_truncation(previous, sample, missed_only) else {
        learnt.record_accepted_prompt(&key, sample.prompt_tokens, now);
        return false;
    };
    learnt.record_truncation(&key, cap, now);
    let truncations = &app.metrics.silent_truncations;
    truncations.with_label_values(&[&**provider]).inc();
    tracing::warn!(
        session = %session.inherited.session, provider = &**provider, model = &**model, tokens = cap,
        "silent truncation: {provider} cuts prompts to {cap} tokens; health is unknown, later prompts stay below"
    );
    true
}
