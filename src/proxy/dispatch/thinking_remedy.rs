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
    provider_reply::ProviderReply,
    refusal::is_bad_request,
};
use crate::{
    config::profile::AnswerFilling,
    format::block_binding::{MismatchField, MismatchPreference},
    guard::running_turn::find_running_turn,
    provider::thinking_refusal::{ThinkingRefusal, read_stale_entry},
    proxy::{
        ClientRequest, PlacedRequest, PlannedRequest,
        plan::{find_stale_places, plan_without_reasoning, plan_without_stale, target_model},
    },
    session::ReasoningMemory,
};

/// What was tried in one attempt.
#[derive(Default)]
pub(super) struct ThinkingRemedy {
    refused: Option<ThinkingRefusal>,
    /// The answer for the client if nothing helps.
    first: Option<ProviderReply>,
    asked_to_drop: bool,
    /// The member that asks for it was sent under its other name.
    renamed: bool,
    /// The provider refused to drop thinking, and named the member that it does not take.
    drop_refused: bool,
    left_out: bool,
    /// The places of the answers with thinking that does not fit, if the refusal named the first such block.
    stale: Option<Range<u32>>,
    /// Their thinking is left out.
    left_stale_out: bool,
    /// No remedy is left after a refusal of thinking. The refusal may be in an answer whose status is a success.
    gave_up: bool,
}

impl ThinkingRemedy {
    /// Returns the member by which the first request asks to drop thinking, if the session knows that it must.
    pub(super) fn remembered_drop(placed: &PlacedRequest) -> Option<MismatchField> {
        let planned = placed.planned.as_deref()?;
        planned
            .reasoning
            .drop_by
            .filter(|_| planned.is_open_to_changes())
    }

    /// Whether the first request switches thinking off, since the session knows that its running turn has lost thinking.
    pub(super) fn remembers_thinking_off(request: &ClientRequest, placed: &PlacedRequest) -> bool {
        let planned = placed.planned.as_deref();
        let turn = planned
            .filter(|planned| planned.is_open_to_changes())
            .and_then(|planned| planned.reasoning.turn_without_thinking);
        let conversation = request.parsed.conversation.as_deref();
        turn.is_some() && turn == conversation.map(find_running_turn)
    }

    /// Notes where the thinking that does not fit begins, if the refusal of the first request names the place.
    pub(super) fn note_refusal(
        &mut self,
        request: &ClientRequest,
        placed: &PlacedRequest,
        headers: &HeaderMap,
    ) {
        if self.refused.is_some() {
            return;
        }
        let entry = read_stale_entry(headers).zip(request.followed_conversation());
        let planned = entry.zip(placed.planned.as_deref());
        self.stale = planned.and_then(|((entry, followed), planned)| {
            let first = followed.conversation.find_entry(entry)?;
            find_stale_places(followed, planned, first)
        });
    }

    /// Changes the request after a refusal of thinking. Returns whether the changed request may be accepted.
    pub(super) fn prepare(
        &mut self,
        request: &ClientRequest,
        placed: &mut PlacedRequest,
        extras: &mut Extras,
        refused: ThinkingRefusal,
    ) -> bool {
        self.refused.get_or_insert(refused);
        self.gave_up = !self.find_next(request, placed, extras, refused);
        !self.gave_up
    }

    fn find_next(
        &mut self,
        request: &ClientRequest,
        placed: &mut PlacedRequest,
        extras: &mut Extras,
        refused: ThinkingRefusal,
    ) -> bool {
        let followed = request.followed_conversation();
        let Some((followed, planned)) = followed.zip(placed.planned.as_deref()) else {
            return false;
        };
        let conversation = followed.conversation;
        if !planned.is_open_to_changes() {
            return false;
        }
        let names = match refused {
            ThinkingRefusal::Missing => return Self::fill_answers(request, placed, extras),
            ThinkingRefusal::Unpaired => return self.leave_out(request, placed, extras),
            ThinkingRefusal::Turn if conversation.begins_turns_with_thinking() => {
                return Self::switch_thinking_off(request, placed, extras);
            }
            ThinkingRefusal::Turn | ThinkingRefusal::Signature => None,
            ThinkingRefusal::Conversation { names } => Some(names.unwrap_or_default()),
        };
        let sends_rounds = || planned.collect_injections(conversation).has_rounds();
        if !conversation.has_past_thinking() && !sends_rounds() {
            return false;
        }
        let wish = conversation.find_mismatch_preference();
        if wish == MismatchPreference::Refusal && !conversation.changes_prompt(&planned.plan.edits)
        {
            return false;
        }
        let (provider, model) = (&placed.target.provider, &*placed.target.model);
        let names = names.filter(|_| wish == MismatchPreference::Open);
        let may_ask = names.is_some()
            && extras.drop_by.is_none()
            && !self.asked_to_drop
            && !self.left_out
            && !provider.find_notes(model).refuses_to_drop_thinking;
        if !may_ask {
            return self.leave_out(request, placed, extras);
        }
        self.asked_to_drop = true;
        extras.drop_by = names;
        warn_of_refusal(
            request,
            placed,
            "asking it to drop thinking that does not fit",
        );
        true
    }

    /// Leaves thinking out, after a request that asked to drop it was refused, perhaps for asking. `named`: the error says
    /// so. Returns whether the changed request may be accepted.
    pub(super) fn prepare_without_drop(
        &mut self,
        request: &ClientRequest,
        placed: &mut PlacedRequest,
        extras: &mut Extras,
        named: bool,
    ) -> bool {
        self.drop_refused |= named;
        self.leave_out(request, placed, extras)
    }

