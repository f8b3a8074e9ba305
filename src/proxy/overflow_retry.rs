//! Overflows: detects that a conversation was too long for its provider, and fits it anew.
//!
//! The numbers of a refusal are learnt, and the conversation is fitted anew and sent again, three times at most. A refusal
//! without words teaches nothing by itself: half of the conversation is tried, and only where that is answered the
//! first one was too long. Where no refusal names a number, the last try keeps only what must stay, and where that is
//! refused too, nothing is learnt. An overflow that stays is answered in the words that the clients of the format look for.
//! A refusal of bytes or images is healed by leaving out the oldest images first, and teaches nothing.
//!
//! Every 4xx and 5xx is read for it (`provider/overflow.rs`). Where the profile says that errors come inside a
//! success, a whole answer is read too, and the first event of a stream, whose head is held for it 2 s at most.
//!
//! Of a model whose window is only guessed, the first refusal is expected: nothing was cut before it. Where the request
//! would be cut now, a configured larger model comes first.
//!
//! The lesson (`provider/learnt_windows.rs`) holds for all sessions of the model until it expires, so the next
//! request fits at once. A prompt that the provider counted becomes the calibration's anchor. A request that cannot
//! get smaller may fall back to a larger window. An overflow opens no circuit, and is never sent again unchanged.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::StatusCode;

use super::{
    ClientRequest, PlacedRequest, ProviderReply, SendError,
    fallbacks::Fallbacks,
    plan::{
        clear_old_media, halve_request, keep_least, log_cuts, refit_request, remeasure_for_target,
    },
    provider_reply::{is_stream, read_short, refuses_usage},
    proxy_answers,
    refusal::{is_bad_request, refuses_additions},
};
use crate::{
    config::profile::AnswerFilling,
    conversation::Format,
    format::error_body::ErrorBody,
    provider::{
        learnt_windows::{Lessons, RefusedPrompt},
        overflow::{self, Overflow, OverflowVerdict},
        size_refusal::{SizeRefusal, detect_size_refusal},
        thinking_refusal::{ThinkingRefusal, detect_thinking_refusal, names_binding},
    },
    relay::{FirstEvent, peek_first_event},
};

/// Times that one request is fitted anew at one candidate.
const MAX_REFITS: u32 = 3;

/// Expected tokens from which on a refusal without words may be an overflow.
const LEAST_GUESSED: u32 = 4_000;

/// How long the head of a stream is held for its first event, which may be an error.
const FIRST_EVENT_WITHIN: Duration = Duration::from_secs(2);

/// Steps and messages with older images that stay after a first refusal of images or bytes, at most: providers that take
/// fewer pixels of many images mean more than 20.
const MOST_OLD_IMAGES: usize = 8;

/// What a provider refuses.
pub(super) enum RefusalKind {
    /// Nothing: it is the client's answer.
    Nothing,
    TooLong {
        overflow: Overflow,
        /// As the clients of the format look for it, so that it stays as it came.
        classic: bool,
    },
    /// The bytes of the request, or its images.
    TooLarge(SizeRefusal),
    /// The request, without any reason.
    Wordless,
    /// Perhaps recovery's additions.
    RefusesAdditions,
    /// To report the usage of a stream.
    RefusesUsage,
    /// Perhaps the members that were added to answers by the model's name.
    RefusesFilling,
    /// Perhaps the cache markers that the proxy added: the model is not known to take them.
    RefusesMarkers,
    /// The provider refuses thinking of earlier answers.
    RefusesThinking(ThinkingRefusal),
    /// The provider refuses the member that asks it to drop thinking. `named`: the error says so; else it is a guess.
    RefusesToDrop { named: bool },
}

/// Requests that were refused without a reason, perhaps for their length, or without a number.
#[derive(Default)]
pub(super) struct Guesses {
    refused: Vec<RefusedPrompt>,
    /// What was known of the window before the first refusal without a number.
    known_before: Option<Option<Lessons>>,
}

