//! One attempt at one candidate.
//!
//! After a refusal the request is sent again, changed:
//!
//! - without asking for the usage of a stream,
//! - without the cache markers that the proxy added, and with or without the members that answers lack,
//! - with the text of a summary in the place of the block that the provider made,
//! - with the prompt at another place, then without tool rounds, and then without any of recovery's additions,
//! - without old images,
//! - asking the provider to drop thinking, and then without thinking ([`super::thinking_remedy`]),
//! - without the beta that the suffix of the model's name asks for,
//! - smaller, if the conversation was too long ([`super::overflow_retry`]), or if no table knows the words of the refusal
//!   ([`super::unknown_refusal`]).
//!
//! A request that continues a thread of Messages is never sent again, since each answer of a thread can be continued only
//! once.
//!
//! Only headers and the log show that a request was changed. Nothing that the proxy adds may fail a request that would have
//! worked without it.

use std::time::Instant;

use super::{
    edit_body::{Extras, edit_body},
    fallbacks::Fallbacks,
    overflow_retry::{
        Guesses, learn_from_guesses, overflow_answer, refit_after_guess, refit_after_overflow,
        refit_to_request_limit, refit_to_size,
    },
    provider_reply::{CallCount, ProviderReply, SendError},
    refusal::{Refusal, find_refusal},
    thinking_remedy::ThinkingRemedy,
    unknown_refusal::UnknownRefusal,
    window_beta::plan_without_window_beta,
};
use crate::{
    config::profile::AnswerFilling,
    format::beta_header::Beta,
    provider::{Payload, summary_refusal::SummaryRefusal, thinking_refusal::ThinkingRefusal},
    proxy::{
        ClientRequest, PlacedRequest,
        logins::note_answered_login,
        outgoing::{clean_answer_headers, send_traced},
        plan::{
            plan_without_additions, plan_without_block, plan_without_prompt_after_tool,
            plan_without_rounds,
        },
    },
    telemetry::Operation,
    unix_time::unix_ms_now,
};

/// Asks the candidate of `placed`. If the request is changed, the changed one replaces that in `placed`. `fallbacks`: `None`
/// in a tool round, which stays at its candidate.
///
/// # Errors
/// No answer began, or one broke off before the proxy could relay it.
pub(in crate::proxy) async fn attempt_request(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    mut fallbacks: Option<&mut Fallbacks>,
    calls: &mut CallCount,
) -> Result<ProviderReply, SendError> {
    let mut attempt = Attempt::begin(request, placed);
    let reply = loop {
        let reply = send_once(request, placed, attempt.extras, calls).await?;
        let tries_drop = attempt.remedy.tries_drop();
        let headers = reply.answer.headers();
        attempt.remedy.note_refusal(request, placed, headers);
        let has_fallback = fallbacks.as_ref().is_some_and(|all| all.has_more());
        let found = find_refusal(request, placed, reply, tries_drop, has_fallback);
        let (reply, refusal) = found.await?;
        let (reply, refusal) = attempt.prefer_refusal_of_filled(placed, reply, refusal);
        let Some(refusal) = refusal else { break reply };
        if request.continues_thread()
            || !attempt.change_request(request, placed, &refusal, fallbacks.as_deref_mut())
        {
            break overflow_answer(request.parsed.format, placed, reply, refusal);
        }
        attempt.keep_refusal(refusal, reply);
    };
    let (unknown, guesses) = (&mut attempt.unknown, &mut attempt.guesses);
    let reply = unknown.choose_answer(request, placed, guesses, reply);
    let reply = attempt.remedy.choose_answer(reply);
    attempt.remedy.conclude(request, placed, &reply);
    if reply.status().is_success() {
        attempt.remember_refusals(request, placed, &reply);
        if let (Some(followed), Some(planned)) = (request.followed_conversation(), &placed.planned)
        {
            request.app.last_requests.note_request(followed, planned);
        }
    }
    count_overflow(request, placed, &reply);
    if reply.too_long {
        // There is no end of an answer, which would publish what was learnt.
        let app = &request.app;
        let within = app.config.store.save_timeout();
        app.replica_sync.publish(&app.registry, within).await;
    }
    Ok(reply)
}

