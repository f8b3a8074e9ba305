//! Is this conversation valid for that profile?
//!
//! The lint looks at an outline: the messages that are kept, in order, and ours between them. It
//! shares no code with what makes the edits, so that a fault there is found here.

use std::collections::HashMap;

use super::profile::{Profile, Takes};
use crate::{
    conversation::{Author, Conversation},
    json::text,
};

/// One message of an outline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A message of the conversation, by its index.
    Theirs(usize),
    /// One of the conversation that the guard put so many calls of ours into.
    With(usize, u32),
    /// One that the guard put in.
    Ours(Author),
    /// One of the model's that the guard put in, with so many calls.
    Asks(u32),
    /// One that the guard put in, a result of one of these.
    Answers,
}

impl Item {
    /// Who says it.
    pub(super) fn role(self, conversation: &Conversation) -> Author {
        match self {
            Self::Theirs(at) | Self::With(at, _) => conversation.items[at].author,
            Self::Ours(role) => role,
            Self::Asks(_) => Author::Model,
            Self::Answers => Author::Tool,
        }
    }
}

/// The rules that can be broken, as providers word them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    /// Calls and results pair, by position.
    Pairing,
    /// No system message after the first other one.
    SystemLater,
    /// The first message after system is the user's.
    UserFirst,
    /// No two user messages in a row.
    AdjacentUsers,
    /// No two assistant messages in a row.
    AdjacentAssistants,
    /// After a tool result only the assistant speaks.
    UserAfterTool,
    /// The last message is not the assistant's.
    EndsWithAssistant,
}

/// How often each rule is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broken([u32; 7]);

impl Broken {
    fn add(&mut self, rule: Rule) {
        self.0[rule as usize] += 1;
    }

    pub const fn has(self, rule: Rule) -> bool {
        self.0[rule as usize] > 0
    }

    pub fn is_empty(self) -> bool {
        self.0.iter().all(|times| *times == 0)
    }

    /// What is broken here more often than there.
    pub fn beyond(self, other: Self) -> Self {
        let mut more = self;
        for (times, others) in more.0.iter_mut().zip(other.0) {
            *times = times.saturating_sub(others);
        }
        more
    }
}

/// The rules that an outline breaks for a profile.
pub fn broken(conversation: &Conversation, items: &[Item], profile: &Profile) -> Broken {
    let mut broken = Broken::default();
    if !pairs(conversation, items) {
        broken.add(Rule::Pairing);
    }
    let strict_turns = profile.adjacent_users == Takes::No;
    let mut last: Option<Author> = None;
    for item in items {
        let now = item.role(conversation);
        if now.instructs() {
            if last.is_some() && profile.system_later == Takes::No {
                broken.add(Rule::SystemLater);
            }
            continue;
        }
        match (last, now) {
            (None, Author::User) => {}
            (None, _) if profile.begins_with_user => broken.add(Rule::UserFirst),
            (Some(Author::User), Author::User) if strict_turns => broken.add(Rule::AdjacentUsers),
            (Some(Author::Model), Author::Model) if strict_turns => {
                broken.add(Rule::AdjacentAssistants);
            }
            (Some(Author::Tool), Author::User) if profile.user_after_tool == Takes::No => {
                broken.add(Rule::UserAfterTool);
            }
            _ => {}
        }
        last = Some(now);
    }
    if last == Some(Author::Model) && !profile.may_end_with_assistant {
        broken.add(Rule::EndsWithAssistant);
    }
    broken
}