/// Finds a refusal that another request may avoid. The answer is passed on unchanged. `tries_drop`: this attempt
/// asks the provider to drop thinking, and the session does not know whether it takes that.
pub(super) async fn find_refusal(
    request: &ClientRequest,
    placed: &PlacedRequest,
    reply: ProviderReply,
    tries_drop: bool,
) -> Result<(ProviderReply, RefusalKind), SendError> {
    let status = reply.answer.status();
    if status.is_success() {
        return find_refusal_inside(request, placed, reply).await;
    }
    if !status.is_client_error() && !status.is_server_error() {
        return Ok((reply, RefusalKind::Nothing));
    }
    let format = request.parsed.format;
    let read = read_short(format, reply.answer, &placed.target.provider.name).await;
    let (answer, text) = read.map_err(|bad| match status.is_server_error() {
        true => SendError::Failing(bad),
        false => SendError::Broken(bad),
    })?;
    let reply = ProviderReply { answer, ..reply };
    let text = text.unwrap_or_default();
    if reply.sent.usage && refuses_usage(status, &text) {
        return Ok((reply, RefusalKind::RefusesUsage));
    }
    if let Some(refused) = detect_thinking_refusal(status, &text) {
        return Ok((reply, RefusalKind::RefusesThinking(refused)));
    }
    let named = reply.sent.drop_by.is_some() && names_binding(&text);
    let target = &placed.target;
    let takes_markers = || target.provider.takes_markers(&target.model, Instant::now());
    let may_refuse_markers = reply.sent.markers && !takes_markers();
    let refused_size = detect_size_refusal(status, &text);
    let refusal = match overflow::detect_overflow(status, &text) {
        OverflowVerdict::Overflow(overflow) => RefusalKind::TooLong {
            classic: status == StatusCode::BAD_REQUEST && is_classic(format, &text),
            overflow,
        },
        _ if named || tries_drop && is_bad_request(status) => RefusalKind::RefusesToDrop { named },
        // A 413 without a word is about bytes.
        OverflowVerdict::Wordless if status == StatusCode::PAYLOAD_TOO_LARGE => {
            RefusalKind::TooLarge(SizeRefusal::Bytes)
        }
        OverflowVerdict::Wordless if may_refuse_markers => RefusalKind::RefusesMarkers,
        OverflowVerdict::Wordless => RefusalKind::Wordless,
        OverflowVerdict::Other if refused_size.is_some() => {
            refused_size.map_or(RefusalKind::Nothing, RefusalKind::TooLarge)
        }
        _ if may_refuse_markers && refuses_additions(status, &text) => RefusalKind::RefusesMarkers,
        _ if reply.sent.filling == AnswerFilling::ByName && refuses_additions(status, &text) => {
            RefusalKind::RefusesFilling
        }
        _ if placed.has_additions() && refuses_additions(status, &text) => {
            RefusalKind::RefusesAdditions
        }
        _ => RefusalKind::Nothing,
    };
    Ok((reply, refusal))
}

/// Finds errors inside a success, where the provider's profile says that it sends them so.
async fn find_refusal_inside(
    request: &ClientRequest,
    placed: &PlacedRequest,
    reply: ProviderReply,
) -> Result<(ProviderReply, RefusalKind), SendError> {
    let provider = &placed.target.provider;
    let profile = *provider.config.profile;
    if !request.parsed.format.refine_profile(profile).errors_inside {
        return Ok((reply, RefusalKind::Nothing));
    }
    let format = request.parsed.format;
    if !is_stream(&reply.answer, request.parsed.streams) {
        let (answer, text) = read_short(format, reply.answer, &provider.name).await?;
        let reply = ProviderReply { answer, ..reply };
        let judge = |text: Bytes| {
            let verdict = overflow::detect_overflow(StatusCode::OK, &text);
            judge_success(&text, verdict, false)
        };
        return Ok((reply, text.map_or(RefusalKind::Nothing, judge)));
    }
    let (answer, first) = peek_first_event(format, reply.answer, FIRST_EVENT_WITHIN).await;
    let reply = ProviderReply { answer, ..reply };
    let refusal = match first {
        FirstEvent::Event(data) => {
            let verdict = overflow::detect_overflow_in_event(&data);
            judge_success(&data, verdict, format.rules().tells_overflow_in_stream)
        }
        FirstEvent::Nothing => RefusalKind::Wordless,
        FirstEvent::Unknown => RefusalKind::Nothing,
    };
    Ok((reply, refusal))
}

