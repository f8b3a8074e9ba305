//! With `thinking.type: "enabled"`, the running turn begins with thinking.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{any_profile, any_window};
use crate::{
    config::profile::{Profile, find_profile},
    guard::{self, fold::memory::SessionKnowledge, inject::injections::Injections},
    support::{
        generate::{Random, Session},
        generate_messages::any_messages,
        guard_properties::{MESSAGES, settings},
        made::make_course,
        plans::{apply_plan, make_policy},
        strict,
    },
};

const WINDOW: u32 = 8_000;

fn enabled() -> Value {
    json!({"type": "enabled", "budget_tokens": 1_024})
}

fn thought(text: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "signature": "c2ln"})
}

/// An answer whose call has so many words, and its result.
fn step(at: usize, thinks: bool, words: usize) -> [Value; 2] {
    let id = format!("toolu_{at}");
    let written = format!("line{at} ").repeat(words);
    let call = json!({"type": "tool_use", "id": id, "name": "f", "input": {"text": written}});
    let answer = if thinks {
        vec![thought(&format!("thought {at}")), call]
    } else {
        vec![call]
    };
    let result = json!({"type": "tool_result", "tool_use_id": id, "content": "Done."});
    [
        json!({"role": "assistant", "content": answer}),
        json!({"role": "user", "content": [result]}),
    ]
}

/// A task whose step `at` thinks where `thinks` says so. The first step is large, the others are small.
fn request(thinking: &Value, steps: usize, thinks: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut messages = vec![json!({"role": "user", "content": "task"})];
    for at in 0..steps {
        let words = if at == 0 { 970 } else { 120 };
        messages.extend(step(at, thinks(at), words));
    }
    json!({"max_tokens": 2_000, "thinking": thinking, "messages": messages})
        .to_string()
        .into_bytes()
}

/// The thoughts that are sent, and how many entries.
fn send(
    body: &[u8],
    profile: &'static Profile,
    knowledge: &SessionKnowledge,
) -> (Vec<String>, usize) {
    let conversation = MESSAGES.read(body);
    let settings = settings();
    let policy = make_policy(profile, WINDOW, &settings);
    let plan = guard::plan(&conversation, &policy, knowledge);
    assert_eq!(plan.report.stood_back, None);
    let after = apply_plan(&conversation, &plan);
    assert_eq!(strict::messages::find_broken_rules(body, &after), []);
    let after: Value = serde_json::from_slice(&after).unwrap();
    let entries = after["messages"].as_array().unwrap();
    let thoughts = entries
        .iter()
        .filter_map(|it| it["content"][0]["thinking"].as_str());
    (thoughts.map(str::to_owned).collect(), entries.len())
}

fn anthropic() -> &'static Profile {
    find_profile("anthropic").unwrap()
}

#[test]
fn the_only_thinking_of_the_running_turn_stays() {
    let body = request(&enabled(), 24, |at| at == 0);
    let (thoughts, entries) = send(&body, anthropic(), &SessionKnowledge::default());
    assert_eq!(thoughts, ["thought 0"]);
    assert!(entries < 49, "{entries}");
    // A turn that the client begins without thinking is its own affair.
    let body = request(&enabled(), 24, |at| at == 1);
    let (_, entries) = send(&body, anthropic(), &SessionKnowledge::default());
    assert!(entries < 49, "{entries}");
}

#[test]
fn the_first_step_goes_where_one_that_thinks_takes_its_place() {
    for every in [1, 8] {
        let body = request(&enabled(), 60, |at| at % every == 0);
        let (thoughts, entries) = send(&body, anthropic(), &SessionKnowledge::default());
        assert!(entries < 100, "{entries}");
        assert!(
            !thoughts.is_empty() && thoughts[0] != "thought 0",
            "{thoughts:?}"
        );
    }
}

#[test]
fn adaptive_thinking_is_not_bound() {
    let adaptive = request(&json!({"type": "adaptive"}), 24, |at| at == 0);
    let (thoughts, _) = send(&adaptive, anthropic(), &SessionKnowledge::default());
    assert!(thoughts.is_empty());
}

