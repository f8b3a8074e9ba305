//! System entries in the midst of the list, where messages around them are left out.

use serde_json::Value;

use super::injected::sent_with;
use crate::{
    guard::inject::injections::{InjectionContent, InjectionRecord, Injections},
    support::made::{self, calls_round, make_course},
};

/// Five messages and the system entries behind two of them.
const ENTRIES: [&str; 7] = [
    r#"{"role":"user","content":"task"}"#,
    r#"{"role":"system","content":"S0"}"#,
    r#"{"role":"assistant","content":"A1"}"#,
    r#"{"role":"user","content":"U2"}"#,
    r#"{"role":"system","content":[{"cache_control":{"type":"ephemeral"},"type":"text","text":"S2"}]}"#,
    r#"{"role":"assistant","content":"A3"}"#,
    r#"{"role":"user","content":"U4"}"#,
];

/// The texts of the entries that are sent where a course begins with message `boundary`.
fn texts_sent(model: &str, boundary: u32, records: &[(u32, InjectionContent)]) -> String {
    let record = |(place, what): &(u32, InjectionContent)| InjectionRecord {
        place: *place,
        what: what.clone(),
    };
    let injections = Injections {
        course: Some(make_course(boundary)),
        records: records.iter().map(record).collect(),
        ..Injections::default()
    };
    let body = format!(r#"{{"messages":[{}]}}"#, ENTRIES.join(","));
    let (sent, left_out) = sent_with(model, &body, injections);
    assert_eq!(left_out, 0);
    let entries = sent["messages"].as_array().unwrap().iter();
    let texts: Vec<_> = entries.map(describe).collect();
    texts.join(" ")
}

fn describe(entry: &Value) -> &str {
    let block = &entry["content"][0];
    let text = entry["content"].as_str().or(block["text"].as_str());
    match text.unwrap_or("result") {
        text if text.starts_with("[Course") => "preface",
        made::PROMPT if entry["role"] == "system" => "system-prompt",
        made::PROMPT => "prompt",
        text if text.starts_with("Let me") => "call",
        text => text,
    }
}

#[test]
fn system_entries_stand_before_the_next_answer_that_is_kept() {
    let prompt = || InjectionContent::Prompt(made::PROMPT.into());
    for (boundary, records, sonnet, opus) in [
        // Nothing is left out.
        (1, vec![], "task preface S0 A1 U2 S2 A3 U4", ""),
        (
            1,
            vec![(1, prompt())],
            "task preface prompt S0 A1 U2 S2 A3 U4",
            "task preface system-prompt S0 A1 U2 S2 A3 U4",
        ),
        // The question that the rest answers stays with them.
        (3, vec![], "task preface U2 S0 S2 A3 U4", ""),
        // The kept entry after the preface is the user's.
        (2, vec![], "task preface U2 S0 S2 A3 U4", ""),
        (
            2,
            vec![(3, prompt()), (3, calls_round(1))],
            "task preface U2 prompt S0 S2 call result A3 U4",
            "task preface U2 system-prompt S0 S2 call result A3 U4",
        ),
        (4, vec![], "task preface U4 S0 S2", ""),
        (
            4,
            vec![(5, prompt()), (5, calls_round(1)), (5, prompt())],
            "task preface U4 prompt S0 S2 call result prompt",
            "task preface U4 system-prompt S0 S2 call result system-prompt",
        ),
    ] {
        assert_eq!(texts_sent("claude-sonnet-5", boundary, &records), sonnet);
        let opus = if opus.is_empty() { sonnet } else { opus };
        assert_eq!(texts_sent("claude-opus-5", boundary, &records), opus);
    }
}

#[test]
fn a_moved_system_entry_keeps_its_bytes_but_for_cache_markers() {
    let body = format!(r#"{{"messages":[{}]}}"#, ENTRIES.join(" , "));
    let injections = |boundary| Injections {
        course: Some(make_course(boundary)),
        ..Injections::default()
    };
    for (boundary, marker) in [
        (3, serde_json::json!({"type": "ephemeral"})),
        (4, Value::Null),
    ] {
        let (sent, _) = sent_with("claude-opus-5", &body, injections(boundary));
        let entries = sent["messages"].as_array().unwrap();
        let mut expected: Vec<Value> = [ENTRIES[1], ENTRIES[4]]
            .map(|entry| serde_json::from_str(entry).unwrap())
            .into();
        expected[1]["content"][0]["cache_control"] = marker;
        let system = entries.iter().filter(|entry| entry["role"] == "system");
        assert_eq!(system.cloned().collect::<Vec<_>>(), expected);
    }
}