/// What one attempt has learnt from refusals so far.
#[derive(Default)]
struct Attempt {
    /// What the next request asks for.
    extras: Extras,
    usage_refused: bool,
    additions_refused: bool,
    summary_refused: Option<SummaryRefusal>,
    filling_refused: bool,
    /// The newest refusal was of the cache markers. Only an answer to the same request without them proves that: if the
    /// request was changed in another way too, that change may be why it is answered.
    markers_refused: bool,
    /// The refusal of the request with members that were added by the model's name.
    refused_filled: Option<ProviderReply>,
    size_tries: u32,
    /// A limit of tokens a minute was fitted.
    limit_fitted: bool,
    guesses: Guesses,
    unknown: UnknownRefusal,
    remedy: ThinkingRemedy,
}

impl Attempt {
    /// Begins with all extras that the candidate is not known to refuse.
    fn begin(request: &ClientRequest, placed: &PlacedRequest) -> Self {
        if request.continues_thread() {
            // If the provider refused an extra, the request could not be sent again without it.
            return Self::default();
        }
        let (provider, model) = (&placed.target.provider, &placed.target.model);
        let notes = provider.find_notes(model);
        Self {
            extras: Extras {
                usage: !notes.refuses_usage,
                markers: provider.may_add_markers(model, Instant::now()),
                drop_by: ThinkingRemedy::remembered_drop(placed),
                thinking_off: ThinkingRemedy::remembers_thinking_off(request, placed),
                filling: notes.answer_filling,
            },
            ..Self::default()
        }
    }

    /// Replaces a refusal of answers that lack members by the earlier refusal of the same request with these members. The
    /// provider demands the members, so the earlier refusal was about another part of the request.
    fn prefer_refusal_of_filled(
        &mut self,
        placed: &PlacedRequest,
        reply: ProviderReply,
        refusal: Option<Refusal>,
    ) -> (ProviderReply, Option<Refusal>) {
        let lacks_members = matches!(refusal, Some(Refusal::Thinking(ThinkingRefusal::Missing)));
        let Some(refused) = self.refused_filled.take_if(|_| lacks_members) else {
            return (reply, refusal);
        };
        self.filling_refused = false;
        if self.additions_refused {
            return (reply, refusal);
        }
        self.extras.filling = AnswerFilling::All;
        let refusal = placed.has_additions().then_some(Refusal::Additions);
        (refused, refusal)
    }

    /// Changes the request according to the refusal. Returns whether the request is sent again.
    fn change_request(
        &mut self,
        request: &ClientRequest,
        placed: &mut PlacedRequest,
        refusal: &Refusal,
        fallbacks: Option<&mut Fallbacks>,
    ) -> bool {
        let (extras, guesses) = (&mut self.extras, &mut self.guesses);
        self.markers_refused = matches!(refusal, Refusal::Markers);
        match refusal {
            Refusal::TooLong {
                overflow,
                by_one_host,
                ..
            } => {
                self.unknown.forget();
                return refit_after_overflow(
                    request,
                    placed,
                    overflow,
                    *by_one_host,
                    guesses,
                    fallbacks,
                );
            }
            Refusal::TooLarge(size) => {
                return refit_to_size(request, placed, *size, &mut self.size_tries);
            }
            Refusal::OneRequest(limit) => {
                return !std::mem::replace(&mut self.limit_fitted, true)
                    && refit_to_request_limit(request, placed, limit);
            }
            Refusal::Unknown { wording, size } => {
                let unknown = &mut self.unknown;
                if unknown.try_smaller(request, placed, wording, fallbacks, guesses) {
                    // The parts that were left out before were not the reason.
                    (self.additions_refused, self.filling_refused) = (false, false);
                    return true;
                }
                let Some(size) = *size else { return false };
                unknown.give_up(request, placed, guesses);
                return refit_to_size(request, placed, size, &mut self.size_tries);
            }
            Refusal::Wordless => return refit_after_guess(request, placed, guesses),
            Refusal::Thinking(refused) => {
                return self.remedy.prepare(request, placed, extras, *refused);
            }
            Refusal::ToDrop { named, by_name } => {
                let remedy = &mut self.remedy;
                if *by_name && remedy.rename_drop(request, placed, extras) {
                    return true;
                }
                return remedy.prepare_without_drop(request, placed, extras, *named);
            }
            Refusal::Additions => {
                let replanned = placed.try_replan(request, plan_without_prompt_after_tool)
                    || placed.try_replan(request, plan_without_rounds);
                if !replanned {
                    self.additions_refused = true;
                    placed.change_plan(request, plan_without_additions);
                }
            }
            Refusal::WindowBeta => {
                let home = fallbacks.as_deref().and_then(Fallbacks::home);
                return plan_without_window_beta(request, placed, home);
            }
            Refusal::Summary(_) => placed.change_plan(request, plan_without_block),
            Refusal::Usage => (extras.usage, self.usage_refused) = (false, true),
            Refusal::Markers => extras.markers = false,
            Refusal::Filling => {
                (extras.filling, self.filling_refused) = (AnswerFilling::Nothing, true);
            }
        }
        true
    }

