//! Decides by the profile where a prompt may be injected, and which message may follow which.
//!
//! A prompt is never put into a system message of the client or into an answer. It is added to a client's message only if
//! the message's own text stays untouched.

use std::collections::HashSet;

use crate::{
    config::profile::{Acceptance, Profile},
    conversation::{
        Author, Content, Conversation, ItemPlace, LinkKind,
        units::{self, UnitKind},
    },
    guard::grammar::role_alternation::resolve_profile_at_end,
    json::text::is_decodable,
};

/// Precedes a prompt at the end of a tool result, and separates it from the tool's output.
pub(in crate::guard) const LABEL: &str =
    "[From here on by the context guard between client and model, not output of the tool]";

/// How a prompt is put after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) enum PromptPlacement {
    /// As a separate user message.
    Message,
    /// As a paragraph, or a part, at the end of the user message.
    Paragraph,
    /// As a labelled block at the end of the tool result.
    Block,
    /// As a separate system message.
    System,
}

/// Whether a prompt can be added at the end of a conversation. It cannot follow a prefilled answer, nor a step with a
/// missing result or with a call that the server still runs.
///
/// If the profile allows no user message after a tool result, a prompt waits for the next user message unless it is
/// `urgent`. `alternates` is [`crate::guard::GuardMemory::alternates`].
pub fn may_prompt(
    conversation: &Conversation,
    profile: &Profile,
    alternates: Option<bool>,
    urgent: bool,
) -> bool {
    let profile = resolve_profile_at_end(conversation, profile, alternates);
    let mut messages = conversation.items.iter();
    let last = messages.rposition(|message| !message.author.is_system());
    let place = last.and_then(|last| find_prompt_placement(conversation, last, &profile));
    let units = units::split_units(conversation);
    let mut units = units.iter().rev();
    let step = units.find(|unit| unit.kind != UnitKind::System);
    place.is_some_and(|place| urgent || place != PromptPlacement::Block)
        && step.is_some_and(|step| step.kind != UnitKind::Other && !step.is_needed)
}

/// How a prompt is put after message `at`; `None` where it cannot be put there.
pub(in crate::guard) fn find_prompt_placement(
    conversation: &Conversation,
    at: usize,
    profile: &Profile,
) -> Option<PromptPlacement> {
    if is_server_at_work(conversation, at) {
        return None;
    }
    let place = match conversation.items[at].author {
        Author::User | Author::Tool
            if profile.system_prompts && accepts_system(conversation, at) =>
        {
            PromptPlacement::System
        }
        Author::User
            if profile.adjacent_users == Acceptance::No
                || conversation.items[at].place == ItemPlace::Outside =>
        {
            PromptPlacement::Paragraph
        }
        Author::Tool if profile.user_after_tool == Acceptance::No => PromptPlacement::Block,
        Author::User | Author::Tool => PromptPlacement::Message,
        Author::Model | Author::System | Author::Unknown => return None,
    };
    let is_separate = matches!(place, PromptPlacement::Message | PromptPlacement::System);
    (is_separate || accepts_text(conversation, at)).then_some(place)
}

/// Whether the server still runs something in the turn of message `at`: it then accepts nothing but results.
pub(in crate::guard) fn is_server_at_work(conversation: &Conversation, at: usize) -> bool {
    let turn = conversation.items[..=at].iter().rev();
    let turn = turn.take_while(|item| item.author != Author::User);
    let links = turn.flat_map(|item| conversation.links_of(item));
    let ids = |kind| {
        let links = links.clone().filter(move |link| link.kind == kind);
        links.map(|link| conversation.digest_text(link.id))
    };
    let done: HashSet<u128> = ids(LinkKind::Result).collect();
    ids(LinkKind::Use).any(|id| !done.contains(&id))
}

/// Whether a system message may follow message `at`, the user's or a result: as the last message, or before an answer.
fn accepts_system(conversation: &Conversation, at: usize) -> bool {
    let next = conversation.items.get(conversation.find_last_bound(at) + 1);
    next.is_none_or(|next| next.author == Author::Model)
}

