//! Whether user and assistant alternate in a conversation, and the profile that follows from it.
//!
//! The chat templates of many open models refuse two user or two assistant messages in a row, and a server with such a
//! template is often configured with a profile that accepts both. If the conversation that came in alternates, the request
//! that is sent therefore alternates too, whatever the profile says.
//!
//! This is judged once, by the messages before the first cut or injection, and remembered. A later double message therefore
//! changes no prefix. In a conversation that alternates, a prompt joins the user message before it, and a preface joins the
//! first user message.
//!
//! Some templates ignore steps of tool calls, and so accept no prompt after a result. Most agents' conversations fit
//! such a template, so the proxy assumes one only after a refusal, for the session.

use crate::{
    config::profile::{Acceptance, Profile},
    conversation::{Author, Conversation, Format},
};

/// Whether the first `count` messages, without system messages, begin with the user and alternate. Results belong to
/// the assistant, so a user message may follow them. A single user message alternates: nothing has shown yet that the
/// provider accepts anything else.
///
/// It is false in a format whose entries need not alternate, and if an answer has entries that no such template knows:
/// nothing follows for the provider there.
pub(in crate::guard) fn has_alternating_roles(conversation: &Conversation, count: usize) -> bool {
    if !conversation.format.rules().may_alternate {
        return false;
    }
    let messages = conversation.items.iter();
    let messages = messages.filter(|message| !message.author.is_system());
    let messages = messages.take(count);
    if messages.clone().any(|message| message.is_pinned) {
        return false;
    }
    let mut roles = messages.map(|message| message.author);
    let Some(mut last) = roles.next() else {
        return false;
    };
    last == Author::User
        && roles.all(|role| match (std::mem::replace(&mut last, role), role) {
            (before, Author::User | Author::Model) => before != role,
            (_, role) => role.is_tool(),
        })
}

/// Whether a conversation alternates and no user message in it follows a tool result. A template that ignores steps of
/// tool calls accepts it, and would refuse a prompt after a result as a second user message.
pub(crate) fn alternates_without_steps(conversation: &Conversation) -> bool {
    let roles = conversation.items.iter().map(|message| message.author);
    let roles: Vec<Author> = roles.filter(|role| !role.is_system()).collect();
    let mut pairs = roles.windows(2);
    has_alternating_roles(conversation, usize::MAX)
        && pairs.all(|pair| !(pair[0].is_tool() && pair[1] == Author::User))
}

/// The profile by the rules of the format, and with the rule that roles alternate if the conversation `alternates`.
pub(in crate::guard) fn resolve_profile(
    format: Format,
    profile: &Profile,
    alternates: Option<bool>,
) -> Profile {
    let adjacent_users = match alternates {
        Some(true) => Acceptance::No,
        _ => profile.adjacent_users,
    };
    format.refine_profile(Profile {
        adjacent_users,
        ..*profile
    })
}

/// The profile for a message after the whole conversation. Where it is not `known` whether the conversation
/// alternates, all its messages decide.
pub(crate) fn resolve_profile_at_end(
    conversation: &Conversation,
    profile: &Profile,
    known: Option<bool>,
) -> Profile {
    let known = known.unwrap_or_else(|| has_alternating_roles(conversation, usize::MAX));
    resolve_profile(conversation.format, profile, Some(known))
}

/// The profile for a summary request, which ends with a user message after the conversation. If the conversation alternates
/// and has no user message directly after a tool result, the profile allows none there.
pub(crate) fn resolve_profile_for_request(
    conversation: &Conversation,
    profile: &Profile,
) -> Profile {
    let mut resolved = resolve_profile_at_end(conversation, profile, None);
    if alternates_without_steps(conversation) {
        resolved.user_after_tool = Acceptance::No;
    }
    resolved
}