/// Whether every result directly answers a call, and every call is answered.
fn pairs(conversation: &Conversation, items: &[Item]) -> bool {
    // Calls of the last assistant message by id, and how many of each are still open.
    let mut asked: HashMap<Option<u128>, usize> = HashMap::new();
    let mut open = 0;
    // Calls of ours among them.
    let mut own = 0;
    for item in items {
        let (message, calls) = match *item {
            Item::Ours(_) => (None, 0),
            Item::Asks(calls) => (None, calls),
            Item::Theirs(at) => (Some(&conversation.items[at]), 0),
            Item::With(at, calls) => (Some(&conversation.items[at]), calls),
            Item::Answers if own > 0 => {
                own -= 1;
                continue;
            }
            Item::Answers => return false,
        };
        let role = item.role(conversation);
        if role.answers() {
            let id = message
                .and_then(|message| message.call_id)
                .map(|id| text::digest(conversation.raw(id)));
            match asked.get_mut(&id) {
                None => return false,
                Some(0) => {}
                Some(calls) => {
                    *calls -= 1;
                    open -= 1;
                }
            }
            continue;
        }
        if open > 0 || own > 0 {
            return false;
        }
        own = calls;
        asked.clear();
        for call in message.map_or(&[][..], |message| conversation.calls(message)) {
            let id = call.id.map(|id| text::digest(conversation.raw(id)));
            *asked.entry(id).or_default() += 1;
            open += 1;
        }
    }
    open == 0 && own == 0
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{format::chat::index, guard::profile::named};

    fn check(roles: &str, profile: &str) -> Broken {
        let messages: Vec<_> = roles
            .chars()
            .map(|role| match role {
                's' => r#"{"role":"system","content":"s"}"#,
                'u' => r#"{"role":"user","content":"u"}"#,
                'a' => r#"{"role":"assistant","content":"a"}"#,
                'c' => r#"{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":""}}]}"#,
                _ => r#"{"role":"tool","tool_call_id":"x","content":"t"}"#,
            })
            .collect();
        let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
        let conversation = index(Bytes::from(body)).unwrap();
        let items: Vec<_> = (0..conversation.items.len()).map(Item::Theirs).collect();
        broken(&conversation, &items, named(profile).unwrap())
    }

    #[test]
    fn calls_of_ours_are_answered_like_any_other() {
        let body = r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":""}}]},{"role":"tool","tool_call_id":"x","content":"t"}]}"#;
        let conversation = index(Bytes::from_static(body.as_bytes())).unwrap();
        let (user, result) = (Item::Theirs(0), Item::Theirs(2));
        let whole = |items: &[Item]| {
            !broken(&conversation, items, named("openai").unwrap()).has(Rule::Pairing)
        };
        let with = |calls| Item::With(1, calls);
        assert!(whole(&[user, with(1), Item::Answers, result]));
        assert!(whole(&[user, with(1), result, Item::Answers]));
        assert!(whole(&[user, Item::Asks(2), Item::Answers, Item::Answers]));
        assert!(!whole(&[user, with(1), result]));
        assert!(!whole(&[user, with(0), Item::Answers, result]));
        assert!(!whole(&[user, Item::Asks(1), user, Item::Answers]));
        assert!(!whole(&[user, Item::Asks(1)]));
        let ends = [user, Item::Asks(1), Item::Answers, Item::Asks(0)];
        let strict = broken(&conversation, &ends, named("template").unwrap());
        assert!(strict.has(Rule::EndsWithAssistant) && !strict.has(Rule::Pairing));
    }

    #[test]
    fn each_rule_is_found_where_the_profile_has_it() {
        for (roles, rule, breaks) in [
            ("ut", Rule::Pairing, "openai mistral gemini"),
            ("uc", Rule::Pairing, "openai template"),
            ("ucu", Rule::Pairing, "openai"),
            ("uctut", Rule::Pairing, "openai"),
            ("usu", Rule::SystemLater, "mistral template"),
            ("sau", Rule::UserFirst, "mistral gemini anthropic template"),
            ("ctu", Rule::UserFirst, "gemini"),
            ("uu", Rule::AdjacentUsers, "mistral template"),
            ("uaau", Rule::AdjacentAssistants, "template"),
            ("uctu", Rule::UserAfterTool, "mistral template"),
            (
                "ua",
                Rule::EndsWithAssistant,
                "mistral gemini anthropic template deepseek kimi",
            ),
        ] {
            for profile in breaks.split(' ') {
                assert!(
                    check(roles, profile).has(rule),
                    "{roles} {rule:?} {profile}"
                );
            }
        }
        for (roles, fits) in [
            (
                "suctau",
                "openai mistral gemini anthropic template ollama deepseek",
            ),
            (
                "suctctct",
                "openai mistral gemini anthropic template ollama",
            ),
            ("suuctusua", "openai azure ollama"),
            ("uctuu", "gemini anthropic"),
        ] {
            for profile in fits.split(' ') {
                assert_eq!(
                    check(roles, profile),
                    Broken::default(),
                    "{roles} {profile}"
                );
            }
        }
    }
}
