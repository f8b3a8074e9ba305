//! A conversation that was too long for its provider: how that is noticed, and what is done.
//!
//! What a refusal says is learnt, the same conversation is fitted anew and sent again, twice at
//! most. A refusal without words teaches nothing by itself: half of the conversation is tried, and
//! only if that is answered it was too long. What cannot be healed is answered in the words that
//! every client knows.
//!
//! Every 4xx and 5xx is read for it (`provider/overflow.rs`). Where the profile says that errors come inside a
//! success, a whole answer is read too, and of a stream the first event, for which its head is held, 2 s at most.
//!
//! What is learnt (`provider/learnt_windows.rs`) holds for all sessions of the model until it expires, so the next request
//! fits at once; a prompt that the provider counted becomes the calibration's anchor. What cannot get smaller may
//! go on to a place with a larger window. An overflow opens no breaker, and is never sent again unchanged.

use std::time::Duration;

use http::StatusCode;

use super::{
    client_request::ClientRequest,
    fallbacks::PlacedRequest,
    plan::{refit_request, remeasure_for_target},
    provider_reply::{ProviderReply, SendError, is_stream, read_short, refuses_usage},
    proxy_answers,
    refusal::{may_refuse, refuses_additions},
};
use crate::{
    format::error_body::ErrorBody,
    provider::{
        learnt_windows::RefusedPrompt,
        overflow::{self, Overflow, OverflowVerdict},
    },
    relay::{FirstEvent, peek_first_event},
};

/// Times that one request is fitted anew at one place.
const MAX_REFITS: u32 = 2;

/// Tokens of a request that may have been refused for its length where nobody says so.
const LEAST_GUESSED: u32 = 4_000;

/// How long the head of a stream is held for its first event, which may be an error.
const FIRST_EVENT_WITHIN: Duration = Duration::from_secs(2);

/// What an answer says of the request.
pub(super) enum RefusalKind {
    /// It is the answer.
    Nothing,
    TooLong {
        overflow: Overflow,
        /// In the words that every client knows.
        classic: bool,
    },
    /// A refusal that says nothing at all.
    Wordless,
    /// It cannot be taken with what recovery added.
    RefusesAdditions,
    /// It cannot be asked for the usage of a stream.
    RefusesUsage,
}

/// Requests that were refused without a word, perhaps for their length.
#[derive(Default)]
pub(super) struct Guesses(Vec<RefusedPrompt>);

/// Looks whether an answer is a refusal that another request may avoid; the answer goes on as it came.
pub(super) async fn find_refusal(
    request: &ClientRequest,
    placed: &PlacedRequest,
    reply: ProviderReply,
) -> Result<(ProviderReply, RefusalKind), SendError> {
    let status = reply.answer.status();
    if status.is_success() {
        return find_refusal_inside(request.parsed.streams, placed, reply).await;
    }
    if !status.is_client_error() && !status.is_server_error() {
        return Ok((reply, RefusalKind::Nothing));
    }
    let read = read_short(reply.answer, &placed.target.provider.name).await;
    let (answer, text) = read.map_err(|bad| match status.is_server_error() {
        true => SendError::Failing(bad),
        false => SendError::Broken(bad),
    })?;
    let reply = ProviderReply { answer, ..reply };
    let text = text.unwrap_or_default();
    if reply.asked_usage && refuses_usage(status, &text) {
        return Ok((reply, RefusalKind::RefusesUsage));
    }
    let has_additions = placed.planned.as_ref().is_some_and(|it| it.has_additions());
    let refusal = match overflow::detect_overflow(status, &text) {
        OverflowVerdict::Overflow(overflow) => RefusalKind::TooLong {
            classic: status == StatusCode::BAD_REQUEST && is_classic(&text),
            overflow,
        },
        OverflowVerdict::Wordless => RefusalKind::Wordless,
        OverflowVerdict::Other
            if has_additions && may_refuse(status) && refuses_additions(status, &text) =>
        {
            RefusalKind::RefusesAdditions
        }
        _ => RefusalKind::Nothing,
    };
    Ok((reply, refusal))
}

/// Errors that come as a success, where the provider is known for it.
async fn find_refusal_inside(
    streams: bool,
    placed: &PlacedRequest,
    reply: ProviderReply,
) -> Result<(ProviderReply, RefusalKind), SendError> {
    let provider = &placed.target.provider;
    if !provider.config.profile.errors_inside {
        return Ok((reply, RefusalKind::Nothing));
    }
    if !is_stream(&reply.answer, streams) {
        let (answer, text) = read_short(reply.answer, &provider.name).await?;
        let reply = ProviderReply { answer, ..reply };
        let verdict = text.map(|text| overflow::detect_overflow(StatusCode::OK, &text));
        return Ok((reply, verdict_to_refusal(verdict)));
    }
    let (answer, first) = peek_first_event(reply.answer, FIRST_EVENT_WITHIN).await;
    let reply = ProviderReply { answer, ..reply };
    let refusal = match first {
        FirstEvent::Event(data) => {
            verdict_to_refusal(Some(overflow::detect_overflow_in_event(&data)))
        }
        FirstEvent::Nothing => RefusalKind::Wordless,
        FirstEvent::Unknown => RefusalKind::Nothing,
    };
    Ok((reply, refusal))
}

