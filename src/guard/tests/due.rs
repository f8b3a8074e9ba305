//! Why a request is cut: a conversation for each reason. That a question returns is shown in `last_resorts.rs`.

use serde_json::{Value, json};

use super::*;
use crate::{
    config::profile::{PastReasoning, Profile, find_profile},
    conversation::Format,
};

/// A turn: what the user says, and the model's answer, which has a thought.
fn turn(nth: usize) -> [Value; 2] {
    let thinking = format!("Thought {nth}. {}", "Hold the course. ".repeat(6));
    let answer = format!("Answer {nth}. {}", "The wind is fair. ".repeat(12));
    [
        json!({"role": "user", "content": format!("Question {nth}?")}),
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": thinking, "signature": "s"},
            {"type": "text", "text": answer}]}),
    ]
}

/// A step with a thought, of which most is the result of a call.
fn step(nth: usize) -> [Value; 2] {
    let (id, thinking) = (format!("c{nth}"), format!("Thought {nth}."));
    let result = format!("Result {nth}. {}", "All is well. ".repeat(60));
    [
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": thinking, "signature": "s"},
            {"type": "tool_use", "id": id, "name": "sound", "input": {}}]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}),
    ]
}

/// A profile under which the model reads earlier reasoning so.
fn profile(past_reasoning: PastReasoning) -> Profile {
    Profile {
        past_reasoning,
        ..*find_profile("anthropic").unwrap()
    }
}

/// Sends a conversation that grows until it is cut. Returns why, and the number of the request.
fn find_first_cut(
    profile: &Profile,
    settings: &GuardConfig,
    is_cold: bool,
    add: impl Fn(usize) -> Vec<Value>,
) -> (Due, usize) {
    let mut entries = vec![json!({"role": "user", "content": "The task."})];
    let mut knowledge = SessionKnowledge::default();
    for nth in 0..200 {
        entries.extend(add(nth));
        let body = json!({"model": "m", "max_tokens": 100, "messages": entries}).to_string();
        let conversation = Format::Messages.index_body(body.into()).unwrap();
        let policy = Policy {
            profile,
            ..policy(settings)
        };
        knowledge.is_cold = is_cold;
        let plan = plan(&conversation, &policy, &knowledge);
        assert_eq!(plan.report.stood_back, None);
        if plan.report.is_cut() {
            return (plan.report.due.expect("a cut has a reason"), nth);
        }
        assert_eq!(plan.report.due, None);
        knowledge = SessionKnowledge {
            memory: plan.memory,
            history: plan.history,
            sent_messages: conversation.items.len(),
            ..SessionKnowledge::default()
        };
    }
    panic!("no cut");
}

fn add_step(nth: usize) -> Vec<Value> {
    step(nth).into()
}

/// A turn behind the answer to the one before.
fn add_turn(nth: usize) -> Vec<Value> {
    let [_, answer] = turn(nth);
    let [question, _] = turn(nth + 1);
    vec![answer, question]
}

#[test]
fn a_request_is_cut_early_where_the_cache_is_cold_or_the_settings_say_so() {
    let settings = GuardConfig::counted_by_characters();
    let profile = profile(PastReasoning::Read);
    let (due, warm) = find_first_cut(&profile, &settings, false, add_step);
    assert_eq!(due, Due::OverBudget);
    let (due, cold) = find_first_cut(&profile, &settings, true, add_step);
    assert_eq!(due, Due::ColdCache);
    assert!(cold < warm, "{cold} and {warm}");
    let mut early = settings.clone();
    early.clear.at = Some(0.5);
    let (due, at) = find_first_cut(&profile, &early, false, add_step);
    assert_eq!(due, Due::EarlyClearing);
    assert!(at < cold, "{at} and {cold}");
}

#[test]
fn a_cut_comes_where_a_turn_begins_if_it_costs_reasoning() {
    let settings = GuardConfig::counted_by_characters();
    let find =
        |past, add: fn(usize) -> Vec<Value>| find_first_cut(&profile(past), &settings, false, add);
    let (due, read) = find(PastReasoning::Read, add_turn);
    assert_eq!(due, Due::OverBudget);
    let (due, refused) = find(PastReasoning::Refused, add_turn);
    assert_eq!(due, Due::TurnBegins);
    assert!(refused < read, "{refused} and {read}");
    // In the midst of a turn it waits.
    let (due, _) = find(PastReasoning::Refused, add_step);
    assert_eq!(due, Due::OverBudget);
}
