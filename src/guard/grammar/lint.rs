//! Checks an edited conversation against the rules of a profile.
//!
//! The lint reads an outline: the kept messages in order, with the injected ones between them. It shares no code with
//! the edits, so that it finds their faults.
//!
//! What the conversation broke when it came in does not count. A profile is a guess about a provider: the provider
//! accepts that conversation all the same, or refuses it with and without the proxy.

mod pairing;

use self::pairing::Pairing;
pub(in crate::guard) use self::pairing::has_paired_calls;
pub use self::pairing::is_fully_paired;
use crate::{
    config::profile::{Acceptance, Profile},
    conversation::{Author, Conversation},
    guard::grammar::{
        outline::{OutlineItem, list_client_items},
        running_turn,
    },
};

/// The rules of conversations, as providers word them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConversationRule {
    /// Each call has its results, each result its call, and what an answer refers to is there.
    Pairing,
    /// System messages precede all other messages.
    SystemLater,
    /// The first message after the system messages is the user's.
    UserFirst,
    /// No two user messages in a row.
    AdjacentUsers,
    /// No two assistant messages in a row, except in a format that takes them for one answer.
    AdjacentAssistants,
    /// No user message follows a tool result.
    UserAfterTool,
    /// The last message is not the assistant's.
    EndsWithAssistant,
    /// A bound system message follows a user message or a tool result, and is the last or before an assistant message.
    BoundSystem,
    /// The running turn begins with thinking: `guard::running_turn`.
    TurnThinking,
}

/// How often each rule is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokenRules([u32; 9]);

impl BrokenRules {
    fn count_violation(&mut self, rule: ConversationRule) {
        self.0[rule as usize] += 1;
    }

    pub fn is_empty(self) -> bool {
        self.0.iter().all(|times| *times == 0)
    }

    /// The violations beyond those in `allowed`, rule by rule.
    pub fn excess_over(mut self, allowed: Self) -> Self {
        for (times, allowed) in self.0.iter_mut().zip(allowed.0) {
            *times = times.saturating_sub(allowed);
        }
        self
    }
}

pub fn find_broken_rules(
    conversation: &Conversation,
    items: &[OutlineItem],
    profile: &Profile,
) -> BrokenRules {
    check_outline(conversation, items, profile).0
}

fn check_outline(
    conversation: &Conversation,
    items: &[OutlineItem],
    profile: &Profile,
) -> (BrokenRules, Pairing) {
    let mut broken = BrokenRules::default();
    let pairing = Pairing::of_outline(conversation, items, profile);
    broken.0[ConversationRule::Pairing as usize] = pairing.unpaired.len() as u32;
    let strict_turns =
        profile.adjacent_users == Acceptance::No && conversation.format.rules().pairs_roles;
    let mut last: Option<Author> = None;
    // Whether the last message is bound to the one before it.
    let mut is_bound = false;
    for item in items {
        let now = item.role(conversation);
        let was_bound = std::mem::replace(&mut is_bound, item.is_bound(conversation));
        let follows_user = matches!(last, Some(Author::User | Author::Tool));
        let stands_wrong = is_bound && !was_bound && !follows_user;
        if stands_wrong || was_bound && !is_bound && now != Author::Model {
            broken.count_violation(ConversationRule::BoundSystem);
        }
        if now.is_system() {
            if last.is_some() && profile.system_later == Acceptance::No {
                broken.count_violation(ConversationRule::SystemLater);
            }
            continue;
        }
        let rule = match (last, now) {
            (None, Author::User) => None,
            (None, _) if profile.begins_with_user => Some(ConversationRule::UserFirst),
            (Some(Author::User), Author::User) if strict_turns => {
                Some(ConversationRule::AdjacentUsers)
            }
            (Some(Author::Model), Author::Model)
                if strict_turns && !conversation.format.rules().joins_answers =>
            {
                Some(ConversationRule::AdjacentAssistants)
            }
            (Some(Author::Tool), Author::User) if profile.user_after_tool == Acceptance::No => {
                Some(ConversationRule::UserAfterTool)
            }
            _ => None,
        };
        if let Some(rule) = rule {
            broken.count_violation(rule);
        }
        last = Some(now);
    }
    if last == Some(Author::Model) && !profile.may_end_with_assistant {
        broken.count_violation(ConversationRule::EndsWithAssistant);
    }
    if running_turn::begins_without_thinking(conversation, items, profile) {
        broken.count_violation(ConversationRule::TurnThinking);
    }
    (broken, pairing)
}