/// Learns from an overflow and fits the request anew, unless a larger model comes before a cut. Returns whether it got
/// smaller.
pub(super) fn refit_after_overflow(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    overflow: &Overflow,
    guesses: &mut Guesses,
    fallbacks: Option<&mut Fallbacks>,
) -> bool {
    let planned = placed.planned.as_deref();
    let Some((followed, planned)) = request.followed_conversation().zip(planned) else {
        return false;
    };
    // An answer cap beyond the window is the client's error, unless the cap may be lowered.
    let answer_alone = overflow.is_filled_by_answer() && !planned.may_lower_cap();
    if !planned.is_guarded() || answer_alone {
        return false;
    }
    let (app, target) = (&request.app, &mut placed.target);
    let has_numbers = *overflow != Overflow::default();
    if !has_numbers {
        let (learnt, endpoint) = (&app.registry.learnt, &target.provider.endpoint);
        let now = SystemTime::now();
        let known = || learnt.export_lessons(endpoint, &target.model, now);
        let before = guesses.known_before.get_or_insert_with(known);
        if planned.refits == MAX_REFITS {
            // What must stay is refused too, so that all of it was no lesson about the window.
            learnt.restore_lessons(endpoint, &target.model, *before);
            return false;
        }
    }
    let refused = planned.describe_refusal(overflow);
    let lesson = app.registry.learn_from_refusal(target, &refused);
    let sync = &app.replica_sync;
    sync.mark_changed(&target.provider.name, &target.model);
    target.window = app.registry.current_window(target);
    let counted = refused.count_prompt_tokens();
    let may_refit = planned.refits < MAX_REFITS;
    let is_last = !has_numbers && planned.refits + 1 == MAX_REFITS;
    let smaller = match is_last {
        _ if !may_refit => None,
        true => keep_least(followed, planned),
        false => refit_request(followed, planned, target, counted),
    };
    let goes_to_larger = |it: &_| fallbacks.is_some_and(|all| all.queue_larger_model(request, it));
    // The levels go by what the window is taken for.
    let smaller = smaller.map(|it| remeasure_for_target(followed, it, target));
    let Some(smaller) = smaller.filter(|it| !goes_to_larger(it)) else {
        // The refusal stands, with the window that was learnt.
        let measured = remeasure_for_target(followed, planned.clone(), target);
        placed.set_plan(followed, measured);
        return false;
    };
    let refit = smaller.refits;
    log_cuts(followed.session.inherited.session, &smaller);
    placed.set_plan(followed, smaller);
    let target = &placed.target;
    tracing::warn!(
        provider = &*target.provider.name,
        model = target.model,
        ?lesson,
        counted,
        window = target.window.tokens,
        input_limit = target.window.input,
        "overflow: {:?} refused a conversation as too long; sending a smaller one (refit {refit} of {MAX_REFITS})",
        target.id()
    );
    true
}

/// Fits a long request anew that was refused without a reason. Returns whether it got smaller.
pub(super) fn refit_after_guess(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    guesses: &mut Guesses,
) -> bool {
    let planned = placed.planned.as_deref();
    let Some((followed, planned)) = request.followed_conversation().zip(planned) else {
        return false;
    };
    let expected = planned.expected_tokens();
    if !planned.is_guarded() || expected < LEAST_GUESSED || planned.refits == MAX_REFITS {
        return false;
    }
    let refused = planned.describe_refusal(&Overflow::default());
    let mut guessed = placed.target.clone();
    guessed.window.input = Some(expected / 2);
    let smaller = match planned.refits + 1 == MAX_REFITS {
        true => keep_least(followed, planned),
        false => refit_request(followed, planned, &guessed, None),
    };
    let Some(smaller) = smaller else {
        return false;
    };
    log_cuts(followed.session.inherited.session, &smaller);
    guesses.refused.push(refused);
    placed.target = guessed;
    placed.set_plan(followed, smaller);
    true
}

