//! What belongs to a shape that the guard does not know stays, and the rest is cut. What a program reads is left to it.

use serde_json::{Value, json};

use super::apart::{
    answer, call, fit, ids, messages_steps, output, responses, results, steps, tool_use, user, with,
};
use crate::support::strict;

fn messages(list: &[Vec<Value>]) -> Value {
    let tools = json!([{"type": "code_execution_20260120", "name": "code_execution"},
        {"name": "look", "input_schema": {"type": "object"}}]);
    json!({"model": "m", "max_tokens": 500, "messages": list.concat(), "tools": tools})
}

/// The request that the provider would get, if it is cut and breaks no rule.
async fn cut_messages(body: &Value) -> String {
    let (sent, actions) = fit("messages", "anthropic", body).await;
    assert!(actions.contains("dropped="), "{actions}");
    let broken = strict::messages::find_broken_rules(body.to_string().as_bytes(), &sent);
    assert_eq!(broken, [], "{actions}");
    String::from_utf8(sent).unwrap()
}

async fn cut_responses(body: &Value) -> Vec<u8> {
    let (sent, actions) = fit("responses", "openai", body).await;
    assert!(actions.contains("dropped="), "{actions}");
    let broken = strict::responses::find_broken_rules_apart(body.to_string().as_bytes(), &sent);
    assert_eq!(broken, [], "{actions}");
    sent
}

fn run(id: &str) -> Value {
    json!({"type": "server_tool_use", "id": id, "name": "code_execution", "input": {"code": "look()"}})
}

fn called_by(id: &str, run: &str) -> Value {
    let caller = json!({"type": "code_execution_20260120", "tool_id": run});
    with(tool_use(id), "caller", caller)
}

#[tokio::test]
async fn a_call_beside_those_of_a_program_is_held_to_its_limits() {
    let direct = with(tool_use("d"), "caller", json!({"type": "direct"}));
    let both = [results("p", 900), results("d", 900)];
    let both: Vec<Value> = both
        .iter()
        .map(|entry| entry["content"][0].clone())
        .collect();
    let body = messages(&[vec![
        user("Mend the ship."),
        answer(&[run("s"), called_by("p", "s"), direct]),
        json!({"role": "user", "content": both}),
    ]]);
    let (sent, actions) = fit("messages", "anthropic", &body).await;
    assert_eq!(actions, "truncated=1");
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let (before, sent) = (&body["messages"][2], &sent["messages"][2]);
    assert_eq!(sent["content"][0], before["content"][0]);
    assert!(
        sent["content"][1]
            .to_string()
            .contains("characters truncated")
    );
}

/// Results of a program come before no model: they are no tokens of the prompt, while it is at work and later.
#[tokio::test]
async fn results_that_a_program_reads_fill_no_window() {
    let mut entries = vec![user("Mend the ship.")];
    for at in 0..10 {
        let blocks = [
            vec![run("s"); usize::from(at == 0)],
            vec![called_by(&format!("p{at}"), "s")],
        ];
        entries.extend([answer(&blocks.concat()), results(&format!("p{at}"), 2_000)]);
    }
    let at_work = entries.clone();
    let content = json!({"type": "code_execution_result", "stdout": "10 leaks", "stderr": "", "return_code": 0});
    let done =
        json!({"type": "code_execution_tool_result", "tool_use_id": "s", "content": content});
    entries.extend([answer(&[done]), user("And now?")]);
    for list in [at_work, entries] {
        let body = messages(&[list]);
        let (sent, actions) = fit("messages", "anthropic", &body).await;
        assert_eq!(actions, "none");
        assert_eq!(sent, body.to_string().as_bytes());
    }
}

/// What may have made a call, and is not there or of a kind that is not known.
#[tokio::test]
async fn a_caller_that_is_not_known_keeps_its_call() {
    let is_whole = |text: &str| text.contains(&"u has it. ".repeat(150));
    for caller in [
        json!({"type": "code_execution_20260120", "tool_id": "gone"}),
        json!({"type": "crew", "crew_id": "c"}),
    ] {
        let body = messages(&[
            vec![user("Mend the ship.")],
            messages_steps("x", 10),
            vec![
                answer(&[with(tool_use("u"), "caller", caller.clone())]),
                results("u", 150),
            ],
            messages_steps("y", 150),
        ]);
        let sent = cut_messages(&body).await;
        assert!(sent.contains(&caller.to_string()), "{caller}");
        assert!(!is_whole(&sent), "{caller}");
        assert!(sent.len() < body.to_string().len() / 2, "{caller}");
    }
    for caller in [
        json!({"type": "program", "caller_id": "gone"}),
        json!({"type": "crew", "crew_id": "c"}),
    ] {
        let by = |entry: Value| with(entry, "caller", caller.clone());
        let body = responses(&[
            vec![user("Mend the ship.")],
            steps("x", 10),
            vec![by(call("u")), by(output("u", 150))],
            steps("y", 150),
        ]);
        let sent = cut_responses(&body).await;
        assert!(ids(&sent, "function_call").contains(&"u".to_owned()));
        let sent = String::from_utf8(sent).unwrap();
        assert!(!is_whole(&sent), "{caller}");
        assert!(sent.len() < body.to_string().len() / 2, "{caller}");
    }
}

