//! What the proxy injects into a conversation in Messages: it stays valid, and nothing of the client's changes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{any_profile, any_window};
use crate::{
    conversation::Conversation,
    guard::{
        self, Recall,
        injections::{InjectionContent, InjectionRecord, Injections},
        profile::find_profile,
    },
    support::{
        annotate_randomly, any_settings,
        generate_messages::any_messages,
        guard_properties::{MESSAGES, assert_system_messages_stay, settings},
        made::{self, calls_beside, calls_round, make_injected},
        plans::{apply_plan, assert_untouched, make_policy},
        strict, without_annotations,
    },
};

/// Injections of every kind, as Messages has them.
pub(super) fn make_recall(conversation: &Conversation, seed: u64) -> Recall {
    let mut injections = make_injected(conversation, seed);
    translate(&mut injections);
    Recall {
        injections,
        ..Recall::default()
    }
}

fn translate(injections: &mut Injections) {
    for record in &mut injections.records {
        match &mut record.what {
            InjectionContent::Round(turn) => {
                for message in turn {
                    message.json = item_to_messages(&message.json);
                }
            }
            InjectionContent::Calls { calls, results, .. } => {
                for call in calls {
                    let made: Value = serde_json::from_str(&call.json).unwrap();
                    call.json = call_to_messages(&made).to_string().into();
                }
                for result in results {
                    *result = item_to_messages(result);
                }
            }
            InjectionContent::Prompt(_)
            | InjectionContent::Text { .. }
            | InjectionContent::Spoken { .. }
            | InjectionContent::DroppedRound { .. } => {}
        }
    }
}

fn item_to_messages(item: &str) -> Box<str> {
    let item: Value = serde_json::from_str(item).unwrap();
    let made = match item["role"].as_str() {
        Some("tool") => {
            json!({"type": "tool_result", "tool_use_id": item["tool_call_id"], "content": item["content"]})
        }
        Some("assistant") if item["tool_calls"].is_array() => {
            let text = json!({"type": "text", "text": item["content"]});
            let calls = item["tool_calls"].as_array().unwrap();
            let blocks = std::iter::once(text).chain(calls.iter().map(call_to_messages));
            json!({"role": "assistant", "content": blocks.collect::<Vec<_>>()})
        }
        _ => item,
    };
    made.to_string().into()
}

fn call_to_messages(call: &Value) -> Value {
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let input: Value = serde_json::from_str(arguments).unwrap();
    json!({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": input})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_plan_with_injections_is_valid(case in any_messages(10), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        let body = annotate_randomly(&MESSAGES.read(&case.body), seed);
        let before = MESSAGES.index(body);
        let recall = make_recall(&before, seed);
        let settings = any_settings(seed);
        let policy = make_policy(profile, window, &settings);
        let plan = guard::plan(&before, &policy, &recall);
        prop_assert_eq!(plan.report.stood_back, None);
        let after = apply_plan(&before, &plan);
        assert_untouched(&before, &after, &plan, "injected");
        let after = without_annotations(&MESSAGES.index(after));
        assert_system_messages_stay(&before, &MESSAGES.index(after.clone()), &plan, "injected");
        let broken = strict::messages::find_broken_rules(&without_annotations(&before), &after);
        prop_assert_eq!(&broken[..], &[], "{}", String::from_utf8_lossy(&after));
        let notes = String::from_utf8_lossy(&after).matches("[Course 2, by").count();
        prop_assert_eq!(notes, usize::from(plan.report.course.is_some()));
    }
}

fn sent(body: &str, records: Vec<InjectionRecord>) -> (Value, usize) {
    sent_to("claude-sonnet-5", body, records)
}

fn sent_to(model: &str, body: &str, records: Vec<InjectionRecord>) -> (Value, usize) {
    let injections = Injections {
        records,
        ..Injections::default()
    };
    sent_with(model, body, injections)
}

/// What is sent, and the number of records that were left out.
pub(super) fn sent_with(model: &str, body: &str, mut injections: Injections) -> (Value, usize) {
    translate(&mut injections);
    let recall = Recall {
        injections,
        ..Recall::default()
    };
    let settings = settings();
    let profile = find_profile("anthropic").unwrap().for_model(model);
    let policy = make_policy(profile, 64_000, &settings);
    let conversation = MESSAGES.read(body.as_bytes());
    let plan = guard::plan(&conversation, &policy, &recall);
    assert_eq!(plan.report.stood_back, None);
    let after = apply_plan(&conversation, &plan);
    assert_eq!(
        strict::messages::find_broken_rules(body.as_bytes(), &after),
        []
    );
    (
        serde_json::from_slice(&after).unwrap(),
        plan.report.records_left_out,
    )
}

const TASK: &str = r#"{"role":"user","content":"u"}"#;
const SYSTEM: &str = r#"{"role":"system","content":"s"}"#;
const STEP: &str = r#"{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"a","name":"f","input":{}}]}"#;
const RESULT: &str = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"r"},{"type":"text","text":"And?"}]}"#;

