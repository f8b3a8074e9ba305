//! Whether user and assistant take turns in a conversation, and the profile that follows from it.
//!
//! The chat templates of many open models refuse two user or two assistant messages in a row, and a
//! server with such a template is often configured with a profile that takes both. So where the
//! conversation that came in alternates, what goes out alternates too, whatever the profile says.
//!
//! It is judged once, by the messages before the first cut or the first thing that is put in, and remembered, so
//! that a later double message moves no prefix. Where it alternates, a prompt joins the user message that it
//! follows, and a preface joins the first user message or is the assistant's.
//!
//! A template that leaves out steps of tool calls takes no prompt after a result either. Most agents' conversations
//! look as if they had such a template, so it is believed only after a refusal, for the session.

use super::{
    Recall,
    injections::Injections,
    profile::{Acceptance, Profile},
};
use crate::conversation::{Author, Conversation};

/// Whether the first `said` messages, system messages apart, begin with the user and alternate.
/// Results belong to the assistant that made the calls, so a user may speak after them. One message
/// of the user alternates: nothing has shown yet that the provider takes anything else.
pub(super) fn has_alternating_roles(conversation: &Conversation, said: usize) -> bool {
    let roles = conversation.items.iter().map(|message| message.author);
    let mut roles = roles.filter(|role| !role.is_system()).take(said);
    let Some(mut last) = roles.next() else {
        return false;
    };
    last == Author::User
        && roles.all(|role| match (std::mem::replace(&mut last, role), role) {
            (before, Author::User | Author::Model) => before != role,
            (_, role) => role.is_tool(),
        })
}

/// Whether a conversation alternates and no user message in it follows a tool result: a template that leaves
/// out steps of tool calls takes it, and would refuse a prompt after a result as a second user message.
pub(crate) fn alternates_without_steps(conversation: &Conversation) -> bool {
    let roles = conversation.items.iter().map(|message| message.author);
    let roles: Vec<Author> = roles.filter(|role| !role.is_system()).collect();
    let mut pairs = roles.windows(2);
    has_alternating_roles(conversation, usize::MAX)
        && pairs.all(|pair| !(pair[0].is_tool() && pair[1] == Author::User))
}

/// The profile, with the rule of alternation where the conversation keeps that.
pub(super) fn resolve_profile(profile: &Profile, alternates: Option<bool>) -> Profile {
    let adjacent_users = match alternates {
        Some(true) => Acceptance::No,
        _ => profile.adjacent_users,
    };
    Profile {
        adjacent_users,
        ..*profile
    }
}

/// The profile that holds for a message after the whole conversation, which is judged by itself
/// where nothing is `known` of its beginning.
pub(crate) fn resolve_profile_at_end(
    conversation: &Conversation,
    profile: &Profile,
    known: Option<bool>,
) -> Profile {
    let known = known.unwrap_or_else(|| has_alternating_roles(conversation, usize::MAX));
    resolve_profile(profile, Some(known))
}

/// The profile that holds for a request of the proxy's own, which ends with a user message after the
/// conversation: none directly after a tool result, where the conversation has none.
pub(crate) fn resolve_profile_for_request(
    conversation: &Conversation,
    profile: &Profile,
) -> Profile {
    let mut held = resolve_profile_at_end(conversation, profile, None);
    if alternates_without_steps(conversation) {
        held.user_after_tool = Acceptance::No;
    }
    held
}

/// Whether the conversation alternates, as far as that is settled before it is cut: remembered, or
/// judged by what comes before the first place of what is ours. `None` where there is neither.
pub(super) fn find_settled_alternation(
    conversation: &Conversation,
    recall: &Recall,
) -> Option<bool> {
    recall.memory.alternates.or_else(|| {
        let first = first_injection_place(&recall.injections)?;
        Some(has_alternating_roles(conversation, first))
    })
}

/// The messages before the first place of what is ours, system messages apart; `None` where nothing
/// is ours.
fn first_injection_place(ours: &Injections) -> Option<usize> {
    let course = ours.course.iter().map(|course| course.boundary);
    let summary = ours.summary.iter().map(|summary| summary.boundary);
    let records = ours.records.iter().map(|record| record.place);
    // Nothing stands before the first message.
    let places = course.chain(summary).chain(records);
    let first = places.filter(|&place| place > 0).min()?;
    Some(first as usize)
}