/// The rules that an outline breaks, and the client's conversation does not.
pub(in crate::guard) fn find_new_faults(
    conversation: &Conversation,
    items: &[OutlineItem],
    profile: &Profile,
) -> BrokenRules {
    let before = list_client_items(conversation);
    let (before, known) = check_outline(conversation, &before, profile);
    let (now, found) = check_outline(conversation, items, profile);
    let mut broken = now.excess_over(before);
    broken.0[ConversationRule::Pairing as usize] = found.count_beyond(known);
    broken
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{format::chat::index_body, guard::profile::find_profile};

    impl BrokenRules {
        pub(in crate::guard) const fn has_broken(self, rule: ConversationRule) -> bool {
            self.0[rule as usize] > 0
        }
    }

    /// `roles`: a letter each, `c` for an assistant message with a call and `t` for its result.
    fn check(roles: &str, profile: &str) -> BrokenRules {
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
        let conversation = index_body(Bytes::from(body)).unwrap();
        let items: Vec<_> = (0..conversation.items.len())
            .map(OutlineItem::Client)
            .collect();
        find_broken_rules(&conversation, &items, find_profile(profile).unwrap())
    }

    #[test]
    fn a_bound_system_message_stands_between_a_user_and_an_answer() {
        let body = r#"{"messages":[{"role":"user","content":"u"},{"role":"system","content":"s"},{"role":"assistant","content":"a"},{"role":"user","content":"u"}]}"#;
        let conversation = crate::format::messages::index_body(Bytes::from_static(body.as_bytes()));
        let (conversation, profile) = (conversation.unwrap(), find_profile("anthropic").unwrap());
        let is_broken = |items: &[usize]| {
            let items: Vec<_> = items.iter().map(|&at| OutlineItem::Client(at)).collect();
            find_broken_rules(&conversation, &items, profile)
                .has_broken(ConversationRule::BoundSystem)
        };
        assert!(!is_broken(&[0, 1, 2, 3]) && !is_broken(&[0, 1]) && !is_broken(&[0, 1, 1, 2]));
        assert!(is_broken(&[0, 1, 3]) && is_broken(&[1, 2, 3]) && is_broken(&[0, 2, 1]));
    }

    #[test]
    fn a_fault_of_the_client_hides_no_other_one() {
        let call = r#"{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":""}}]}"#;
        let result = r#"{"role":"tool","tool_call_id":"x","content":"t"}"#;
        let user = r#"{"role":"user","content":"u"}"#;
        let body = format!(r#"{{"messages":[{user},{call},{result},{user},{result}]}}"#);
        let conversation = index_body(Bytes::from(body)).unwrap();
        let finds = |items: &[usize]| {
            let items: Vec<_> = items.iter().map(|&at| OutlineItem::Client(at)).collect();
            let profile = find_profile("openai").unwrap();
            find_new_faults(&conversation, &items, profile).has_broken(ConversationRule::Pairing)
        };
        assert!(!finds(&[0, 1, 2, 3, 4]) && !finds(&[0, 3, 4]) && !finds(&[0, 1, 2, 3]));
        assert!(finds(&[0, 1, 3]) && finds(&[0, 1, 3, 4]) && finds(&[0, 2, 3]));
    }

    #[test]
    fn what_refers_to_a_run_of_the_server_needs_it() {
        let used = r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"code_execution","input":{}},{"type":"tool_use","id":"a","name":"f","input":{},"caller":{"type":"code_execution_20260120","tool_id":"s"}}]}"#;
        let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}"#;
        let done = r#"{"role":"assistant","content":[{"type":"code_execution_tool_result","tool_use_id":"s","content":{}},{"type":"tool_use","id":"a","name":"f","input":{},"caller":{"type":"direct"}}]}"#;
        let body = format!(r#"{{"messages":[{used},{result},{done},{result}]}}"#);
        let conversation = crate::format::messages::index_body(Bytes::from(body)).unwrap();
        let finds = |items: &[usize]| {
            let items: Vec<_> = items.iter().map(|&at| OutlineItem::Client(at)).collect();
            let profile = find_profile("anthropic").unwrap();
            find_new_faults(&conversation, &items, profile).has_broken(ConversationRule::Pairing)
        };
        assert!(!finds(&[0, 1, 2, 3]) && !finds(&[]));
        assert!(finds(&[0, 1]) && finds(&[2, 3]));
    }

    #[test]
    fn injected_calls_need_results_like_any_other() {
        let body = r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":""}}]},{"role":"tool","tool_call_id":"x","content":"t"}]}"#;
        let conversation = index_body(Bytes::from_static(body.as_bytes())).unwrap();
        let (user, result) = (OutlineItem::Client(0), OutlineItem::Client(2));
        let whole = |items: &[OutlineItem]| {
            !find_broken_rules(&conversation, items, find_profile("openai").unwrap())
                .has_broken(ConversationRule::Pairing)
        };
        let with = |calls| OutlineItem::ClientWithCalls(1, calls);
        assert!(whole(&[user, with(1), OutlineItem::InjectedResult, result]));
        assert!(whole(&[user, with(1), result, OutlineItem::InjectedResult]));
        assert!(whole(&[
            user,
            OutlineItem::InjectedAssistant(2),
            OutlineItem::InjectedResult,
            OutlineItem::InjectedResult
        ]));
        assert!(!whole(&[user, with(1), result]));
        assert!(!whole(&[
            user,
            with(0),
            OutlineItem::InjectedResult,
            result
        ]));
        assert!(!whole(&[
            user,
            OutlineItem::InjectedAssistant(1),
            user,
            OutlineItem::InjectedResult
        ]));
        assert!(!whole(&[user, OutlineItem::InjectedAssistant(1)]));
        let ends = [
            user,
            OutlineItem::InjectedAssistant(1),
            OutlineItem::InjectedResult,
            OutlineItem::InjectedAssistant(0),
        ];
        let strict = find_broken_rules(&conversation, &ends, find_profile("template").unwrap());
        assert!(
            strict.has_broken(ConversationRule::EndsWithAssistant)
                && !strict.has_broken(ConversationRule::Pairing)
        );
    }

    #[test]
    fn each_rule_is_found_where_the_profile_has_it() {
        for (roles, rule, breaks) in [
            ("ut", ConversationRule::Pairing, "openai mistral gemini"),
            ("uc", ConversationRule::Pairing, "openai template"),
            ("ucu", ConversationRule::Pairing, "openai"),
            ("uctut", ConversationRule::Pairing, "openai"),
            ("usu", ConversationRule::SystemLater, "mistral template"),
            (
                "sau",
                ConversationRule::UserFirst,
                "mistral gemini anthropic template",
            ),
            ("ctu", ConversationRule::UserFirst, "gemini"),
            ("uu", ConversationRule::AdjacentUsers, "mistral template"),
            ("uaau", ConversationRule::AdjacentAssistants, "template"),
            ("uctu", ConversationRule::UserAfterTool, "mistral template"),
            (
                "ua",
                ConversationRule::EndsWithAssistant,
                "mistral gemini anthropic template deepseek kimi",
            ),
        ] {
            for profile in breaks.split(' ') {
                assert!(
                    check(roles, profile).has_broken(rule),
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
                    BrokenRules::default(),
                    "{roles} {profile}"
                );
            }
        }
    }
}
