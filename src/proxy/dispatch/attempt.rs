//! One attempt at one candidate: sends the request, and after a refusal sends it again, changed as
//! [`list_remedies`](super::next_step::list_remedies) says, until an answer begins or no remedy is left.
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
    next_step::{Remedy, RemedyFacts, list_remedies},
    overflow_retry::{
        Guesses, answer_refusal, learn_from_guesses, refit_after_guess, refit_after_overflow,
        refit_to_request_limit, refit_to_size,
    },
    past_refusals::PastRefusals,
    provider_reply::{CallCount, ProviderReply, SendError},
    refusal::{Refusal, find_refusal},
    thinking_remedy::{ThinkingRemedy, describe_thinking},
    unknown_refusal::UnknownRefusal,
    window_beta::plan_without_window_beta,
};
use crate::{
    config::profile::AnswerFilling,
    format::beta_header::Beta,
    provider::{Payload, summary_refusal::SummaryRefusal, thinking_refusal::ThinkingRefusal},
    proxy::{
        ClientRequest, PlannedRequest, ProviderRequest,
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

/// Asks the candidate of `prepared`. If the request is changed, the changed one replaces that in `prepared`. `fallbacks`: `None`
/// in a tool round, which stays at its candidate.
///
/// # Errors
/// No answer began, or one broke off before the proxy could relay it.
pub(in crate::proxy) async fn attempt_request(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
    mut fallbacks: Option<&mut Fallbacks>,
    calls: &mut CallCount,
) -> Result<ProviderReply, SendError> {
    let mut attempt = Attempt::begin(request, prepared);
    let reply = loop {
        let reply = send_once(request, prepared, attempt.extras, calls).await?;
        attempt.note_gap(request, prepared, &reply);
        let tries_drop = attempt.past.tries_drop();
        let has_fallback = fallbacks.as_ref().is_some_and(|all| all.has_more());
        let found = find_refusal(request, prepared, reply, tries_drop, has_fallback);
        let (reply, refusal) = found.await?;
        let Some(refusal) = refusal else { break reply };
        let fallbacks = fallbacks.as_deref_mut();
        if let Some(answer) = attempt.change_request(request, prepared, refusal, reply, fallbacks) {
            break answer;
        }
    };
    let (unknown, guesses) = (&mut attempt.unknown, &mut attempt.guesses);
    let reply = unknown.choose_answer(request, prepared, guesses, reply);
    let reply = attempt.thinking.choose_answer(&attempt.past, reply);
    let (thinking, past) = (&attempt.thinking, &attempt.past);
    thinking.conclude(past, request, prepared, &reply);
    if reply.status().is_success() {
        attempt.remember_refusals(request, prepared, &reply);
        if let (Some(followed), Some(planned)) =
            (request.followed_conversation(), &prepared.planned)
        {
            request.app.last_requests.note_request(followed, planned);
        }
    }
    count_overflow(request, prepared, &reply);
    if reply.too_long {
        // There is no end of an answer, which would publish what was learnt.
        let app = &request.app;
        let within = app.config.store.save_timeout();
        app.replica_sync.publish(&app.registry, within).await;
    }
    Ok(reply)
}

/// What one attempt asks for, and what it has learnt from refusals so far.
#[derive(Default)]
struct Attempt {
    /// What the next request asks for.
    extras: Extras,
    past: PastRefusals,
    /// The refusal of the request with members that were added by the model's name.
    refused_filled: Option<ProviderReply>,
    guesses: Guesses,
    unknown: UnknownRefusal,
    thinking: ThinkingRemedy,
}

impl Attempt {
    /// Begins with all extras that the candidate is not known to refuse.
    fn begin(request: &ClientRequest, prepared: &ProviderRequest) -> Self {
        if request.continues_thread() {
            // If the provider refused an extra, the request could not be sent again without it.
            return Self::default();
        }
        let (provider, model) = (&prepared.target.provider, &prepared.target.model);
        let notes = provider.find_notes(model);
        Self {
            extras: Extras {
                usage: !notes.refuses_usage,
                markers: provider.may_add_markers(model, Instant::now()),
                drop_by: ThinkingRemedy::remembered_drop(prepared),
                thinking_off: ThinkingRemedy::remembers_thinking_off(request, prepared),
                filling: notes.answer_filling,
            },
            ..Self::default()
        }
    }

    /// Notes where thinking that does not fit begins, if the first refusal of thinking names the place.
    fn note_gap(
        &mut self,
        request: &ClientRequest,
        prepared: &ProviderRequest,
        reply: &ProviderReply,
    ) {
        if self.past.first_of_thinking().is_none() {
            let headers = reply.answer.headers();
            self.thinking.note_gap(request, prepared, headers);
        }
    }

    /// Changes the request by the first remedy that is possible, so that it is sent again. Returns the answer of the attempt if
    /// there is none.
    fn change_request(
        &mut self,
        request: &ClientRequest,
        prepared: &mut ProviderRequest,
        refusal: Refusal,
        reply: ProviderReply,
        mut fallbacks: Option<&mut Fallbacks>,
    ) -> Option<ProviderReply> {
        let format = request.parsed.format;
        if request.continues_thread() {
            return Some(answer_refusal(format, prepared, reply, &refusal));
        }
        let refusal = self.past.reinterpret(refusal);
        let facts = self.collect_facts(request, prepared, &refusal);
        let mut made = None;
        for remedy in list_remedies(&self.past, &refusal, &facts) {
            let fallbacks = fallbacks.as_deref_mut();
            if self.make_remedy(remedy, request, prepared, &refusal, fallbacks) {
                made = Some(remedy);
                break;
            }
        }
        let earlier = self
            .refused_filled
            .take_if(|_| refusal == Refusal::MembersDemanded);
        let reply = earlier.unwrap_or(reply);
        let answer = if made.is_some() {
            self.keep_reply(&refusal, reply);
            None
        } else {
            Some(answer_refusal(format, prepared, reply, &refusal))
        };
        self.past.note(refusal, made);
        answer
    }

    fn collect_facts(
        &self,
        request: &ClientRequest,
        prepared: &ProviderRequest,
        refusal: &Refusal,
    ) -> RemedyFacts {
        let planned = prepared.planned.as_deref();
        let is_of_thinking = matches!(refusal, Refusal::Thinking(_));
        let thinking = is_of_thinking.then(|| describe_thinking(request, prepared));
        RemedyFacts {
            extras: self.extras,
            has_additions: prepared.has_additions(),
            is_guarded: planned.is_some_and(PlannedRequest::is_guarded),
            names_gap: self.thinking.names_gap(),
            thinking: thinking.unwrap_or_default(),
        }
    }

    /// Changes the request. Returns whether it is sent again: not if the remedy is not possible, or only prepares the next one.
    fn make_remedy(
        &mut self,
        remedy: Remedy,
        request: &ClientRequest,
        prepared: &mut ProviderRequest,
        refusal: &Refusal,
        fallbacks: Option<&mut Fallbacks>,
    ) -> bool {
        let (extras, guesses) = (&mut self.extras, &mut self.guesses);
        match remedy {
            Remedy::LeaveUsageOut => extras.usage = false,
            Remedy::LeaveMarkersOut => extras.markers = false,
            Remedy::LeaveMembersOut => extras.filling = AnswerFilling::Nothing,
            Remedy::ReplaceSummary => prepared.change_plan(request, plan_without_block),
            Remedy::LeaveAdditionsOut => prepared.change_plan(request, plan_without_additions),
            Remedy::RestoreMembers => {
                extras.filling = AnswerFilling::All;
                return false;
            }
            Remedy::ConfirmLength => {
                self.unknown.forget();
                return false;
            }
            Remedy::RestoreTexts => {
                self.unknown.give_up(request, prepared, guesses);
                return false;
            }
            Remedy::MovePrompt => {
                return prepared.try_replan(request, plan_without_prompt_after_tool);
            }
            Remedy::LeaveRoundsOut => return prepared.try_replan(request, plan_without_rounds),
            Remedy::LeaveWindowBetaOut => {
                let first = fallbacks.as_deref().and_then(Fallbacks::first);
                return plan_without_window_beta(request, prepared, first);
            }
            Remedy::FillAnswers
            | Remedy::AskToDrop
            | Remedy::RenameDrop
            | Remedy::LeaveGapOut
            | Remedy::LeaveThinkingOut
            | Remedy::SwitchThinkingOff => {
                let thinking = &self.thinking;
                return thinking.make_remedy(remedy, request, prepared, extras, refusal);
            }
            Remedy::Refit => {
                return refit_after_overflow(request, prepared, refusal, guesses, fallbacks);
            }
            Remedy::RefitByGuess => return refit_after_guess(request, prepared, guesses),
            Remedy::FitToRequestLimit => return refit_to_request_limit(request, prepared, refusal),
            Remedy::HalveTexts => {
                let unknown = &mut self.unknown;
                return unknown.try_smaller(request, prepared, refusal, fallbacks, guesses);
            }
            Remedy::KeepFewImages | Remedy::KeepNoImages | Remedy::HalvePrompt => {
                return refit_to_size(request, prepared, refusal, remedy);
            }
        }
        true
    }

    /// Keeps an answer that the client may get after all.
    fn keep_reply(&mut self, refusal: &Refusal, reply: ProviderReply) {
        match refusal {
            // The missing member is added now. If the request is refused again, that has another reason, and the client gets
            // that refusal.
            Refusal::Thinking(ThinkingRefusal::Missing) => {}
            Refusal::Thinking(_) => self.thinking.keep_refusal(reply),
            Refusal::Filling => self.refused_filled = Some(reply),
            Refusal::Unknown { .. } => self.unknown.keep_refusal(reply),
            _ => {}
        }
    }

    /// Remembers what was refused. Only a success proves it: an error may echo the request and be about something else.
    fn remember_refusals(
        &self,
        request: &ClientRequest,
        prepared: &mut ProviderRequest,
        reply: &ProviderReply,
    ) {
        let (provider, model) = (&prepared.target.provider, &prepared.target.model);
        let past = &self.past;
        if past.has_made(Remedy::LeaveUsageOut) {
            provider.note_usage_refused(model);
        }
        // Only an answer to the same request without the markers proves that they were refused: if the request was changed in
        // another way too, that change may be why it is answered.
        let markers_refused = past.ends_with(Remedy::LeaveMarkersOut);
        if markers_refused || reply.sent.markers {
            provider.note_markers(model, !markers_refused, Instant::now());
        }
        if past.last_of_summary() == Some(SummaryRefusal::Unknown) {
            provider.change_notes(model, |it| it.refuses_summaries = true);
        }
        if past.blames_members() {
            provider.change_notes(model, |it| it.answer_filling = AnswerFilling::Nothing);
        }
        if past.blames_additions() {
            end_recovery(request, prepared);
        }
        learn_from_guesses(request, prepared, &self.guesses);
    }
}

/// Counts an overflow and its outcome. A guessed overflow does not count if the smaller request did not help.
fn count_overflow(request: &ClientRequest, prepared: &ProviderRequest, reply: &ProviderReply) {
    let planned = prepared.planned.as_ref();
    let was_refitted = planned.is_some_and(|planned| planned.refits > 0);
    let outcome = match reply.status().is_success() && was_refitted {
        true => "healed",
        false if reply.too_long => "unhealed",
        false => return,
    };
    let labels = [&*prepared.target.provider.name, outcome];
    let overflows = &request.app.metrics.overflows;
    overflows.with_label_values(&labels).inc();
}

/// Sends the request once, with those of the extras that apply to it.
async fn send_once(
    request: &ClientRequest,
    prepared: &mut ProviderRequest,
    extras: Extras,
    calls: &mut CallCount,
) -> Result<ProviderReply, SendError> {
    if let Some(planned) = &mut prepared.planned {
        planned.asked_ms = unix_ms_now();
    }
    let (body, sent) = edit_body(request, prepared, extras);
    let (trace, target) = (&request.notes.trace, &prepared.target);
    let planned = prepared.planned.as_deref();
    let betas = planned.map(|planned| planned.list_betas(&planned.plan));
    let mut betas = betas.unwrap_or_default();
    betas.extend(sent.drop_by.map(|_| Beta::Binding));
    let body = if request.continues_thread() {
        Payload::Once(body)
    } else {
        Payload::Whole(body)
    };
    let outgoing = prepared.head.to_request(target, body, &betas);
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
fn end_recovery(request: &ClientRequest, prepared: &mut ProviderRequest) {
    let (Some(session), Some(planned)) = (&request.session, &mut prepared.planned) else {
        return;
    };
    let provider = &*prepared.target.provider.name;
    tracing::warn!(
        session = %session.inherited.session, provider, model = prepared.target.model,
        "provider {provider} refuses the prompts and tools that recovery adds; recovery is off for this session"
    );
    planned.recovery.mark_refused();
}
