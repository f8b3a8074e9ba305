//! Fits a conversation again (a refit) that was too long for its provider.
//!
//! The numbers of a refusal are learnt, and the conversation is fitted again and sent again, at most three times. A refusal
//! without words by itself teaches nothing: half of the conversation is tried, and only if that is answered, the first
//! request was too long. If no refusal names a number, the last try keeps only what must stay. If that is refused too,
//! nothing is learnt. If an overflow remains, the client gets it in the words that the clients of the format look for. After
//! a refusal of bytes or images, the oldest images are left out first, and nothing is learnt. If a limit of tokens a minute
//! is smaller than the one request, the request is fitted to it once, and nothing is learnt either. For words that no table
//! knows, see [`super::unknown_refusal`].
//!
//! If prompt and answer cap together are too long, the cap is lowered before anything is cut, to the least that the guard
//! allows. If nothing can be cut, the cap is lowered further: to what is left, or to a quarter if the provider does not say
//! what is left.
//!
//! If the window of a model is only guessed, the first refusal is expected: nothing was cut before it. If the request must
//! be cut now, a configured larger model is asked first.
//!
//! The lesson (`provider/learnt_windows.rs`) holds for all sessions of the account at the model until it expires, so the
//! next request fits at once. If a longer prompt of the account was answered before, or if several hosts serve the model,
//! the lesson holds for the session only. A prompt that the provider counted becomes the calibration's anchor. A request
//! that cannot get smaller may fall back to a larger window. An overflow opens no circuit, and such a request is never sent
//! again unchanged.

use std::time::SystemTime;

use http::{HeaderValue, Response, StatusCode};

use super::{
    fallbacks::Fallbacks, next_step::Remedy, provider_reply::ProviderReply, refusal::Refusal,
};
use crate::{
    conversation::Format,
    http::answer::{ERROR_HEADER, json_response},
    provider::{
        Target, Window,
        learnt_windows::{LessonSnapshot, RefusedPrompt},
        overflow::Overflow,
        size_refusal::SizeRefusal,
    },
    proxy::{
        App, ClientRequest, ProviderRequest,
        plan::{
            clear_old_media, fit_to_request_limit, halve_request, lower_cap, refit_request,
            refit_to_required, remeasure_for_target,
        },
    },
    wire::Body,
};

/// Times that one request is fitted anew at one candidate.
const MAX_REFITS: u32 = 3;

/// The answer cap is divided by this number if nothing else helps, and the provider does not say what is left.
const CAP_STEP: u32 = 4;

/// The least expected tokens of a request whose refusal without words may be an overflow.
const LEAST_GUESSED: u32 = 4_000;

/// Most steps and messages with older images that stay after a first refusal of images or bytes. Providers that accept fewer
/// pixels if there are many images mean more than 20 of them.
const MOST_OLD_IMAGES: usize = 8;

/// Requests that were refused without a reason, perhaps for their length, or without a number.
#[derive(Default)]
pub(super) struct Guesses {
    pub(super) refused: Vec<RefusedPrompt>,
    /// What was known of the window before the first refusal without a number.
    known_before: Option<LessonSnapshot>,
}

impl Guesses {
    /// Returns whether another refit may help after a refusal without a number. After the last refit, even what must stay
    /// was refused. Then none of the refusals was about the window, and what was learnt from them is taken back.
    fn may_refit(&mut self, app: &App, target: &Target, refits: u32) -> bool {
        let learnt = &app.registry.learnt;
        let known = || learnt.take_snapshot(&target.lesson_key(), SystemTime::now());
        let before = self.known_before.get_or_insert_with(known);
        if refits == MAX_REFITS {
            learnt.restore_snapshot(before.clone());
        }
        refits < MAX_REFITS
    }
}

/// How a request is fitted anew after an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefitMethod {
    Nothing,
    /// Only what must stay is left.
    ToRequired,
    /// The answer cap goes down to the least that the guard allows.
    LowerCap,
    Cut,
    /// If nothing can be cut, a shorter answer is better than no answer.
    CutOrLowerCap,
}

/// Chooses how a request that was fitted anew `refits` times is fitted after the next overflow.
fn choose_refit(refits: u32, refused: &RefusedPrompt) -> RefitMethod {
    let has_numbers = refused.overflow != Overflow::default();
    if refits >= MAX_REFITS {
        RefitMethod::Nothing
    } else if !has_numbers && refits + 1 == MAX_REFITS {
        RefitMethod::ToRequired
    } else if refused.may_be_due_to_cap() {
        RefitMethod::LowerCap
    } else if refused.names_answer() {
        RefitMethod::CutOrLowerCap
    } else {
        RefitMethod::Cut
    }
}