/// Without the question, the turn before would go on, and it begins with a call that has no thinking and no result, so that
/// it stays.
#[test]
fn a_question_stays_where_the_turn_would_begin_without_thinking() {
    let call =
        |id: &str, input: Value| json!({"type": "tool_use", "id": id, "name": "f", "input": input});
    let numbers = (0..1_010).map(|at| (format!("n{at:04}"), json!(1_000_000 + at)));
    let numbers = Value::Object(numbers.collect());
    let question = "keel mast sail rope ".repeat(450);
    let messages = json!([
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": [call("toolu_0", json!({}))]},
        {"role": "user", "content": question},
        {"role": "assistant", "content": [thought("thought"), call("toolu_1", numbers)]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Done."}]},
    ]);
    let body = json!({"max_tokens": 2_000, "thinking": enabled(), "messages": messages});
    let conversation = MESSAGES.read(body.to_string().as_bytes());
    let mut settings = settings();
    settings.clear.enabled = false;
    let policy = make_policy(anthropic(), 8_192, &settings);
    let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
    assert_eq!(plan.report.stood_back, None);
    let sent = apply_plan(&conversation, &plan);
    assert!(String::from_utf8_lossy(&sent).contains(&question));
}

/// A course that begins in the midst of the running turn begins with thinking.
#[test]
fn a_course_begins_with_thinking() {
    let body = request(&enabled(), 7, |at| at == 0 || at == 4);
    for (boundary, first) in [(3, "thought 0"), (9, "thought 4"), (13, "thought 4")] {
        let knowledge = SessionKnowledge {
            injections: Injections {
                course: Some(make_course(boundary)),
                ..Injections::default()
            },
            ..SessionKnowledge::default()
        };
        let (thoughts, _) = send(&body, anthropic(), &knowledge);
        assert_eq!(thoughts[0], first, "{boundary}");
    }
}

/// The conversation with thinking enabled. Each turn begins with a thought, and some of the later answers have none.
fn with_enabled_thinking(body: &[u8], seed: u64) -> Vec<u8> {
    let mut random = Random::for_part(seed, 7);
    let bare = [20, 60, 95][random.below(3)];
    let mut body: Value = serde_json::from_slice(body).unwrap();
    body["thinking"] = enabled();
    let mut begins = true;
    for entry in body["messages"].as_array_mut().unwrap() {
        if entry["role"] == "user" {
            let blocks = entry["content"].as_array();
            let blocks = blocks.map_or(&[][..], Vec::as_slice);
            let is_result = |block: &Value| block["type"] == "tool_result";
            begins |= blocks.is_empty() || !blocks.iter().all(is_result);
        } else if entry["role"] == "assistant" {
            let mut blocks = match &entry["content"] {
                Value::Array(blocks) => blocks.clone(),
                text => vec![json!({"type": "text", "text": text})],
            };
            let thinks = |block: &Value| block["type"].as_str().unwrap().ends_with("thinking");
            if blocks[0]["type"] == "compaction" {
                continue;
            }
            if begins || !random.chance(bare) {
                if !blocks.first().is_some_and(thinks) {
                    blocks.insert(0, thought("A thought."));
                }
            } else {
                blocks.retain(|block| !thinks(block));
            }
            entry["content"] = blocks.into();
            begins = false;
        }
    }
    serde_json::to_vec(&body).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_plan_begins_the_running_turn_with_thinking(case in any_messages(10), window in any_window(), profile in any_profile(), seed: u64) {
        let body = with_enabled_thinking(&case.body, seed);
        prop_assert_eq!(strict::messages::find_violations(&body), []);
        MESSAGES.check(&body, window, profile);
    }

    #[test]
    fn it_begins_with_thinking_from_request_to_request(case in any_messages(6), window in any_window(), profile in any_profile(), seed: u64) {
        let body = with_enabled_thinking(&case.with_short_answers().body, seed);
        let session = Session::from_recorded(&body).expect("a session");
        MESSAGES.grow(&session, window, profile);
        session.steps().for_each(|body| MESSAGES.check(&body, window, profile));
    }

    /// Long turns of many small steps, which are what a coding agent's are.
    #[test]
    fn long_turns_begin_with_thinking(steps in 1usize..80, every in 2usize..40, seed: u64) {
        let mut random = Random::for_part(seed, 8);
        let thoughts: Vec<bool> = (0..steps).map(|at| at == 0 || random.below(every) == 0).collect();
        let body = request(&enabled(), steps, |at| thoughts[at]);
        MESSAGES.check(&body, WINDOW, anthropic());
        let session = Session::from_recorded(&body).expect("a session");
        MESSAGES.grow(&session, WINDOW, anthropic());
    }
}
