//! One attempt at one candidate.
//!
//! After a refusal the request is sent again, changed:
//!
//! - without asking for the usage of a stream,
//! - without the cache markers that the proxy added, and with or without the members that answers lack,
//! - with the prompt elsewhere, and then without any of recovery's additions,
//! - without old images,
//! - asking the provider to drop thinking, and then without thinking ([`super::thinking_remedy`]),
//! - smaller, if the conversation was too long ([`super::overflow_retry`]).
//!
//! Only headers and log show it. Nothing that the proxy adds may fail a request that would have worked without it.

use std::time::Instant;

use serde_json::Value;

use super::{
    CallCount, ClientRequest, PlacedRequest, PlannedRequest, ProviderReply, SendError,
    fallbacks::Fallbacks,
    outgoing::clean_answer_headers,
    overflow_retry::{
        Guesses, RefusalKind, find_refusal, learn_from_guesses, overflow_answer, refit_after_guess,
        refit_after_overflow, refit_to_size,
    },
    plan::{plan_without_additions, plan_without_prompt_after_tool},
    provider_reply::Extras,
    thinking_remedy::ThinkingRemedy,
};
use crate::{
    config::profile::AnswerFilling,
    conversation::edit::{Edits, Rope},
    format::beta_header::Beta,
    provider::thinking_refusal::ThinkingRefusal,
    unix_time::unix_ms_now,
};

/// Asks the candidate of `placed`, where a changed request replaces the one before. `fallbacks`: none in a later tool
/// round, which stays at its candidate.
///
/// # Errors
/// No answer began, or one broke off before the proxy could relay it.
pub(super) async fn attempt_request(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    mut fallbacks: Option<&mut Fallbacks>,
    calls: &mut CallCount,
) -> Result<ProviderReply, SendError> {
    let (mut additions_refused, mut usage_refused, mut markers_refused) = (false, false, false);
    let mut filling_refused = false;
    let mut size_tries = 0;
    let (provider, model) = (&placed.target.provider, &placed.target.model);
    let mut extras = Extras {
        usage: !provider.refuses_usage(model),
        markers: provider.may_add_markers(model, Instant::now()),
        drop_by: ThinkingRemedy::remembered_drop(placed),
        thinking_off: ThinkingRemedy::remembers_thinking_off(request, placed),
        filling: provider.answer_filling(model),
    };
    let mut guesses = Guesses::default();
    let mut remedy = ThinkingRemedy::default();
    // The refusal of the request with members that were added by the model's name.
    let mut refused_filled = None;
    let mut reply = loop {
        let reply = send_once(request, placed, extras, calls).await?;
        let tries_drop = remedy.tries_drop();
        let (mut reply, mut refusal) = find_refusal(request, placed, reply, tries_drop).await?;
        let lacks_members = matches!(
            refusal,
            RefusalKind::RefusesThinking(ThinkingRefusal::Missing)
        );
        if lacks_members && let Some(refused) = refused_filled.take() {
            // The members are demanded, so it was another part of the request that was refused with them.
            filling_refused = false;
            if !additions_refused {
                (extras.filling, reply) = (AnswerFilling::All, refused);
                refusal = match placed.has_additions() {
                    true => RefusalKind::RefusesAdditions,
                    false => RefusalKind::Nothing,
                };
            }
        }
        let sends_again = match refusal {
            RefusalKind::Nothing => break reply,
            RefusalKind::TooLong { overflow, .. } => {
                let fallbacks = fallbacks.as_deref_mut();
                refit_after_overflow(request, placed, &overflow, &mut guesses, fallbacks)
            }
            RefusalKind::TooLarge(size) => refit_to_size(request, placed, size, &mut size_tries),
            RefusalKind::Wordless => refit_after_guess(request, placed, &mut guesses),
            RefusalKind::RefusesAdditions => {
                if !placed.try_replan(request, plan_without_prompt_after_tool) {
                    additions_refused = true;
                    placed.change_plan(request, plan_without_additions);
                }
                true
            }
            RefusalKind::RefusesUsage => {
                (extras.usage, usage_refused) = (false, true);
                true
            }
            RefusalKind::RefusesMarkers => {
                extras.markers = false;
                true
            }
            RefusalKind::RefusesFilling => {
                (extras.filling, filling_refused) = (AnswerFilling::Nothing, true);
                true
            }
            RefusalKind::RefusesThinking(refused) => {
                remedy.prepare(request, placed, &mut extras, refused)
            }
            RefusalKind::RefusesToDrop { named } => {
                remedy.prepare_without_drop(request, placed, &mut extras, named)
            }
        };
        // Only the same request without them tells: another change may be why the next one is answered.
        markers_refused = matches!(refusal, RefusalKind::RefusesMarkers);
        if !sends_again {
            break overflow_answer(request.parsed.format, placed, reply, refusal);
        }
        match refusal {
            // What was missing is added now: where that is refused too, it is for another reason, and the client's to know.
            RefusalKind::RefusesThinking(ThinkingRefusal::Missing) => {}
            RefusalKind::RefusesThinking(_) => remedy.keep_refusal(reply),
            RefusalKind::RefusesFilling => refused_filled = Some(reply),
            _ => {}
        }
    };
    reply = remedy.choose_answer(reply);
    remedy.conclude(request, placed, &reply);
    let answered = reply.answer.status().is_success();
    let target = &placed.target;
    if answered {
        // Only a success proves what was refused: an error may echo the request and be about something else.
        if usage_refused {
            target.provider.note_usage_refused(&target.model);
        }
        if markers_refused || reply.sent.markers {
            let (provider, taken) = (&target.provider, !markers_refused);
            provider.note_markers(&target.model, taken, Instant::now());
        }
        if filling_refused {
            target
                .provider
                .note_answer_filling(&target.model, AnswerFilling::Nothing);
        }
        if additions_refused {
            remember_refusal(request, placed);
        }
        learn_from_guesses(request, placed, &guesses);
    }
    // A guess that did not help is no overflow.
    let planned = placed.planned.as_ref();
    let healed = answered && planned.is_some_and(|planned| planned.refits > 0);
    let app = &request.app;
    if healed || reply.too_long {
        let outcome = if healed { "healed" } else { "unhealed" };
        let labels = [&*placed.target.provider.name, outcome];
        app.metrics.overflows.with_label_values(&labels).inc();
    }
    if reply.too_long {
        // There is no end of an answer that would publish it.
        let within = app.config.store.save_timeout();
        app.replica_sync.publish(&app.registry, within).await;
    }
    (reply.attempts, reply.took) = (calls.calls, calls.took);
    Ok(reply)
}