/// Learns from an overflow and fits the request anew, unless a larger model is asked instead. Returns whether the request got
/// smaller.
pub(super) fn refit_after_overflow(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
    refusal: &Refusal,
    guesses: &mut Guesses,
    fallbacks: Option<&mut Fallbacks>,
) -> bool {
    let Refusal::OverWindow {
        overflow,
        by_one_host,
        ..
    } = refusal
    else {
        return false;
    };
    let planned = prepared.planned.as_deref();
    let Some((followed, planned)) = request.followed_conversation().zip(planned) else {
        return false;
    };
    // An answer cap beyond the window is the client's error, unless the cap may be lowered.
    let answer_alone = overflow.is_filled_by_answer() && !planned.may_lower_cap();
    if !planned.is_guarded() || answer_alone {
        return false;
    }
    let (app, target) = (&request.app, &mut prepared.target);
    let has_numbers = *overflow != Overflow::default();
    if !has_numbers && !guesses.may_refit(app, target, planned.refits) {
        return false;
    }
    let mut refused = planned.describe_refusal(overflow);
    refused.by_one_host |= *by_one_host;
    let lesson = app.registry.learn_from_refusal(target, &refused);
    app.replica_sync.mark_changed(target);
    target.window = app.registry.current_window(target);
    let counted = refused.count_prompt_tokens();
    let lowered = |most: u32| lower_cap(followed, planned, target, most);
    let smaller = match choose_refit(planned.refits, &refused) {
        RefitMethod::Nothing => None,
        RefitMethod::ToRequired => refit_to_required(followed, planned),
        RefitMethod::LowerCap => lowered(refused.reserve),
        RefitMethod::Cut => refit_request(followed, planned, target, counted),
        RefitMethod::CutOrLowerCap => refit_request(followed, planned, target, counted)
            .or_else(|| lowered(refused.answer / CAP_STEP)),
    };
    let goes_to_larger = |it: &_| fallbacks.is_some_and(|all| all.queue_larger_model(request, it));
    // The health levels follow the window that is assumed now.
    let smaller = smaller.map(|it| remeasure_for_target(followed, it, target));
    let Some(smaller) = smaller.filter(|it| !goes_to_larger(it)) else {
        // The request is not sent smaller here. Its plan takes over the window that was learnt.
        let measured = remeasure_for_target(followed, planned.clone(), target);
        prepared.set_plan(followed, measured);
        return false;
    };
    let refit = smaller.refits;
    prepared.set_plan(followed, smaller);
    let target = &prepared.target;
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
    prepared: &mut ProviderRequest,
    guesses: &mut Guesses,
) -> bool {
    let planned = prepared.planned.as_deref();
    let Some((followed, planned)) = request.followed_conversation().zip(planned) else {
        return false;
    };
    let expected = planned.expected_tokens();
    if !planned.is_guarded() || expected < LEAST_GUESSED || planned.refits == MAX_REFITS {
        return false;
    }
    let refused = planned.describe_refusal(&Overflow::default());
    let mut guessed = prepared.target.clone();
    guessed.window.input = Some(expected / 2);
    let smaller = if planned.refits + 1 == MAX_REFITS {
        refit_to_required(followed, planned)
    } else {
        refit_request(followed, planned, &guessed, None)
    };
    let Some(smaller) = smaller else {
        return false;
    };
    guesses.refused.push(refused);
    prepared.target = guessed;
    prepared.set_plan(followed, smaller);
    true
}

/// Plans a request again whose bytes or images were refused. Learns nothing about the window. Returns whether the request
/// got smaller.
pub(super) fn refit_to_size(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
    refusal: &Refusal,
    remedy: Remedy,
) -> bool {
    let refused = match refusal {
        Refusal::OverSize(SizeRefusal::Images) => "images",
        _ => "size in bytes",
    };
    let is_smaller = prepared.try_replan(request, |followed, planned| match remedy {
        Remedy::KeepFewImages => clear_old_media(followed, planned, MOST_OLD_IMAGES),
        Remedy::KeepNoImages => clear_old_media(followed, planned, 0),
        _ => halve_request(followed, planned),
    });
    if is_smaller {
        let provider = &*prepared.target.provider.name;
        tracing::warn!(
            provider,
            model = prepared.target.model,
            "{provider} refused a request for its {refused}; sending it again without its oldest images or messages"
        );
    }
    is_smaller
}