/// Whether a message by `now` may directly follow one by `before`.
pub(crate) fn can_follow(before: Author, now: Author, profile: &Profile) -> bool {
    let accepts = match (before, now) {
        (Author::User, Author::User) | (Author::Model, Author::Model) => profile.adjacent_users,
        (Author::Tool, Author::User) => profile.user_after_tool,
        _ => Acceptance::Yes,
    };
    accepts != Acceptance::No
}

/// Whether text can be added at the end of a message.
fn accepts_text(conversation: &Conversation, at: usize) -> bool {
    match &conversation.items[at].content {
        Content::Text(text) => is_decodable(conversation.raw_bytes(*text)),
        Content::Blocks(..) => true,
        Content::Absent | Content::Null(_) | Content::FixedBlocks(..) | Content::Other(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{format::chat::index_body, guard::profile::find_profile};

    const STEP: &str =
        r#"{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":""}}]}"#;

    fn may(last: &str, profile: &str, urgent: bool) -> bool {
        may_where(last, profile, Some(false), urgent)
    }

    fn may_where(last: &str, profile: &str, alternates: Option<bool>, urgent: bool) -> bool {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"u"}},{last}]}}"#);
        let conversation = index_body(Bytes::from(body)).unwrap();
        let profile = find_profile(profile).unwrap();
        may_prompt(&conversation, profile, alternates, urgent)
    }

    #[test]
    fn a_prompt_goes_where_the_profile_accepts_it() {
        let result = |content: &str| {
            format!(r#"{STEP},{{"role":"tool","tool_call_id":"x","content":{content}}}"#)
        };
        let user = |content: &str| {
            let answer = r#"{"role":"assistant","content":"a"}"#;
            format!(r#"{answer},{{"role":"user","content":{content}}}"#)
        };
        for (last, calm, urgent) in [
            (
                user("\"q\""),
                "openai mistral template gemini",
                "openai mistral",
            ),
            (user("[]"), "openai mistral", "mistral"),
            (user("null"), "openai anthropic", "openai"),
            (user(r#""\ud800""#), "openai", "openai"),
            (
                result("\"r\""),
                "openai anthropic gemini ollama",
                "openai mistral template",
            ),
            (result("null"), "openai", "openai"),
        ] {
            for profile in [
                "openai",
                "anthropic",
                "gemini",
                "ollama",
                "mistral",
                "template",
            ] {
                let named = |list: &str| list.split(' ').any(|it| it == profile);
                let (is_calm, is_urgent) = (may(&last, profile, false), may(&last, profile, true));
                assert!(is_calm || !named(calm), "{last} {profile}");
                assert!(is_urgent || !named(urgent), "{last} {profile}, urgent");
                assert!(is_urgent || !is_calm);
            }
        }
        assert!(!may(&result("\"r\""), "template", false));
        assert!(!may(&result("null"), "mistral", true));
        assert!(!may(&user("null"), "mistral", true));
        assert!(!may(&user(r#""\ud800""#), "template", true));
    }

    #[test]
    fn a_prompt_joins_the_user_message_where_roles_alternate() {
        let user = |content: &str| {
            let answer = r#"{"role":"assistant","content":"a"}"#;
            format!(r#"{answer},{{"role":"user","content":{content}}}"#)
        };
        for alternates in [None, Some(true)] {
            assert!(may_where(&user("\"q\""), "openai", alternates, false));
            // No text can be added to this message, and no user message may follow it.
            assert!(!may_where(&user("null"), "openai", alternates, true));
            let result = format!(r#"{STEP},{{"role":"tool","tool_call_id":"x","content":null}}"#);
            assert!(may_where(&result, "openai", alternates, false));
        }
        let twice = format!(r#"{{"role":"user","content":"u"}},{}"#, user("null"));
        assert!(may_where(&twice, "openai", None, false));
    }

    #[test]
    fn no_prompt_follows_an_answer_or_goes_into_an_invalid_conversation() {
        for last in [r#"{"role":"assistant","content":"Well,"}"#, STEP] {
            for profile in ["openai", "template"] {
                assert!(!may(last, profile, true));
            }
        }
        let system = r#"{"role":"system","content":"s"}"#;
        assert!(may(system, "openai", false));
        let orphan = r#"{"role":"tool","tool_call_id":"x","content":"r"}"#;
        assert!(!may(orphan, "openai", true));
    }
}
