//! The body for a provider: the client's body with the plan's edits, and with what the proxy adds in addition to a plan.

use serde_json::Value;

use crate::{
    config::profile::AnswerFilling,
    conversation::edit::{Edits, Rope},
    format::block_binding::MismatchField,
    proxy::{ClientRequest, PlannedRequest, ProviderRequest},
};

/// What the proxy adds to a request for a provider, whatever the plan is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// The request asks for the usage of a stream, although the client does not.
    pub usage: bool,
    /// The request has cache markers, if the client sets none.
    pub markers: bool,
    /// The member by which the request asks for thinking to be dropped that does not fit what is before it.
    pub drop_by: Option<MismatchField>,
    /// The request switches thinking off, although the client asks for it.
    pub thinking_off: bool,
    /// The answers that get members which they lack. In the extras of a sent request: [`AnswerFilling::Nothing`] if no
    /// answer got any.
    pub filling: AnswerFilling,
}

/// Makes the body for the provider. Returns the body and those of the `extras` that it has: not every request can have all.
pub(super) fn edit_body(
    request: &ClientRequest,
    prepared: &ProviderRequest,
    extras: Extras,
) -> (Rope, Extras) {
    let planned = prepared.planned.as_deref();
    let mut edits = planned.map_or_else(Edits::default, PlannedRequest::request_edits);
    let (parsed, profile) = (&request.parsed, prepared.target.profile());
    let mut sent = Extras {
        filling: AnswerFilling::Nothing,
        ..Extras::default()
    };
    if let Some(named) = parsed.find_renamed_model(&prepared.target.model) {
        let model = Value::from(prepared.target.model.as_str()).to_string();
        edits.replace(named, model);
    }
    let Some(conversation) = &parsed.conversation else {
        return (edits.apply(&parsed.bytes), sent);
    };
    if prepared.is_substitute {
        conversation.keep_one_answer_cap(profile, &mut edits);
    }
    conversation.take_out_annotations(&mut edits);
    sent.usage = extras.usage && conversation.ask_usage(&mut edits);
    sent.thinking_off = extras.thinking_off && conversation.switch_thinking_off(&mut edits);
    let mut asks_to_drop = |by: &_| conversation.ask_to_drop_thinking(*by, &mut edits);
    let drop_by = extras.drop_by.filter(|_| !sent.thinking_off);
    sent.drop_by = drop_by.filter(&mut asks_to_drop);
    let mut body = edits.apply(&parsed.bytes);
    if !planned.is_some_and(PlannedRequest::is_guarded) {
        return (body, sent);
    }
    if let Some(filled) = conversation.add_required_members(&body, profile, extras.filling) {
        (body, sent.filling) = (filled, extras.filling);
    }
    let session = request.session.as_ref();
    let repeated = session.and_then(|session| session.repeated.as_ref());
    let is_repeat = repeated.is_some_and(|last| last.is_guarded());
    if extras.markers
        && let Some(marked) = conversation.add_cache_markers(&body, is_repeat)
    {
        (body, sent.markers) = (marked, true);
    }
    (body, sent)
}