#[test]
fn a_call_beside_the_client_s_is_put_back_with_its_result() {
    let body = format!(r#"{{"messages":[{TASK},{STEP},{RESULT}]}}"#);
    let record = |place, what| InjectionRecord { place, what };
    let (sent, left_out) = sent(&body, vec![record(1, calls_beside(1, 1))]);
    assert_eq!(left_out, 0);
    assert_eq!(sent["messages"][1]["content"][2]["id"], "own-x");
    let results = sent["messages"][2]["content"].as_array().unwrap();
    let ids: Vec<_> = results
        .iter()
        .map(|it| it["tool_use_id"].as_str())
        .collect();
    assert_eq!(ids, [Some("a"), Some("own-x"), None]);
}

#[test]
fn a_round_stands_behind_the_system_entries_of_its_request_and_a_prompt_before_them() {
    let answer = r#"{"role":"assistant","content":"Done."}"#;
    let body = format!(r#"{{"messages":[{TASK},{SYSTEM},{answer},{TASK}]}}"#);
    let records = [
        InjectionContent::Prompt(made::PROMPT.into()),
        calls_round(2),
    ];
    let records = records.map(|what| InjectionRecord { place: 1, what });
    let (sent, left_out) = sent(&body, records.to_vec());
    assert_eq!(left_out, 0);
    let entries = sent["messages"].as_array().unwrap();
    let roles: Vec<_> = entries
        .iter()
        .map(|it| it["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "user",
            "user",
            "system",
            "assistant",
            "user",
            "assistant",
            "user"
        ]
    );
    // All results of an answer stand in one entry.
    assert_eq!(entries[4]["content"].as_array().unwrap().len(), 2);
}

#[test]
fn a_prompt_in_the_middle_of_an_entry_is_a_block_and_a_round_is_left_out() {
    let body = format!(r#"{{"messages":[{TASK},{STEP},{RESULT}]}}"#);
    let records = [
        InjectionContent::Prompt(made::PROMPT.into()),
        calls_round(1),
    ];
    let records = records.map(|what| InjectionRecord { place: 3, what });
    let (sent, left_out) = sent(&body, records.to_vec());
    assert_eq!(left_out, 1);
    let blocks = sent["messages"][2]["content"].as_array().unwrap();
    let kinds: Vec<_> = blocks
        .iter()
        .map(|it| it["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["tool_result", "text", "text"]);
    assert_eq!(blocks[1]["text"], made::PROMPT);
}

/// The roles of what is sent to a model that takes system entries, with prompts at these places.
fn roles_with_prompts(messages: &str, places: &[u32]) -> String {
    let prompt = |place: &u32| InjectionRecord {
        place: *place,
        what: InjectionContent::Prompt(made::PROMPT.into()),
    };
    let body = format!(r#"{{"messages":[{messages}]}}"#);
    let records = places.iter().map(prompt).collect();
    let (sent, left_out) = sent_to("claude-opus-5", &body, records);
    assert_eq!(left_out, 0);
    let entries = sent["messages"].as_array().unwrap().iter();
    let roles: Vec<_> = entries.map(|it| it["role"].as_str().unwrap()).collect();
    roles.join(" ")
}

#[test]
fn a_prompt_is_a_system_entry_where_the_model_takes_one() {
    let answer = r#"{"role":"assistant","content":"Done."}"#;
    let result =
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"r"}]}"#;
    for (messages, places, roles) in [
        (TASK.to_owned(), &[1][..], "user system"),
        (
            format!("{TASK},{STEP},{result}"),
            &[3],
            "user assistant user system",
        ),
        (
            format!("{TASK},{answer},{TASK},{STEP},{result},{answer},{TASK}"),
            &[1, 3, 5],
            "user system assistant user system assistant user system assistant user",
        ),
        // Several in a row are one.
        (
            format!("{TASK},{SYSTEM},{answer},{TASK}"),
            &[1, 1],
            "user system system system assistant user",
        ),
        // It may stand behind the user's own text too, but never before it.
        (
            format!("{TASK},{STEP},{RESULT}"),
            &[3],
            "user assistant user",
        ),
        (
            format!("{TASK},{STEP},{RESULT}"),
            &[4],
            "user assistant user system",
        ),
        // The client's next message is no answer.
        (format!("{TASK},{TASK}"), &[1], "user user user"),
    ] {
        assert_eq!(roles_with_prompts(&messages, places), roles, "{messages}");
    }
}

#[test]
fn a_round_stands_behind_a_prompt_that_is_a_system_entry() {
    let body = format!(r#"{{"messages":[{TASK}]}}"#);
    let records = [
        InjectionContent::Prompt(made::PROMPT.into()),
        calls_round(1),
        InjectionContent::Prompt(made::PROMPT.into()),
    ];
    let records = records.map(|what| InjectionRecord { place: 1, what });
    let (sent, left_out) = sent_to("claude-opus-5", &body, records.to_vec());
    assert_eq!(left_out, 0);
    let roles: Vec<_> = sent["messages"].as_array().unwrap().iter().collect();
    let roles: Vec<_> = roles
        .iter()
        .map(|it| it["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "system", "assistant", "user", "system"]);
}