/// Fits a request to a limit of tokens a minute that is smaller than the request. Returns whether it got smaller.
pub(super) fn refit_to_request_limit(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
    refusal: &Refusal,
) -> bool {
    let Refusal::OverMinuteLimit(limit) = refusal else {
        return false;
    };
    let provider = prepared.target.provider.name.clone();
    let is_smaller = prepared.try_replan(request, |followed, planned| {
        fit_to_request_limit(followed, planned, limit)
    });
    if is_smaller {
        tracing::warn!(
            provider = &*provider,
            model = prepared.target.model,
            limit = limit.window.or(limit.prompt_limit),
            requested = limit.requested,
            "{provider} takes fewer tokens a minute than this one request has; sending a smaller one"
        );
    }
    is_smaller
}

/// Learns from requests that were refused without a reason, after a smaller one was answered.
pub(super) fn learn_from_guesses(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
    guesses: &Guesses,
) {
    if guesses.refused.is_empty() {
        return;
    }
    let (app, target) = (&request.app, &mut prepared.target);
    for refused in &guesses.refused {
        app.registry.learn_from_refusal(target, refused);
    }
    target.window = app.registry.current_window(target);
    let (provider, model) = (&*target.provider.name, &*target.model);
    app.replica_sync.mark_changed(target);
    tracing::warn!(
        provider,
        model,
        limit = target.window.input,
        "overflow: {provider} refused a long conversation, named no reason, and answered a shorter one"
    );
    let target = target.clone();
    prepared.change_plan(request, |followed, planned| {
        remeasure_for_target(followed, planned, &target)
    });
}

/// The answer if no smaller request helps: an overflow in the words that the clients of the format look for.
pub(super) fn answer_refusal(
    format: Format,
    prepared: &ProviderRequest,
    reply: ProviderReply,
    refusal: &Refusal,
) -> ProviderReply {
    let Refusal::OverWindow {
        overflow, classic, ..
    } = refusal
    else {
        return reply;
    };
    let planned = prepared.planned.as_ref();
    let is_unguarded = planned.is_some_and(|planned| !planned.is_guarded());
    let answer = if is_unguarded || *classic {
        reply.answer
    } else {
        overflow_response(format, overflow, prepared.target.window)
    };
    ProviderReply {
        answer,
        too_long: true,
        ..reply
    }
}

/// An overflow in the words that the client's own recovery looks for.
fn overflow_response(format: Format, overflow: &Overflow, window: Window) -> Response<Body> {
    let window = overflow.window.or(window.claimed_tokens());
    let fault = format.overflow_error(window, overflow.prompt_tokens);
    let mut answer = json_response(StatusCode::BAD_REQUEST, format.error_body(&fault));
    if let Ok(code) = HeaderValue::try_from(fault.code.unwrap_or_default()) {
        answer.headers_mut().insert(ERROR_HEADER, code);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::WindowSource;

    #[test]
    #[rustfmt::skip]
    fn a_refit_lowers_the_cap_before_it_cuts_and_keeps_only_the_rest_at_last() {
        let none = Overflow::default();
        let window = Overflow { window: Some(10_000), ..none };
        let with_answer = Overflow { answer: Some(4_000), ..window };
        let with_both = Overflow { prompt_tokens: Some(8_000), ..with_answer };
        let long_prompt = Overflow { prompt_tokens: Some(12_000), ..with_answer };
        let limit = Overflow { prompt_limit: Some(9_000), prompt_tokens: Some(12_000), ..none };
        // In each row: the times that the request was fitted, the numbers of the refusal, and the answer cap.
        for (name, refits, overflow, answer, expected) in [
            ("no number", 0, none, 1_000, RefitMethod::Cut),
            ("no number, the second time", 1, none, 1_000, RefitMethod::Cut),
            ("no number, the last time", 2, none, 1_000, RefitMethod::ToRequired),
            ("no number, once too often", 3, none, 1_000, RefitMethod::Nothing),
            ("the window", 0, window, 4_000, RefitMethod::Cut),
            ("the window, the last time", 2, window, 4_000, RefitMethod::Cut),
            ("the window, once too often", 3, window, 4_000, RefitMethod::Nothing),
            ("an answer above the least", 0, with_answer, 4_000, RefitMethod::LowerCap),
            ("the least answer", 0, with_answer, 1_000, RefitMethod::CutOrLowerCap),
            ("a counted prompt within the window", 0, with_both, 4_000, RefitMethod::CutOrLowerCap),
            ("a counted prompt beyond it", 0, long_prompt, 4_000, RefitMethod::Cut),
            ("a limit of prompts", 0, limit, 4_000, RefitMethod::Cut),
        ] {
            let claimed = Window {
                tokens: 20_000,
                input: None,
                taught: None,
                source: WindowSource::Config,
            };
            let refused = RefusedPrompt {
                overflow,
                claimed,
                expected: 12_000,
                answer,
                reserve: 1_000,
                answered: 0,
                by_one_host: false,
            };
            assert_eq!(choose_refit(refits, &refused), expected, "{name}");
        }
    }
}
