//! What the proxy injects into a conversation in Messages: it stays valid, and nothing of the client's changes.

use proptest::prelude::*;
use serde_json::Value;

use super::{any_profile, any_window};
use crate::{
    config::profile::find_profile,
    guard::{
        self,
        fold::memory::SessionKnowledge,
        inject::injections::{InjectionContent, InjectionRecord, Injections},
    },
    support::{
        generate_messages::any_messages,
        guard_properties::{MESSAGES, settings},
        made::{self, calls_beside, calls_round},
        plans::{apply_plan, make_policy},
        strict,
    },
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_plan_with_injections_is_valid(case in any_messages(10), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        MESSAGES.check_injected(&case.body, window, profile, seed);
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
    MESSAGES.translate_injections(&mut injections);
    let knowledge = SessionKnowledge {
        injections,
        ..SessionKnowledge::default()
    };
    let settings = settings();
    let profile = find_profile("anthropic").unwrap().for_model(model);
    let policy = make_policy(profile, 64_000, &settings);
    let conversation = MESSAGES.read(body.as_bytes());
    let plan = guard::plan(&conversation, &policy, &knowledge);
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
