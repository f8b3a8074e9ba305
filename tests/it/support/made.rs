//! Injections as recovery makes them, and some that are invalid where they are.

use super::generate::Random;
use bytes::Bytes;
use plimsoll::{
    conversation::{Content, Conversation},
    guard::injections::{
        Course, InjectedAuthor, InjectedCall, InjectedMessage, InjectedTools, InjectionContent,
        InjectionRecord, Injections, Summary, ToolSet,
    },
    json::text,
};
use serde_json::json;

pub(crate) const PROMPT: &str = "[Note by the context guard:\nwrite down \"what matters\".]";

/// Indices of the messages that are not system messages.
pub(crate) fn non_system_indices(conversation: &Conversation) -> Vec<usize> {
    let messages = conversation.items.iter().enumerate();
    messages
        .filter(|(_, message)| !message.author.is_system())
        .map(|(at, _)| at)
        .collect()
}

fn to_boxed_json(value: &serde_json::Value) -> Box<str> {
    value.to_string().into()
}

fn add_reminder_call(id: &str) -> serde_json::Value {
    json!({"id": id, "type": "function", "function": {"name": "add_reminder", "arguments": "{\"content\":\"x\"}"}})
}

fn reminder_result(id: &str) -> Box<str> {
    to_boxed_json(&json!({"role": "tool", "tool_call_id": id, "content": "Noted as r1."}))
}

/// A round of so many calls.
pub(crate) fn calls_round(calls: u32) -> InjectionContent {
    let ids: Vec<_> = (0..calls).map(|at| format!("own-{at}")).collect();
    let asked: Vec<_> = ids.iter().map(|id| add_reminder_call(id)).collect();
    let model = json!({"role": "assistant", "content": "Let me note that. ", "tool_calls": asked});
    let mut round = vec![InjectedMessage {
        by: InjectedAuthor::Model { calls },
        json: to_boxed_json(&model),
    }];
    round.extend(ids.iter().map(|id| InjectedMessage {
        by: InjectedAuthor::Tool,
        json: reminder_result(id),
    }));
    InjectionContent::Round(round)
}

/// A round for a model without tools.
pub(crate) fn block_round() -> InjectionContent {
    let said = |by, role, content| InjectedMessage {
        by,
        json: to_boxed_json(&json!({"role": role, "content": content})),
    };
    InjectionContent::Round(vec![
        said(
            InjectedAuthor::Model { calls: 0 },
            "assistant",
            "<continuation_package>x</continuation_package>",
        ),
        said(InjectedAuthor::User, "user", "[Noted; the work goes on.]"),
    ])
}

pub(crate) fn calls_beside(client_calls: u32, before: u32) -> InjectionContent {
    InjectionContent::Calls {
        client_calls,
        calls: vec![InjectedCall {
            before,
            json: to_boxed_json(&add_reminder_call("own-x")),
        }],
        results: vec![reminder_result("own-x")],
    }
}

/// A record that an answer's text is in a round.
fn spoken_record(conversation: &Conversation, at: usize, random: &mut Random) -> InjectionContent {
    let raw = match conversation.items[at].content {
        Content::Text(text) => conversation.raw_bytes(text),
        _ => b"",
    };
    let chars = text::TextWalk::new(raw).count();
    let chars = random.below(chars + 1);
    let end = text::TextWalk::new(raw)
        .nth(chars)
        .map_or(raw.len(), |character| character.at);
    InjectionContent::Spoken {
        chars: chars as u32,
        digest: text::digest_text(&raw[..end]),
    }
}

/// Records at random places up to message `until`; some fit and some do not.
pub(crate) fn random_records(
    conversation: &Conversation,
    until: usize,
    seed: u64,
) -> Vec<InjectionRecord> {
    let mut random = Random::new(seed);
    let said = non_system_indices(conversation);
    let mut records = Vec::new();
    for place in 0..=until.min(said.len()) {
        let answer = said.get(place).copied();
        let calls = answer.map_or(0, |at| conversation.items[at].calls.len() as u32);
        let mut add = |what| {
            records.push(InjectionRecord {
                place: place as u32,
                what,
            });
        };
        if random.chance(25) {
            add(InjectionContent::Prompt(PROMPT.into()));
        }
        if random.chance(15) {
            add(calls_round(random.between(1, 3) as u32));
        }
        if random.chance(8) {
            add(block_round());
        }
        if let Some(at) = answer.filter(|_| random.chance(40)) {
            if random.chance(50) {
                add(calls_beside(calls, random.below(3) as u32));
            }
            if random.chance(50) {
                add(InjectionContent::Text {
                    before_chars: random.below(60) as u32,
                    text: "<continuation_package>\n- \"next\"</continuation_package>".into(),
                });
            }
            if random.chance(50) {
                add(spoken_record(conversation, at, &mut random));
            }
        }
    }
    records
}

pub(crate) fn make_course(boundary: u32) -> Course {
    Course {
        number: 2,
        boundary,
        preface: "[Course 2, by the context guard.]\n<reminders>\nr1: \"do\" it\n</reminders>"
            .into(),
    }
}

pub(crate) fn make_proxy_tools(conversation: &Conversation) -> Option<InjectedTools> {
    let field = ["tools", "functions"]
        .into_iter()
        .find(|name| conversation.find_field(name).is_some())?;
    let json =
        br#"{"type":"function","function":{"name":"add_reminder","parameters":{"type":"object"}}}"#;
    let json = Bytes::from_static(json);
    Some(InjectedTools::new(field, json, ToolSet::Reminders))
}

/// Injections of every kind, by seed.
pub(crate) fn make_injected(conversation: &Conversation, seed: u64) -> Injections {
    let mut random = Random::for_part(seed, 9);
    let count = non_system_indices(conversation).len();
    Injections {
        course: random
            .chance(40)
            .then(|| make_course(random.below(count + 2) as u32)),
        summary: random.chance(30).then(|| Summary {
            boundary: random.below(count + 2) as u32,
            text: "<summary>\n<done>\nread the files\n</done>\n</summary>".into(),
        }),
        records: random_records(conversation, count, seed),
        tools: make_proxy_tools(conversation).filter(|_| random.chance(50)),
        tight_chars: random.chance(30).then(|| random.between(300, 4_000)),
        tools_when_cut: None,
        names_ids: random.chance(50),
    }
}