/// Plans anew a request whose bytes or images were refused: with half of the older images, at most so many, then without the
/// older ones, at last with half of the prompt, and of that again where it is bytes. `tries`: how many were made. Teaches
/// nothing about the window. Returns whether it got smaller.
pub(super) fn refit_to_size(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    refused: SizeRefusal,
    tries: &mut u32,
) -> bool {
    let provider = placed.target.provider.name.clone();
    let halves = match refused {
        SizeRefusal::Images => 1,
        SizeRefusal::Bytes => 3,
    };
    while *tries < 2 + halves {
        let nth = *tries;
        *tries += 1;
        let is_smaller = placed.try_replan(request, |followed, planned| match nth {
            0 => clear_old_media(followed, planned, MOST_OLD_IMAGES),
            1 => clear_old_media(followed, planned, 0),
            _ => halve_request(followed, planned),
        });
        if is_smaller {
            tracing::warn!(
                provider = &*provider,
                model = placed.target.model,
                "{provider} refused the {} of a request; sending it again without the oldest",
                match refused {
                    SizeRefusal::Images => "images",
                    SizeRefusal::Bytes => "bytes",
                }
            );
            return true;
        }
    }
    false
}

/// Learns from requests that were refused without a reason, after a smaller one was answered.
pub(super) fn learn_from_guesses(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    guesses: &Guesses,
) {
    if guesses.refused.is_empty() {
        return;
    }
    let (app, target) = (&request.app, &mut placed.target);
    for refused in &guesses.refused {
        app.registry.learn_from_refusal(target, refused);
    }
    target.window = app.registry.current_window(target);
    let (provider, model) = (&*target.provider.name, &*target.model);
    app.replica_sync.mark_changed(provider, model);
    tracing::warn!(
        provider,
        model,
        limit = target.window.input,
        "overflow: {provider} refused a long conversation without a reason and answered a shorter one"
    );
    let target = target.clone();
    placed.change_plan(request, |followed, planned| {
        remeasure_for_target(followed, planned, &target)
    });
}

/// The answer where no smaller request helps: an overflow in the words that the clients of the format look for.
pub(super) fn overflow_answer(
    format: Format,
    placed: &PlacedRequest,
    reply: ProviderReply,
    refusal: RefusalKind,
) -> ProviderReply {
    let RefusalKind::TooLong { overflow, classic } = refusal else {
        return reply;
    };
    let planned = placed.planned.as_ref();
    let is_unguarded = planned.is_some_and(|planned| !planned.is_guarded());
    let answer = match is_unguarded || classic {
        true => reply.answer,
        false => proxy_answers::overflow_response(format, &overflow, placed.target.window),
    };
    ProviderReply {
        answer,
        too_long: true,
        ..reply
    }
}

/// The refusal in an answer whose status is a success.
fn judge_success(text: &Bytes, verdict: OverflowVerdict, classic: bool) -> RefusalKind {
    match (detect_thinking_refusal(StatusCode::OK, text), verdict) {
        (Some(refused), _) => RefusalKind::RefusesThinking(refused),
        (None, OverflowVerdict::Overflow(overflow)) => RefusalKind::TooLong { overflow, classic },
        (None, _) => RefusalKind::Nothing,
    }
}

/// Whether an overflow is in the words that the clients of the format look for, so that it can stay as it came.
fn is_classic(format: Format, text: &[u8]) -> bool {
    ErrorBody::parse_body(text).is_some_and(|fault| format.is_overflow_error(&fault))
}
