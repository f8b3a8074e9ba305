//! Providers that cut prompts in silence: how that is found, by what they count.
//!
//! Two answers of a session in a row tell (`health/silent_truncation.rs`). The health of the answer is unknown then, so that
//! recovery's clock does not move, and later prompts are held to what the provider takes.

use std::time::SystemTime;

use crate::{
    health::silent_truncation::{self, UsageSample},
    proxy::{
        answer_facts::reported_tokens,
        client_request::SessionContext,
        plan::{PlannedRequest, is_same_model},
    },
    relay::ResponseSummary,
};

/// What was sent, and what the provider says it read.
pub(super) fn sample_prompt(
    planned: &PlannedRequest,
    heard: &ResponseSummary,
) -> Option<UsageSample> {
    reported_tokens(heard).map(|prompt_tokens| UsageSample {
        raw_sent: planned.raw_sent,
        prompt_tokens,
    })
}

/// Whether the prompt filled a known window, although the provider took it.
pub(super) fn is_overfull(planned: &PlannedRequest, heard: &ResponseSummary) -> bool {
    let (Some(tokens), Some(window)) =
        (reported_tokens(heard), planned.target.window.known_tokens())
    else {
        return false;
    };
    let completion = heard.usage.and_then(|usage| usage.completion_tokens);
    silent_truncation::has_filled_window(tokens, window, completion, heard.cut_off)
}

/// Compares the answer with the one before it: whether the provider cuts prompts in silence. Learns that of
/// the model, or else how much it is known to accept.
pub(super) fn detect_silent_cut(
    session: &SessionContext,
    planned: &PlannedRequest,
    heard: &ResponseSummary,
) -> bool {
    let Some(now) = sample_prompt(planned, heard) else {
        return false;
    };
    let (app, target) = (&session.app, &planned.target);
    let (provider, model) = (&target.provider.name, &target.model);
    let learnt = &app.registry.learnt;
    let state = session.inherited.state.as_ref();
    let state = state.filter(|_| is_same_model(&session.inherited, target));
    let before = state.and_then(|state| state.sample);
    let missed_only = target.provider.config.profile.counts_missed_only;
    let place = &target.provider.endpoint;
    let Some(cap) = silent_truncation::detect_truncation(before, now, missed_only) else {
        learnt.record_accepted_prompt(place, model, now.prompt_tokens, SystemTime::now());
        return false;
    };
    learnt.record_truncation(place, model, cap, SystemTime::now());
    let truncations = &app.metrics.silent_truncations;
    truncations.with_label_values(&[&**provider]).inc();
    tracing::warn!(
        session = %session.inherited.session, provider = &**provider, model = &**model, tokens = cap,
        "a provider cuts prompts in silence; the health is unknown, and prompts are held to what it takes"
    );
    true
}
