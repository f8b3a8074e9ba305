//! Asking one place until its answer is its last word.
//!
//! A place may be asked several times for one attempt, each time with another request: without
//! asking for usage where that is refused, without a prompt after a tool result and then without all that
//! recovery adds where that is refused, and
//! fitted to a smaller window where the conversation was too long ([`super::overflow_retry`]). Nothing of it
//! is visible but in the headers and the log. Nothing that the proxy adds may fail a request that would have
//! worked without it.

use std::time::Instant;

use serde_json::Value;

use super::{
    client_request::ClientRequest,
    fallbacks::PlacedRequest,
    outgoing::clean_answer_headers,
    overflow_retry::{
        Guesses, RefusalKind, find_refusal, learn_from_guesses, overflow_answer, refit_after_guess,
        refit_after_overflow,
    },
    plan::{plan_without_additions, plan_without_prompt_after_tool},
    provider_reply::{CallCount, ProviderReply, SendError},
};
use crate::conversation::edit::{Edits, Rope};

/// Asks the place of `placed`. A request that is changed on the way takes its place there.
///
/// # Errors
/// No answer began, or one broke off before it was the client's.
pub(super) async fn attempt_request(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    calls: &mut CallCount,
) -> Result<ProviderReply, SendError> {
    let (mut additions_refused, mut usage_refused) = (false, false);
    let mut asks_usage = !placed.target.provider.refuses_usage(&placed.target.model);
    let mut guesses = Guesses::default();
    let mut reply = loop {
        let reply = send_once(request, placed, asks_usage, calls).await?;
        let (reply, refusal) = find_refusal(request, placed, reply).await?;
        let again = match refusal {
            RefusalKind::Nothing => break reply,
            RefusalKind::TooLong { overflow, .. } => {
                refit_after_overflow(request, placed, &overflow)
            }
            RefusalKind::Wordless => refit_after_guess(request, placed, &mut guesses),
            RefusalKind::RefusesAdditions => {
                if !avoid_prompt_after_tool(request, placed) {
                    additions_refused = true;
                    withdraw_additions(request, placed);
                }
                true
            }
            RefusalKind::RefusesUsage => {
                (asks_usage, usage_refused) = (false, true);
                true
            }
        };
        if !again {
            break overflow_answer(placed, reply, refusal);
        }
    };
    let answered = reply.answer.status().is_success();
    let target = &placed.target;
    if answered {
        // An error may echo the request and be about something else.
        if usage_refused {
            target.provider.note_usage_refused(&target.model);
        }
        if additions_refused {
            remember_refusal(request, placed);
        }
        learn_from_guesses(request, placed, &guesses);
    }
    // A guess that did not help is no overflow.
    let healed = answered && placed.planned.as_ref().is_some_and(|it| it.refits > 0);
    let app = &request.app;
    if healed || reply.too_long {
        let outcome = if healed { "healed" } else { "unhealed" };
        let labels = [&*placed.target.provider.name, outcome];
        app.metrics.overflows.with_label_values(&labels).inc();
    }
    if reply.too_long {
        // No answer ends at which it would be told.
        let within = app.config.store.save_timeout();
        app.replica_sync.publish(&app.registry, within).await;
    }
    (reply.attempts, reply.took) = (calls.calls, calls.took);
    Ok(reply)
}

/// Sends the request once. `asks_usage`: the usage of a stream may be asked for.
async fn send_once(
    request: &ClientRequest,
    placed: &PlacedRequest,
    asks_usage: bool,
    calls: &mut CallCount,
) -> Result<ProviderReply, SendError> {
    let edited = edit_body(request, placed, asks_usage);
    let (trace, target) = (&request.notes.trace, &placed.target);
    let begun = Instant::now();
    let sent = placed.head.send_chat(trace, target, edited.body).await;
    let took = begun.elapsed();
    calls.took += took;
    calls.calls += 1;
    let answer = sent?;
    if answer.status().is_success() {
        request
            .app
            .recent
            .record_latency(&target.provider.name, took);
    }
    Ok(ProviderReply {
        answer: clean_answer_headers(answer),
        asked_usage: edited.asks_usage,
        attempts: calls.calls,
        took: calls.took,
        too_long: false,
    })
}

/// A body as it goes to the provider.
struct EditedBody {
    body: Rope,
    /// It asks for the usage of a stream where the client did not.
    asks_usage: bool,
}

fn edit_body(request: &ClientRequest, placed: &PlacedRequest, asks_usage: bool) -> EditedBody {
    let planned = placed.planned.as_ref();
    let mut edits = planned.map_or_else(Edits::default, |planned| planned.request_edits());
    let parsed = &request.parsed;
    let mut asked = false;
    if let Some(conversation) = &parsed.conversation {
        if parsed.model != placed.target.model
            && let Some(field) = conversation.find_field("model")
        {
            let model = Value::from(placed.target.model.as_str()).to_string();
            edits.replace(field.value, model);
        }
        conversation.take_out_annotations(&mut edits);
        asked = asks_usage && conversation.ask_usage(&mut edits);
    }
    EditedBody {
        body: edits.apply(&parsed.bytes),
        asks_usage: asked,
    }
}

/// Plans without the prompt after a tool result. Returns whether there was one that may be refused.
fn avoid_prompt_after_tool(request: &ClientRequest, placed: &mut PlacedRequest) -> bool {
    let (Some(followed), Some(planned)) =
        (request.followed_conversation(), placed.planned.as_deref())
    else {
        return false;
    };
    let without = plan_without_prompt_after_tool(followed, planned);
    let avoids = without.is_some();
    if let Some(without) = without {
        placed.set_plan(followed, without);
    }
    avoids
}

/// Plans without anything that recovery adds.
pub(super) fn withdraw_additions(request: &ClientRequest, placed: &mut PlacedRequest) {
    placed.change_plan(request, plan_without_additions);
}

/// The provider took the request only without what recovery adds: this session goes on without.
fn remember_refusal(request: &ClientRequest, placed: &mut PlacedRequest) {
    let (Some(session), Some(planned)) = (&request.session, &mut placed.planned) else {
        return;
    };
    tracing::warn!(
        session = %session.inherited.session, provider = &*placed.target.provider.name, model = placed.target.model,
        "a provider refuses what recovery adds to a request; this session goes on without recovery"
    );
    planned.recovery.mark_refused();
}
