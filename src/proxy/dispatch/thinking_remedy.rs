//! Remedies for a refusal of thinking of earlier answers. A provider refuses thinking because something before it was
//! changed, or because its signature is not valid at this provider.
//!
//! First the same request asks the provider to drop the thinking that does not fit. This keeps all other thinking, but needs
//! a header and a member. Not every host accepts these, and hosts name the member differently: if a host refuses the name,
//! it is asked by the other name. Then a plan without any thinking is sent. Each remedy is tried once. If the refusal names
//! the first block that does not fit, thinking before that block stays. The session remembers what was accepted. The
//! provider remembers nothing, so each later request asks again to drop thinking. A plan without thinking begins a new epoch
//! in the guard's memory.
//!
//! Three refusals concern the shape of an answer:
//!
//! - An answer lacks the member that holds its reasoning: the member is added, and remembered for the model.
//! - The running turn must begin with thinking and does not: thinking is switched off until the turn ends.
//! - An item of an answer is missing (Responses): all reasoning so far is left out.
//!
//! The last two occur if the session has lost the proxy's tool rounds, or if the client changes its answers. Some clients
//! ask for the refusal of what they changed: see [`MismatchPreference::Refusal`].

use std::ops::Range;

use http::HeaderMap;

use super::{
    edit_body::{Extras, edit_body},
    judge_error::is_bad_request,
    next_step::{Remedy, ThinkingFacts},
    past_refusals::PastRefusals,
    provider_reply::ProviderReply,
    refusal::Refusal,
};
use crate::{
    config::profile::AnswerFilling,
    format::block_binding::{MismatchField, MismatchPreference},
    guard::running_turn::find_running_turn,
    provider::thinking_refusal::{ThinkingRefusal, read_stale_entry},
    proxy::{
        ClientRequest, ProviderRequest,
        plan::{find_reasoning_gap, plan_without_gap, plan_without_reasoning, target_model},
    },
    session::ReasoningMemory,
};

/// What one attempt keeps of its refusals of thinking.
#[derive(Default)]
pub(super) struct ThinkingRemedy {
    /// The answer for the client if nothing helps.
    first: Option<ProviderReply>,
    /// The places of the answers with thinking that does not fit, if the refusal named the first such block.
    gap: Option<Range<u32>>,
}

impl ThinkingRemedy {
    /// Returns the member by which the first request asks to drop thinking, if the session knows that it must.
    pub(super) fn remembered_drop(prepared: &ProviderRequest) -> Option<MismatchField> {
        let planned = prepared.planned.as_deref()?;
        planned
            .reasoning
            .drop_by
            .filter(|_| planned.is_open_to_changes())
    }

    /// Whether the first request switches thinking off, since the session knows that its running turn has lost thinking.
    pub(super) fn remembers_thinking_off(
        request: &ClientRequest,
        prepared: &ProviderRequest,
    ) -> bool {
        let planned = prepared.planned.as_deref();
        let turn = planned
            .filter(|planned| planned.is_open_to_changes())
            .and_then(|planned| planned.reasoning.turn_without_thinking);
        let conversation = request.parsed.conversation.as_deref();
        turn.is_some() && turn == conversation.map(find_running_turn)
    }

    /// Notes where the thinking that does not fit begins, if the answer names the place.
    pub(super) fn note_gap(
        &mut self,
        request: &ClientRequest,
        prepared: &ProviderRequest,
        headers: &HeaderMap,
    ) {
        let entry = read_stale_entry(headers).zip(request.followed_conversation());
        let planned = entry.zip(prepared.planned.as_deref());
        self.gap = planned.and_then(|((entry, followed), planned)| {
            let first = followed.conversation.find_entry(entry)?;
            find_reasoning_gap(followed, planned, first)
        });
    }

    /// Whether the refusal named the first block that does not fit.
    pub(super) const fn names_gap(&self) -> bool {
        self.gap.is_some()
    }

    /// Changes the request, or its extras. Returns whether the changed request may be accepted.
    pub(super) fn make_remedy(
        &self,
        remedy: Remedy,
        request: &ClientRequest,
        prepared: &mut ProviderRequest,
        extras: &mut Extras,
        refusal: &Refusal,
    ) -> bool {
        let how = match remedy {
            Remedy::FillAnswers => {
                extras.filling = AnswerFilling::All;
                // If nothing is lacking, the same request would be refused again.
                if edit_body(request, prepared, *extras).1.filling != AnswerFilling::All {
                    return false;
                }
                "with the reasoning members that its answers lack"
            }
            Remedy::AskToDrop => {
                extras.drop_by = Some(name_drop_member(refusal));
                "asking it to drop thinking that does not fit"
            }
            Remedy::RenameDrop => {
                extras.drop_by = extras.drop_by.map(MismatchField::other);
                "with the other name of the member"
            }
            Remedy::SwitchThinkingOff => {
                extras.thinking_off = true;
                "with thinking off until this turn ends"
            }
            Remedy::LeaveGapOut => {
                let Some(gap) = self.gap.clone() else {
                    return false;
                };
                extras.drop_by = None;
                prepared.change_plan(request, |followed, planned| {
                    plan_without_gap(followed, planned, gap)
                });
                "without the thinking that does not fit"
            }
            Remedy::LeaveThinkingOut => {
                extras.drop_by = None;
                prepared.change_plan(request, plan_without_reasoning);
                "without thinking of earlier answers"
            }
            _ => return false,
        };
        warn_of_refusal(request, prepared, how);
        true
    }