    /// Asks by the other name of the member, once, after a host refused the first name. Returns whether the name was
    /// changed.
    pub(super) fn rename_drop(
        &mut self,
        request: &ClientRequest,
        placed: &PlacedRequest,
        extras: &mut Extras,
    ) -> bool {
        let is_first = !std::mem::replace(&mut self.renamed, true);
        if is_first {
            self.asked_to_drop = true;
            extras.drop_by = extras.drop_by.map(MismatchField::other);
            warn_of_refusal(request, placed, "with the other name of the member");
        }
        is_first
    }

    /// Keeps the first refusal of thinking, which the client gets if nothing helps.
    pub(super) fn keep_refusal(&mut self, reply: ProviderReply) {
        self.first.get_or_insert(reply);
    }

    /// Whether the request that was just refused is the first that asked to drop thinking.
    pub(super) fn tries_drop(&self) -> bool {
        self.asked_to_drop && !self.left_out
    }

    /// Chooses the answer for the client: if the changed request was refused too, the refusal of the unchanged one.
    pub(super) fn choose_answer(&mut self, reply: ProviderReply) -> ProviderReply {
        let is_refused = self.gave_up || is_bad_request(reply.answer.status());
        match self.first.take() {
            Some(first) if is_refused && !reply.too_long => first,
            _ => reply,
        }
    }

    /// Counts the refusal, if there was one, and has the session remember what was accepted.
    pub(super) fn conclude(
        &self,
        request: &ClientRequest,
        placed: &mut PlacedRequest,
        reply: &ProviderReply,
    ) {
        let (provider, model) = (&placed.target.provider, &placed.target.model);
        let accepted = reply.answer.status().is_success() && !self.gave_up;
        let result = match self.refused {
            _ if !accepted => "unhealed",
            _ if self.left_out || self.left_stale_out => "left_out",
            Some(ThinkingRefusal::Missing) => "filled",
            _ if reply.sent.thinking_off => "switched_off",
            _ => "dropped",
        };
        if self.refused.is_some() {
            let refusals = &request.app.metrics.thinking_refusals;
            refusals.with_label_values(&[&*provider.name, result]).inc();
        }
        // Only a success proves what was refused: an error may be about something else.
        if !accepted {
            return;
        }
        if self.refused == Some(ThinkingRefusal::Missing)
            && reply.sent.filling == AnswerFilling::All
        {
            provider.change_notes(model, |it| it.answer_filling = AnswerFilling::All);
        }
        if self.drop_refused {
            provider.change_notes(model, |it| it.refuses_to_drop_thinking = true);
        }
        let conversation = request.parsed.conversation.as_deref();
        let turn = conversation.filter(|_| reply.sent.thinking_off);
        let Some(planned) = &mut placed.planned else {
            return;
        };
        planned.reasoning.turn_without_thinking = turn.map(find_running_turn);
        if self.asked_to_drop || self.left_out || self.left_stale_out {
            planned.reasoning = ReasoningMemory {
                is_bound: true,
                drop_by: reply.sent.drop_by,
                ..planned.reasoning
            };
            if let Some(session) = &request.session {
                let (inherited, model) = (&session.inherited, target_model(&placed.target));
                let lessons = &request.app.reasoning;
                lessons.note_lesson(inherited.session, model, planned.reasoning);
                let stale = self.stale.clone().filter(|_| !self.left_out);
                if let Some(stale) = stale
                    && inherited.lineage.stores_state()
                {
                    lessons.note_left_out_places(inherited.session, &inherited.lineage, stale);
                }
            }
        }
    }

    fn switch_thinking_off(
        request: &ClientRequest,
        placed: &PlacedRequest,
        extras: &mut Extras,
    ) -> bool {
        if extras.thinking_off {
            return false;
        }
        extras.thinking_off = true;
        warn_of_refusal(request, placed, "with thinking off until this turn ends");
        true
    }

    fn fill_answers(request: &ClientRequest, placed: &PlacedRequest, extras: &mut Extras) -> bool {
        let is_new = extras.filling != AnswerFilling::All;
        extras.filling = AnswerFilling::All;
        // If nothing is lacking, the same request would be refused again.
        if !is_new || edit_body(request, placed, *extras).1.filling != AnswerFilling::All {
            return false;
        }
        warn_of_refusal(
            request,
            placed,
            "with the reasoning members that its answers lack",
        );
        true
    }

    fn leave_out(
        &mut self,
        request: &ClientRequest,
        placed: &mut PlacedRequest,
        extras: &mut Extras,
    ) -> bool {
        let planned = placed.planned.as_deref();
        let is_guarded = planned.is_some_and(PlannedRequest::is_guarded);
        if self.left_out || !is_guarded {
            return false;
        }
        extras.drop_by = None;
        if let Some(stale) = self.stale.clone().filter(|_| !self.left_stale_out) {
            self.left_stale_out = true;
            placed.change_plan(request, |followed, planned| {
                plan_without_stale(followed, planned, stale)
            });
            warn_of_refusal(request, placed, "without the thinking that does not fit");
            return true;
        }
        self.left_out = true;
        warn_of_refusal(request, placed, "without thinking of earlier answers");
        placed.change_plan(request, plan_without_reasoning);
        true
    }
}

/// `how`: how the request is sent again.
fn warn_of_refusal(request: &ClientRequest, placed: &PlacedRequest, how: &str) {
    let session = request.session.as_ref();
    let session = session.map(|session| &session.inherited.session);
    let provider = &*placed.target.provider.name;
    tracing::warn!(
        session = session.map(tracing::field::display),
        provider,
        model = placed.target.model,
        "provider {provider} refused thinking of earlier answers; sending the request again, {how}"
    );
}