    /// Keeps an answer that the client may get after all.
    fn keep_refusal(&mut self, refusal: Refusal, reply: ProviderReply) {
        match refusal {
            // The missing member is added now. If the request is refused again, that has another reason, and the client gets
            // that refusal.
            Refusal::Thinking(ThinkingRefusal::Missing) => {}
            Refusal::Thinking(_) => self.remedy.keep_refusal(reply),
            Refusal::Filling => self.refused_filled = Some(reply),
            Refusal::Unknown { .. } => self.unknown.keep_refusal(reply),
            Refusal::Summary(refused) => self.summary_refused = Some(refused),
            _ => {}
        }
    }

    /// Remembers what was refused. Only a success proves it: an error may echo the request and be about something else.
    fn remember_refusals(
        &self,
        request: &ClientRequest,
        placed: &mut PlacedRequest,
        reply: &ProviderReply,
    ) {
        let (provider, model) = (&placed.target.provider, &placed.target.model);
        if self.usage_refused {
            provider.note_usage_refused(model);
        }
        if self.markers_refused || reply.sent.markers {
            provider.note_markers(model, !self.markers_refused, Instant::now());
        }
        if self.summary_refused == Some(SummaryRefusal::Unknown) {
            provider.change_notes(model, |it| it.refuses_summaries = true);
        }
        if self.filling_refused {
            provider.change_notes(model, |it| it.answer_filling = AnswerFilling::Nothing);
        }
        if self.additions_refused {
            end_recovery(request, placed);
        }
        learn_from_guesses(request, placed, &self.guesses);
    }
}

/// Counts an overflow and its outcome. A guessed overflow does not count if the smaller request did not help.
fn count_overflow(request: &ClientRequest, placed: &PlacedRequest, reply: &ProviderReply) {
    let planned = placed.planned.as_ref();
    let was_refitted = planned.is_some_and(|planned| planned.refits > 0);
    let outcome = match reply.status().is_success() && was_refitted {
        true => "healed",
        false if reply.too_long => "unhealed",
        false => return,
    };
    let labels = [&*placed.target.provider.name, outcome];
    let overflows = &request.app.metrics.overflows;
    overflows.with_label_values(&labels).inc();
}

/// Sends the request once, with those of the extras that apply to it.
async fn send_once(
    request: &ClientRequest,
    placed: &mut PlacedRequest,
    extras: Extras,
    calls: &mut CallCount,
) -> Result<ProviderReply, SendError> {
    if let Some(planned) = &mut placed.planned {
        planned.asked_ms = unix_ms_now();
    }
    let (body, sent) = edit_body(request, placed, extras);
    let (trace, target) = (&request.notes.trace, &placed.target);
    let planned = placed.planned.as_deref();
    let betas = planned.map(|planned| planned.list_betas(&planned.plan));
    let mut betas = betas.unwrap_or_default();
    betas.extend(sent.drop_by.map(|_| Beta::Binding));
    let body = if request.continues_thread() {
        Payload::Once(body)
    } else {
        Payload::Whole(body)
    };
    let outgoing = placed.head.to_request(target, body, &betas);
    let begun = Instant::now();
    let answer = send_traced(trace, &target.provider, Some(Operation::Chat), outgoing).await;
    let took = begun.elapsed();
    calls.took += took;
    calls.calls += 1;
    let answer = answer?;
    if answer.status().is_success() {
        note_answered_login(&request.app, &request.parts, &target.provider);
        let latencies = &request.app.recent;
        latencies.record_latency(&target.provider.name, took);
    }
    Ok(ProviderReply {
        answer: clean_answer_headers(answer),
        sent,
        too_long: false,
        inner: None,
    })
}

/// Ends recovery in this session: the provider accepted the request only without recovery's additions.
fn end_recovery(request: &ClientRequest, placed: &mut PlacedRequest) {
    let (Some(session), Some(planned)) = (&request.session, &mut placed.planned) else {
        return;
    };
    let provider = &*placed.target.provider.name;
    tracing::warn!(
        session = %session.inherited.session, provider, model = placed.target.model,
        "provider {provider} refuses the prompts and tools that recovery adds; recovery is off for this session"
    );
    planned.recovery.mark_refused();
}