/// Notes before the reasoning of an answer rest on none; calls behind it rest on it, in the answers that follow too.
#[tokio::test]
async fn calls_behind_reasoning_in_the_midst_of_an_answer_keep_it() {
    let named = |entry: Value, id: &str| with(entry, "id", id.into());
    let mut input = vec![user("Mend the ship.")];
    for at in 0..100 {
        let (a, b) = (format!("a{at}"), format!("b{at}"));
        let note = json!({"type": "message", "role": "assistant", "id": format!("msg_{at}"),
            "content": [{"type": "output_text", "text": "The keel first.", "annotations": []}]});
        let reasoning = json!({"type": "reasoning", "id": format!("rs_{at}"), "summary": [],
            "encrypted_content": "Z".repeat(400)});
        input.extend([note, reasoning, named(call(&a), &format!("fc_{a}"))]);
        input.extend([
            output(&a, 20),
            named(call(&b), &format!("fc_{b}")),
            output(&b, 20),
        ]);
    }
    let body = responses(&[input]);
    let sent = cut_responses(&body).await;
    assert!(sent.len() < body.to_string().len() / 2);
}

fn chat(list: &[Vec<Value>]) -> Value {
    json!({"model": "m", "messages": list.concat()})
}

fn chat_call(id: &str) -> Value {
    let function = json!({"name": "look", "arguments": "{}"});
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

fn chat_result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": format!("{id} has it. ").repeat(60)})
}

fn chat_steps(name: &str, count: usize) -> Vec<Value> {
    let ids = (0..count).map(|at| format!("{name}{at}"));
    ids.flat_map(|id| [chat_call(&id), chat_result(&id)])
        .collect()
}

/// Each part of `shape` is sent as it came, and what stands around it is cut.
async fn keeps_chat_shape(profile: &str, shape: Vec<Value>) {
    let body = chat(&[
        vec![user("Mend the ship.")],
        chat_steps("x", 80),
        shape.clone(),
        chat_steps("y", 80),
        vec![user("And now?")],
    ]);
    let (sent, actions) = fit("chat", profile, &body).await;
    assert!(actions.contains("dropped="), "{profile}: {actions}");
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let sent = sent["messages"].as_array().unwrap();
    let is_there = sent.windows(shape.len()).any(|row| row == shape);
    assert!(is_there, "{profile}: {shape:?}");
    assert!(sent.len() < 200, "{profile}: {}", sent.len());
}

#[tokio::test]
async fn a_message_that_parts_a_call_from_its_result_pins_both_alone() {
    for profile in ["openai", "azure", "template", "mistral", "gemini"] {
        for role in ["system", "critic"] {
            let between = json!({"role": role, "content": "It is late."});
            keeps_chat_shape(profile, vec![chat_call("u"), between, chat_result("u")]).await;
        }
    }
    let note = json!({"role": "system", "content": "It is late."});
    let shape = [answer(&[tool_use("u")]), note, results("u", 60)];
    let body = messages(&[
        vec![user("Mend the ship.")],
        messages_steps("x", 80),
        shape.to_vec(),
        messages_steps("y", 80),
        vec![user("And now?")],
    ]);
    let sent = cut_messages(&body).await;
    let sent: Value = serde_json::from_str(&sent).unwrap();
    let mut rows = sent["messages"].as_array().unwrap().windows(3);
    assert!(rows.any(|row| row == shape));
}

#[tokio::test]
async fn calls_that_are_not_understood_stay_with_their_results() {
    for calls in [
        json!("look"),
        json!({"id": "u", "name": "look"}),
        json!(["look"]),
    ] {
        let called = json!({"role": "assistant", "content": "I look.", "tool_calls": calls});
        keeps_chat_shape("openai", vec![called, chat_result("u")]).await;
    }
}
