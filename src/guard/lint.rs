//! Checks an edited conversation against the rules of a profile.
//!
//! The lint reads an outline: the kept messages in order, with the injected ones between them. It shares no code with
//! the edits, so that it finds their faults.
//!
//! What the conversation broke when it came in does not count. A profile is a guess about a provider: the provider
//! accepts that conversation all the same, or refuses it with and without the proxy.

use std::collections::{HashMap, HashSet};

use super::{
    profile::{Acceptance, Profile},
    running_turn,
};
use crate::{
    conversation::{Author, Conversation, LinkKind},
    json::text,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineItem {
    /// A message of the conversation, by its index.
    Client(usize),
    /// A message of the conversation, with the number of calls injected into it.
    ClientWithCalls(usize, u32),
    /// An injected message without calls.
    Injected(Author),
    /// An injected assistant message, with the number of its calls.
    InjectedAssistant(u32),
    /// An injected result of an injected call.
    InjectedResult,
}

impl OutlineItem {
    pub(super) fn role(self, conversation: &Conversation) -> Author {
        match self {
            Self::Client(at) | Self::ClientWithCalls(at, _) => conversation.items[at].author,
            Self::Injected(role) => role,
            Self::InjectedAssistant(_) => Author::Model,
            Self::InjectedResult => Author::Tool,
        }
    }

    fn is_bound(self, conversation: &Conversation) -> bool {
        match self {
            Self::Client(at) => conversation.items[at].is_bound,
            // A prompt that stands as a system message.
            Self::Injected(author) => author.is_system(),
            _ => false,
        }
    }
}

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
    /// No two assistant messages in a row, but in a format that takes them for one answer.
    AdjacentAssistants,
    /// No user message follows a tool result.
    UserAfterTool,
    /// The last message is not the assistant's.
    EndsWithAssistant,
    /// A bound system message follows a user message or a tool result, and is the last or before the assistant's.
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

    pub const fn has_broken(self, rule: ConversationRule) -> bool {
        self.0[rule as usize] > 0
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
    let mut broken = BrokenRules::default();
    let pairing = pair_calls(conversation, items, profile);
    broken.0[ConversationRule::Pairing as usize] = pairing.unpaired.len() as u32;
    let strict_turns = profile.adjacent_users == Acceptance::No;
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
                if strict_turns && !conversation.format.joins_answers() =>
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
    if running_turn::begins_bare(conversation, items, profile) {
        broken.count_violation(ConversationRule::TurnThinking);
    }
    broken
}

/// The place of an injected message among those that do not pair.
const INJECTED: usize = usize::MAX;

/// Pairs calls and results along an outline.
#[derive(Default)]
struct Pairing {
    /// Messages with open calls, by id. Where a result directly follows its call, those of the last answer.
    calls: HashMap<Option<u128>, Vec<usize>>,
    /// Calls of the injected answer before.
    injected: u32,
    /// Ids of calls and of what the server ran, so far.
    named: HashSet<u128>,
    /// Messages with what the server has no result for so far, by id.
    served: HashMap<u128, usize>,
    /// Messages whose calls have no result, whose result has no call, or that refer to what is not there.
    unpaired: Vec<usize>,
}

impl Pairing {
    fn add_result(&mut self, at: usize, id: Option<u128>) {
        match self.calls.get_mut(&id) {
            Some(calls) => drop(calls.pop()),
            None => self.unpaired.push(at),
        }
    }

    fn end_injected(&mut self) {
        let open = std::mem::take(&mut self.injected) > 0;
        self.unpaired.extend(open.then_some(INJECTED));
    }

    fn end_answer(&mut self) {
        let open = self.calls.drain().flat_map(|(_, calls)| calls);
        self.unpaired.extend(open);
    }

    /// In order, with what the server has no result for.
    fn list_faults(mut self) -> Vec<usize> {
        self.unpaired.extend(self.served.into_values());
        self.unpaired.sort_unstable();
        self.unpaired
    }

    fn add_answer(&mut self, conversation: &Conversation, at: usize) {
        let item = &conversation.items[at];
        let digest = |id| text::digest_text(conversation.raw_bytes(id));
        for call in conversation.calls_of(item) {
            let id = call.id.map(digest);
            self.named.extend(id);
            self.calls.entry(id).or_default().push(at);
        }
        let mut refers: Vec<u128> = Vec::new();
        for link in conversation.links_of(item) {
            let id = digest(link.id);
            if link.kind == LinkKind::Use {
                self.named.insert(id);
                self.served.insert(id, at);
                continue;
            }
            refers.push(id);
            if link.kind == LinkKind::Result {
                self.served.remove(&id);
            }
        }
        let callers = conversation.calls_of(item).iter();
        refers.extend(callers.filter_map(|call| call.caller).map(digest));
        let unknown = refers.iter().any(|id| !self.named.contains(id));
        self.unpaired.extend(unknown.then_some(at));
    }
}

/// Pairs the calls and results of an outline. A result directly follows its call, but where format and provider take it
/// elsewhere.
fn pair_calls(conversation: &Conversation, items: &[OutlineItem], profile: &Profile) -> Pairing {
    let pairs_apart = conversation.format.pairs_apart() && profile.pairs_apart;
    let mut pairing = Pairing::default();
    for item in items {
        let (at, calls) = match *item {
            OutlineItem::Injected(_) => (None, 0),
            OutlineItem::InjectedAssistant(calls) => (None, calls),
            OutlineItem::Client(at) => (Some(at), 0),
            OutlineItem::ClientWithCalls(at, calls) => (Some(at), calls),
            OutlineItem::InjectedResult if pairing.injected > 0 => {
                pairing.injected -= 1;
                continue;
            }
            OutlineItem::InjectedResult => {
                pairing.unpaired.push(INJECTED);
                continue;
            }
        };
        if let Some(at) = at.filter(|_| item.role(conversation).is_tool()) {
            let id = conversation.items[at].call_id;
            let id = id.map(|id| text::digest_text(conversation.raw_bytes(id)));
            pairing.add_result(at, id);
            continue;
        }
        pairing.end_injected();
        if !pairs_apart {
            pairing.end_answer();
        }
        pairing.injected = calls;
        if let Some(at) = at {
            pairing.add_answer(conversation, at);
        }
    }
    pairing.end_injected();
    pairing.end_answer();
    pairing
}

fn list_client_items(conversation: &Conversation) -> Vec<OutlineItem> {
    let items = 0..conversation.items.len();
    items.map(OutlineItem::Client).collect()
}

/// Whether each call of a conversation has its result, and each result its call.
pub(super) fn has_paired_calls(conversation: &Conversation, profile: &Profile) -> bool {
    let pairing = pair_calls(conversation, &list_client_items(conversation), profile);
    pairing.unpaired.is_empty()
}

/// Whether nothing in a conversation waits for a result.
pub fn awaits_nothing(conversation: &Conversation, profile: &Profile) -> bool {
    let pairing = pair_calls(conversation, &list_client_items(conversation), profile);
    pairing.list_faults().is_empty()
}

/// The rules that an outline breaks, and the client's conversation does not.
pub fn find_new_faults(
    conversation: &Conversation,
    items: &[OutlineItem],
    profile: &Profile,
) -> BrokenRules {
    let before = list_client_items(conversation);
    let faults = |items: &[OutlineItem]| pair_calls(conversation, items, profile).list_faults();
    let mut known = faults(&before).into_iter().peekable();
    let is_new = |at: &usize| {
        while known.next_if(|known| known < at).is_some() {}
        known.next_if_eq(at).is_none()
    };
    let unpaired = faults(items).into_iter().filter(is_new).count();
    let before = find_broken_rules(conversation, &before, profile);
    let mut broken = find_broken_rules(conversation, items, profile).excess_over(before);
    broken.0[ConversationRule::Pairing as usize] = unpaired as u32;
    broken
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{format::chat::index_body, guard::profile::find_profile};

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