/// Learns from an overflow and fits the request anew. Returns whether it got smaller.
pub(super) fn refit_after_overflow(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    overflow: &Overflow,
) -> bool {
    let (Some(followed), Some(planned)) =
        (request.followed_conversation(), placed.planned.as_deref())
    else {
        return false;
    };
    // An answer that is to be longer than the window is the provider's to refuse, unless less may be asked.
    let answer_alone = overflow.is_filled_by_answer() && !planned.may_lower_cap();
    if !planned.is_guarded() || answer_alone {
        return false;
    }
    let (app, target) = (&request.app, &mut placed.target);
    let refused = planned.describe_refusal(overflow);
    let lesson = app.registry.learn_from_refusal(target, &refused);
    app.replica_sync
        .mark_changed(&target.provider.name, &target.model);
    target.window = app.registry.current_window(target);
    let counted = refused.count_prompt_tokens();
    let smaller = match planned.refits < MAX_REFITS {
        true => refit_request(followed, planned, target, counted),
        false => None,
    };
    let Some(smaller) = smaller else {
        // The refusal goes to the client, with the window that was learnt.
        let measured = remeasure_for_target(followed, planned.clone(), target);
        placed.set_plan(followed, measured);
        return false;
    };
    placed.set_plan(followed, smaller);
    let target = &placed.target;
    tracing::warn!(
        provider = &*target.provider.name,
        model = target.model,
        ?lesson,
        counted,
        window = target.window.tokens,
        input_limit = target.window.input,
        "{:?} refused a conversation as too long; it is fitted anew",
        target.id()
    );
    true
}

/// Fits a long request anew that was refused without a word. Returns whether it got smaller.
pub(super) fn refit_after_guess(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    guesses: &mut Guesses,
) -> bool {
    let (Some(followed), Some(planned)) =
        (request.followed_conversation(), placed.planned.as_deref())
    else {
        return false;
    };
    let expected = planned.expected_tokens();
    if !planned.is_guarded() || expected < LEAST_GUESSED || planned.refits == MAX_REFITS {
        return false;
    }
    let refused = planned.describe_refusal(&Overflow::default());
    let mut guessed = placed.target.clone();
    guessed.window.input = Some(expected / 2);
    let Some(smaller) = refit_request(followed, planned, &guessed, None) else {
        return false;
    };
    guesses.0.push(refused);
    placed.target = guessed;
    placed.set_plan(followed, smaller);
    true
}

/// A request was answered: what was refused before it without a word was too long.
pub(super) fn learn_from_guesses(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    guesses: &Guesses,
) {
    if guesses.0.is_empty() {
        return;
    }
    let (app, target) = (&request.app, &mut placed.target);
    for refused in &guesses.0 {
        app.registry.learn_from_refusal(target, refused);
    }
    target.window = app.registry.current_window(target);
    let (provider, model) = (&*target.provider.name, &*target.model);
    app.replica_sync.mark_changed(provider, model);
    tracing::warn!(
        provider,
        model,
        limit = target.window.input,
        "a provider refused a long conversation without a word, and took a shorter one"
    );
    let target = target.clone();
    placed.change_plan(request, |followed, planned| {
        remeasure_for_target(followed, planned, &target)
    });
}

/// What is answered where no other request helps: an overflow in the words that every client knows.
pub(super) fn overflow_answer(
    placed: &PlacedRequest,
    reply: ProviderReply,
    refusal: RefusalKind,
) -> ProviderReply {
    let RefusalKind::TooLong { overflow, classic } = refusal else {
        return reply;
    };
    let untouched = placed.planned.as_ref().is_some_and(|it| !it.is_guarded());
    let answer = match untouched || classic {
        true => reply.answer,
        false => proxy_answers::overflow_response(&overflow, placed.target.window),
    };
    ProviderReply {
        answer,
        too_long: true,
        ..reply
    }
}

fn verdict_to_refusal(verdict: Option<OverflowVerdict>) -> RefusalKind {
    match verdict {
        Some(OverflowVerdict::Overflow(overflow)) => RefusalKind::TooLong {
            overflow,
            classic: false,
        },
        _ => RefusalKind::Nothing,
    }
}

/// Whether an overflow is worded as OpenAI does, so that it can stay as it came.
fn is_classic(text: &[u8]) -> bool {
    ErrorBody::parse_body(text).is_some_and(|fault| {
        fault.code.as_deref() == Some("context_length_exceeded")
            && fault.message.contains("maximum context length")
    })
}