/// Sends the request once, with those of the extras that it takes.
async fn send_once(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    extras: Extras,
    calls: &mut CallCount,
) -> Result<ProviderReply, SendError> {
    if let Some(planned) = &mut placed.planned {
        planned.asked_ms = unix_ms_now();
    }
    let (body, sent_extras) = edit_body(request, placed, extras);
    let (trace, target) = (&request.notes.trace, &placed.target);
    let begun = Instant::now();
    let planned = placed.planned.as_deref();
    let tools = planned.and_then(|planned| planned.tools_beta(&planned.plan));
    let betas = sent_extras.drop_by.map(|_| Beta::Binding);
    let betas: Vec<Beta> = betas.into_iter().chain(tools).collect();
    let sent = placed.head.send(trace, target, body, &betas);
    let sent = sent.await;
    let took = begun.elapsed();
    calls.took += took;
    calls.calls += 1;
    let answer = sent?;
    if answer.status().is_success() {
        let latencies = &request.app.recent;
        latencies.record_latency(&target.provider.name, took);
    }
    Ok(ProviderReply {
        answer: clean_answer_headers(answer),
        sent: sent_extras,
        attempts: calls.calls,
        took: calls.took,
        too_long: false,
    })
}

/// The body for the provider, and what of the extras it has.
pub(super) fn edit_body(
    request: &ClientRequest,
    placed: &PlacedRequest,
    extras: Extras,
) -> (Rope, Extras) {
    let planned = placed.planned.as_deref();
    let mut edits = planned.map_or_else(Edits::default, PlannedRequest::request_edits);
    let parsed = &request.parsed;
    let mut sent = Extras {
        filling: AnswerFilling::Nothing,
        ..Extras::default()
    };
    if let Some(named) = parsed.find_renamed_model(&placed.target.model) {
        let model = Value::from(placed.target.model.as_str()).to_string();
        edits.replace(named, model);
    }
    let Some(conversation) = &parsed.conversation else {
        return (edits.apply(&parsed.bytes), sent);
    };
    if placed.stands_in {
        conversation.keep_one_answer_cap(placed.target.profile(), &mut edits);
    }
    conversation.take_out_annotations(&mut edits);
    sent.usage = extras.usage && conversation.ask_usage(&mut edits);
    sent.thinking_off = extras.thinking_off && conversation.switch_thinking_off(&mut edits);
    let mut asks_to_drop = |by: &_| conversation.ask_to_drop_thinking(*by, &mut edits);
    let drop_by = extras.drop_by.filter(|_| !sent.thinking_off);
    sent.drop_by = drop_by.filter(&mut asks_to_drop);
    let mut body = edits.apply(&parsed.bytes);
    let is_guarded = planned.is_some_and(PlannedRequest::is_guarded);
    if is_guarded {
        let profile = placed.target.profile();
        if let Some(filled) = conversation.add_required_members(&body, profile, extras.filling) {
            (body, sent.filling) = (filled, extras.filling);
        }
    }
    if extras.markers
        && is_guarded
        && let Some(marked) = conversation.add_cache_markers(&body)
    {
        sent.markers = true;
        return (marked, sent);
    }
    (body, sent)
}

/// Ends recovery in this session: the provider accepted the request only without recovery's additions.
fn remember_refusal(request: &ClientRequest, placed: &mut PlacedRequest) {
    let (Some(session), Some(planned)) = (&request.session, &mut placed.planned) else {
        return;
    };
    let provider = &*placed.target.provider.name;
    tracing::warn!(
        session = %session.inherited.session, provider, model = placed.target.model,
        "provider {provider} refuses what recovery adds to requests; recovery is off for this session"
    );
    planned.recovery.mark_refused();
}
