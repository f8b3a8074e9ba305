//! Each kind of record together with a truncation, a fold or a course.

mod tighter_limits;

use serde_json::Value;

use plimsoll::guard::injections::ToolSet;

use super::*;
use crate::support::drive::counted_by_characters;

/// As the function of the parent, with texts of a known size.
fn check(
    body: &[u8],
    window: u32,
    profile: &Profile,
    knowledge: &SessionKnowledge,
) -> Option<Plan> {
    check_plan_unless_stood_back(body, window, profile, knowledge, &counted_by_characters())
}

fn value(body: &[u8]) -> Vec<Value> {
    let body = parse::parse_value(body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

fn body(messages: &[Value]) -> Vec<u8> {
    json!({ "messages": messages, "tools": [] })
        .to_string()
        .into_bytes()
}

fn message_by(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

fn step(id: &str, content: &Value) -> [Value; 2] {
    let call = json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    [
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": id, "content": content}),
    ]
}

/// An agent's turn of so many steps.
fn loop_of(steps: usize) -> Vec<Value> {
    let mut messages = vec![message_by("system", "s"), message_by("user", "the task")];
    for at in 0..steps {
        let content = format!("{at}: {}", "what came out of it. ".repeat(20));
        messages.extend(step(&format!("c{at}"), &content.into()));
    }
    messages
}

fn record_at(place: u32, what: InjectionContent) -> InjectionRecord {
    InjectionRecord { place, what }
}

fn knowledge_with(records: Vec<InjectionRecord>) -> SessionKnowledge {
    let ours = Injections {
        records,
        ..Injections::default()
    };
    SessionKnowledge {
        injections: ours,
        ..SessionKnowledge::default()
    }
}

/// The checked plan, and the messages that are sent.
fn checked_plan(
    messages: &[Value],
    window: u32,
    profile: &str,
    knowledge: &SessionKnowledge,
) -> (Plan, Vec<Value>) {
    let body = body(messages);
    let plan =
        check(&body, window, find_profile(profile).unwrap(), knowledge).expect("a sound plan");
    let sent = value(&apply_plan(&index_conversation(&body), &plan));
    (plan, sent)
}

#[test]
fn a_prompt_is_at_the_end_of_a_truncated_result() {
    let long = "word ".repeat(20_000);
    let parts = json!([{"type": "text", "text": long}, {"type": "text", "text": long}]);
    for content in [json!(long), parts] {
        let mut messages = vec![message_by("user", "the task")];
        messages.extend(step("a", &content));
        let knowledge = knowledge_with(vec![record_at(3, InjectionContent::Prompt(PROMPT.into()))]);
        for profile in ["template", "mistral"] {
            let (plan, sent) = checked_plan(&messages, 32_768, profile, &knowledge);
            assert_eq!(plan.report.truncated.len(), 1);
            assert_eq!((sent.len(), plan.report.records_left_out), (3, 0));
            let text = match &sent[2]["content"] {
                Value::Array(parts) => parts.last().unwrap()["text"].as_str().unwrap(),
                text => text.as_str().unwrap(),
            };
            assert!(
                text.ends_with(&format!("not output of the tool]\n{PROMPT}")),
                "{text}"
            );
            assert!(sent[2].to_string().contains("characters truncated]"));
        }
        let (_, sent) = checked_plan(&messages, 32_768, "openai", &knowledge);
        assert_eq!(sent.len(), 4);
        assert_eq!(
            (&sent[3]["role"], &sent[3]["content"]),
            (&json!("user"), &json!(PROMPT))
        );
    }
}

/// A result just within its limit must not exceed it by the prompt and be cut again.
#[test]
fn a_prompt_is_counted_with_the_result_it_is_added_to() {
    for chars in [49_700, 49_900, 50_000] {
        let mut messages = vec![message_by("user", "the task")];
        messages.extend(step("a", &json!("x".repeat(chars))));
        let knowledge = knowledge_with(vec![record_at(3, InjectionContent::Prompt(PROMPT.into()))]);
        // More than an eighth of this window, and less than 30 %.
        let (plan, _) = checked_plan(&messages, 64_000, "template", &knowledge);
        assert_eq!(plan.report.truncated.len(), usize::from(chars > 49_800));
    }
}

#[test]
fn a_paragraph_and_a_preface_share_the_first_question() {
    let messages = [message_by("system", "s"), message_by("user", "the task")];
    let mut knowledge = knowledge_with(vec![record_at(1, InjectionContent::Prompt(PROMPT.into()))]);
    knowledge.injections.course = Some(make_course(1));
    for profile in ["template", "openai"] {
        let (plan, sent) = checked_plan(&messages, 8_192, profile, &knowledge);
        assert_eq!(
            (plan.report.course, plan.report.records_left_out),
            (Some(2), 0)
        );
        let text = sent[1]["content"].as_str().unwrap();
        assert!(text.starts_with("the task\n\n[Course 2, by"));
        assert!(text.ends_with(PROMPT));
    }
    knowledge.memory.alternates = Some(false);
    let (_, sent) = checked_plan(&messages, 8_192, "openai", &knowledge);
    assert_eq!(sent.len(), 4);
    assert!(
        sent[2]["content"]
            .as_str()
            .unwrap()
            .starts_with("[Course 2, by")
    );
    assert_eq!(sent[3]["content"], PROMPT);
}

#[test]
fn reinserted_tool_rounds_are_between_question_and_answer() {
    let messages = [
        message_by("user", "the task"),
        message_by("assistant", "Let me note that. Done."),
        message_by("user", "more"),
    ];
    let answer = text::digest_text(b"Let me note that. ");
    let spoken = InjectionContent::Spoken {
        chars: 18,
        digest: answer,
    };
    for (profile, alternates) in PROFILES.iter().flat_map(|it| [(it, true), (it, false)]) {
        let mut knowledge = knowledge_with(vec![
            record_at(1, InjectionContent::Prompt(PROMPT.into())),
            record_at(1, calls_round(2)),
            record_at(1, spoken.clone()),
            record_at(3, InjectionContent::Prompt(PROMPT.into())),
            record_at(3, block_round()),
        ]);
        knowledge.memory.alternates = (!alternates).then_some(false);
        let (plan, sent) = checked_plan(&messages, 8_192, profile.name, &knowledge);
        assert_eq!(plan.report.records_left_out, 0);
        let roles: Vec<_> = sent.iter().map(|it| it["role"].as_str().unwrap()).collect();
        let alone = profile.adjacent_users != guard::profile::Acceptance::No && !alternates;
        let expected = if alone {
            "user user assistant tool tool assistant user user assistant user"
        } else {
            "user assistant tool tool assistant user assistant user"
        };
        assert_eq!(roles.join(" "), expected, "{}", profile.name);
        let answer = sent.iter().find(|it| it["content"] == "Done.");
        assert!(answer.is_some());
    }
}

#[test]
fn injections_are_folded_with_the_messages_around_them() {
    let messages = loop_of(100);
    let records = vec![
        record_at(1, InjectionContent::Prompt("first".into())),
        record_at(9, calls_round(1)),
        record_at(9, calls_beside(1, 1)),
        record_at(199, calls_round(1)),
        record_at(199, calls_beside(1, 0)),
    ];
    for profile in PROFILES {
        let (plan, sent) = checked_plan(
            &messages,
            8_192,
            profile.name,
            &knowledge_with(records.clone()),
        );
        let boundary = plan.memory.boundary().expect("a fold");
        assert!((10..199).contains(&boundary), "{boundary}");
        let text = Value::from(sent).to_string();
        assert!(!text.contains("\"first\""));
        assert_eq!(
            text.matches("\"own-0\"").count(),
            2,
            "a call and its result"
        );
        assert_eq!(text.matches("\"own-x\"").count(), 2);
        assert_eq!(plan.report.records_left_out, 0);
    }
}

#[test]
fn an_injection_that_would_be_invalid_is_left_out_alone() {
    let messages = loop_of(3);
    let records = vec![
        record_at(0, InjectionContent::Prompt("before all".into())),
        record_at(2, InjectionContent::Prompt("in a step".into())),
        record_at(3, calls_beside(2, 0)),
        record_at(5, InjectionContent::Prompt("good".into())),
        record_at(8, calls_beside(1, 0)),
        record_at(90, InjectionContent::Prompt("far".into())),
    ];
    let (plan, sent) = checked_plan(&messages, 32_768, "openai", &knowledge_with(records));
    assert_eq!(plan.report.records_left_out, 5);
    assert_eq!(sent.len(), messages.len() + 1);
    assert_eq!(sent[6]["content"], "good");
}

#[test]
fn a_course_moves_the_cut_forward_only() {
    let settings = counted_by_characters();
    for profile in PROFILES {
        let policy = make_policy(profile, 8_192, &settings);
        let mut knowledge = SessionKnowledge::default();
        let before = loop_of(200);
        let (plan, _) = checked_plan(&before, 8_192, profile.name, &knowledge);
        let fold = plan.memory.boundary().expect("a fold");
        let boundary =
            guard::find_course_boundary(&index_conversation(&body(&before)), &policy).unwrap();
        assert!(boundary > fold);
        knowledge.memory = plan.memory;
        knowledge.sent_messages = before.len() - 1;
        knowledge.injections.course = Some(make_course(boundary));
        let (plan, sent) = checked_plan(&before, 8_192, profile.name, &knowledge);
        assert_eq!(plan.memory.boundary(), Some(boundary));
        assert!(Value::from(sent).to_string().contains("r1: "));
        // Without memory, or with that of another grid, the course is sent nevertheless.
        for memory in [
            guard::GuardMemory::default(),
            checked_plan(&before, 16_384, profile.name, &SessionKnowledge::default())
                .0
                .memory,
        ] {
            let other = SessionKnowledge {
                memory,
                injections: knowledge.injections.clone(),
                ..SessionKnowledge::default()
            };
            let (other, _) = checked_plan(&before, 8_192, profile.name, &other);
            assert_eq!(other.memory, plan.memory);
        }
        knowledge.memory = plan.memory;
        let after = loop_of(400);
        let (plan, sent) = checked_plan(&after, 8_192, profile.name, &knowledge);
        let moved = plan.memory.boundary().unwrap();
        assert!(moved > boundary && plan.report.folded.unwrap().new);
        let text = Value::from(sent).to_string();
        assert!(text.contains("r1: ") && !text.contains(guard::NOTE));
        // The newer of both applies.
        knowledge.memory = plan.memory;
        knowledge.sent_messages = after.len() - 1;
        let (plan, _) = checked_plan(&after, 8_192, profile.name, &knowledge);
        assert_eq!(plan.memory.boundary(), Some(moved));
        assert!(!plan.report.folded.unwrap().new);
    }
}

#[test]
fn a_prompt_at_the_end_is_counted() {
    let settings = counted_by_characters();
    for profile in ["openai", "template"] {
        let policy = make_policy(find_profile(profile).unwrap(), 8_192, &settings);
        let messages = loop_of(3);
        let conversation = index_conversation(&body(&messages));
        let bare = guard::plan(&conversation, &policy, &SessionKnowledge::default()).report;
        let knowledge = knowledge_with(vec![record_at(
            7,
            InjectionContent::Prompt("word ".repeat(600).into()),
        )]);
        let asked = guard::plan(&conversation, &policy, &knowledge).report;
        let more = asked.raw_after - bare.raw_after;
        assert!((1_000..1_060).contains(&more), "{more}");
        assert_eq!(asked.raw_before, bare.raw_before);
    }
}

#[test]
fn injected_tools_do_not_move_a_cut() {
    let messages = loop_of(100);
    let own = InjectedTools::new(
        "tools",
        Bytes::from_static(
            br#"{"type":"function","function":{"name":"clear_mind","description":"a long one"}}"#,
        ),
        ToolSet::Reminders,
    );
    let (bare, _) = checked_plan(&messages, 8_192, "openai", &SessionKnowledge::default());
    let knowledge = SessionKnowledge {
        memory: bare.memory.clone(),
        sent_messages: messages.len(),
        injections: Injections {
            tools: Some(own),
            ..Injections::default()
        },
        ..SessionKnowledge::default()
    };
    let (plan, _) = checked_plan(&messages, 8_192, "openai", &knowledge);
    assert!(!plan.report.tools.is_empty() && bare.report.tools.is_empty());
    assert_eq!(plan.memory, bare.memory);
    assert!(plan.report.raw_after > bare.report.raw_after);
    for (field, value) in [
        ("tools", json!(null)),
        ("tools", json!({})),
        ("functions", json!([])),
    ] {
        let mut body = json!({"messages": messages});
        body[field] = value;
        let body = body.to_string().into_bytes();
        let settings = counted_by_characters();
        let policy = make_policy(find_profile("openai").unwrap(), 200_000, &settings);
        let plan = guard::plan(&index_conversation(&body), &policy, &knowledge);
        assert!(plan.report.tools.is_empty() && plan.edits.is_empty());
    }
}

/// Recovery prunes its records by the boundary, so there must be none while the record is in place.
#[test]
fn a_boundary_without_a_fold_is_not_reported() {
    let mut messages = vec![message_by("user", "the task"), message_by("developer", "s")];
    let mut knowledge = knowledge_with(vec![record_at(1, InjectionContent::Prompt(PROMPT.into()))]);
    knowledge.injections.course = Some(make_course(1));
    let (_, first) = checked_plan(&messages, 8_192, "openai", &knowledge);
    messages.extend([message_by("assistant", "a"), message_by("user", "more")]);
    knowledge.sent_messages = 1;
    let (plan, second) = checked_plan(&messages, 8_192, "openai", &knowledge);
    assert_eq!(second[..first.len()], first[..]);
    assert_eq!(plan.memory.boundary(), None);
    assert!(plan.report.folded.is_none());
}

/// The proxy then sends it without injections.
#[test]
fn a_request_too_large_only_by_injections_is_distinguished() {
    let mut knowledge = knowledge_with(vec![record_at(
        3,
        InjectionContent::Prompt("word ".repeat(600).into()),
    )]);
    knowledge.injections.course = Some(make_course(1));
    for (words, alone, with_ours) in [
        (200, false, false),
        (1_300, false, true),
        (2_500, true, true),
    ] {
        let system = message_by("system", &"word ".repeat(words));
        let mut messages = vec![system, message_by("user", "the task")];
        messages.extend(step("a", &json!("r")));
        let (plan, _) = checked_plan(&messages, 4_096, "openai", &SessionKnowledge::default());
        assert_eq!(plan.report.over_budget, alone, "{words}");
        let (plan, _) = checked_plan(&messages, 4_096, "openai", &knowledge);
        assert_eq!(plan.report.over_budget, with_ours, "{words}");
    }
}

/// The memory as a session's state stores it.
fn read_back(memory: &guard::GuardMemory) -> guard::GuardMemory {
    postcard::from_bytes(&postcard::to_allocvec(memory).unwrap()).unwrap()
}

#[test]
fn a_truncated_result_keeps_the_tighter_of_two_limits() {
    let mut messages = vec![message_by("user", "the task")];
    messages.extend(step("a", &json!("word ".repeat(20_000))));
    for (tight, says) in [(10_000, false), (1_000, true)] {
        let mut knowledge = SessionKnowledge::default();
        knowledge.injections.tight_chars = Some(tight);
        let (_, sent) = checked_plan(&messages, 200_000, "openai", &knowledge);
        let text = sent[2]["content"].as_str().unwrap();
        assert!(text.chars().count() <= 4_060.min(tight));
        assert_eq!(text.contains("nearly full"), says);
        // A cut result is not cut again.
        let (again, _) = checked_plan(&sent, 200_000, "openai", &knowledge);
        assert!(again.report.truncated.is_empty());
    }
}

proptest! {
    #[test]
    fn cutting_a_result_twice_changes_nothing_more(text in "[a-z中😀\n]{0,3000}", window in 1_024u32..20_000, tight in 0usize..2_000, parts in any::<bool>()) {
        let content = if parts {
            json!([{"type": "text", "text": text}, {"type": "text", "text": "end"}])
        } else {
            json!(text)
        };
        let mut messages = vec![message_by("user", "the task")];
        messages.extend(step("a", &content));
        let mut knowledge = SessionKnowledge::default();
        knowledge.injections.tight_chars = Some(tight);
        let (plan, sent) = checked_plan(&messages, window, "openai", &knowledge);
        prop_assume!(plan.report.raw_after <= plan.report.budget.tokens);
        let (again, twice) = checked_plan(&sent, window, "openai", &knowledge);
        prop_assert!(again.report.truncated.is_empty());
        prop_assert_eq!(twice, sent);
    }
}