    /// Keeps the first refusal of thinking, which the client gets if nothing helps.
    pub(super) fn keep_refusal(&mut self, reply: ProviderReply) {
        self.first.get_or_insert(reply);
    }

    /// Chooses the answer for the client: if the changed request was refused too, the refusal of the unchanged one.
    pub(super) fn choose_answer(
        &mut self,
        past: &PastRefusals,
        reply: ProviderReply,
    ) -> ProviderReply {
        let is_refused = past.gave_up_on_thinking() || is_bad_request(reply.answer.status());
        match self.first.take() {
            Some(first) if is_refused && !reply.too_long => first,
            _ => reply,
        }
    }

    /// Counts the refusal, if there was one, and has the session remember what was accepted.
    pub(super) fn conclude(
        &self,
        past: &PastRefusals,
        request: &ClientRequest,
        prepared: &mut ProviderRequest,
        reply: &ProviderReply,
    ) {
        let (provider, model) = (&prepared.target.provider, &prepared.target.model);
        let accepted = reply.answer.status().is_success() && !past.gave_up_on_thinking();
        let refused = past.first_of_thinking();
        let left_all_out = past.has_made(Remedy::LeaveThinkingOut);
        let left_out = left_all_out || past.has_made(Remedy::LeaveGapOut);
        let result = match refused {
            _ if !accepted => "unhealed",
            _ if left_out => "left_out",
            Some(ThinkingRefusal::Missing) => "filled",
            _ if reply.sent.thinking_off => "switched_off",
            _ => "dropped",
        };
        if refused.is_some() {
            let refusals = &request.app.metrics.thinking_refusals;
            refusals.with_label_values(&[&*provider.name, result]).inc();
        }
        // Only a success proves what was refused: an error may be about something else.
        if !accepted {
            return;
        }
        if refused == Some(ThinkingRefusal::Missing) && reply.sent.filling == AnswerFilling::All {
            provider.change_notes(model, |it| it.answer_filling = AnswerFilling::All);
        }
        if past.drop_was_refused() {
            provider.change_notes(model, |it| it.refuses_to_drop_thinking = true);
        }
        let conversation = request.parsed.conversation.as_deref();
        let turn = conversation.filter(|_| reply.sent.thinking_off);
        let Some(planned) = &mut prepared.planned else {
            return;
        };
        planned.reasoning.turn_without_thinking = turn.map(find_running_turn);
        if past.has_asked_to_drop() || left_out {
            planned.reasoning = ReasoningMemory {
                is_bound: true,
                drop_by: reply.sent.drop_by,
                ..planned.reasoning
            };
            if let Some(session) = &request.session {
                let (inherited, model) = (&session.inherited, target_model(&prepared.target));
                let lessons = &request.app.reasoning;
                lessons.note_lesson(inherited.session, model, planned.reasoning);
                let gap = self.gap.clone().filter(|_| !left_all_out);
                if let Some(gap) = gap
                    && inherited.lineage.stores_state()
                {
                    lessons.note_left_out_places(inherited.session, &inherited.lineage, gap);
                }
            }
        }
    }
}

/// The member by which the provider is asked to drop thinking: the one that its refusal names, else the usual one.
fn name_drop_member(refusal: &Refusal) -> MismatchField {
    let Refusal::Thinking(ThinkingRefusal::Conversation { names }) = refusal else {
        return MismatchField::default();
    };
    names.unwrap_or_default()
}

/// Collects what the choice of a remedy needs to know of the refused request.
pub(super) fn describe_thinking(
    request: &ClientRequest,
    prepared: &ProviderRequest,
) -> ThinkingFacts {
    let followed = request.followed_conversation();
    let Some((followed, planned)) = followed.zip(prepared.planned.as_deref()) else {
        return ThinkingFacts::default();
    };
    let conversation = followed.conversation;
    let sends_rounds = || planned.collect_injections(conversation).has_rounds();
    let changes_prompt = || conversation.changes_prompt(&planned.plan.edits);
    let wish = conversation.find_mismatch_preference();
    let notes = prepared.target.provider.find_notes(&prepared.target.model);
    ThinkingFacts {
        is_open: planned.is_open_to_changes(),
        begins_turns: conversation.begins_turns_with_thinking(),
        is_sent: conversation.has_past_thinking() || sends_rounds(),
        refusal_is_wanted: wish == MismatchPreference::Refusal && !changes_prompt(),
        may_ask_to_drop: wish == MismatchPreference::Open && !notes.refuses_to_drop_thinking,
    }
}

/// `how`: how the request is sent again.
fn warn_of_refusal(request: &ClientRequest, prepared: &ProviderRequest, how: &str) {
    let session = request.session.as_ref();
    let session = session.map(|session| &session.inherited.session);
    let provider = &*prepared.target.provider.name;
    tracing::warn!(
        session = session.map(tracing::field::display),
        provider,
        model = prepared.target.model,
        "provider {provider} refused thinking of earlier answers; sending the request again, {how}"
    );
}
