//! Code in a container of Anthropic's that calls the client's tools, over several answers: a provider that refuses what the
//! real one does, from its documentation.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{STEPS, sealed::Sealer, start_proxy};
use crate::support::{MessagesAgent, strict};

const CONTAINER: &str = "container_1";

fn blocks(body: &Value) -> impl Iterator<Item = &Value> {
    let entries = body["messages"].as_array().unwrap().iter();
    let lists = entries.filter_map(|entry| entry["content"].as_array());
    lists.flatten()
}

/// The code that is at work.
fn find_open_run(body: &Value) -> Option<&str> {
    let mut open = None;
    for block in blocks(body) {
        match block["type"].as_str().unwrap() {
            "server_tool_use" => open = block["id"].as_str(),
            "code_execution_tool_result" => open = None,
            _ => {}
        }
    }
    open
}

/// Ids of the calls that code made: of a run, or of all.
fn list_calls<'a>(body: &'a Value, run: Option<&str>) -> Vec<&'a Value> {
    let called = blocks(body).filter(|block| {
        let caller = block["caller"]["tool_id"].as_str();
        caller.is_some() && (run.is_none() || caller == run)
    });
    called.map(|block| &block["id"]).collect()
}

/// What breaks a rule of the API, and a request without the container whose code waits for results.
pub(super) fn judge(body: &Value) -> Option<String> {
    let broken = strict::messages::find_violations(body.to_string().as_bytes());
    if !broken.is_empty() {
        return Some(format!("{broken:?}"));
    }
    let is_lost = find_open_run(body).is_some() && body["container"] != CONTAINER;
    is_lost.then(|| "container: required while a tool call of code is pending".to_owned())
}

/// Bytes of results that come before no model.
pub(super) fn measure_results(body: &Value) -> usize {
    let Some(_) = body["messages"].as_array() else {
        return 0;
    };
    let called = list_calls(body, None);
    let results = blocks(body).filter(|block| called.contains(&&block["tool_use_id"]));
    results
        .map(|block| block["content"].to_string().len())
        .sum()
}

/// The blocks of an answer that begins code, goes on with it, or ends it; `None` for any other answer.
pub(super) fn write(body: &Value, name: &str, nth: usize, thinking: &Value) -> Option<Vec<Value>> {
    let call = |id: usize, caller: Value| {
        json!({"type": "tool_use", "id": format!("toolu_{name}_{nth}_{id}"), "name": "read_file",
            "input": {"path": format!("src/{nth}/{id}.rs")}, "caller": caller})
    };
    let by = |run: &str| json!({"type": "code_execution_20260120", "tool_id": run});
    let Some(run) = find_open_run(body) else {
        let run = format!("srvtoolu_{name}_{nth}");
        let code = json!({"type": "server_tool_use", "id": run, "name": "code_execution",
            "input": {"code": "for path in paths: await read_file(path)\n".repeat(4)}});
        let mut content = vec![thinking.clone(), code, call(0, by(&run))];
        content.extend(
            nth.is_multiple_of(8)
                .then(|| call(1, json!({"type": "direct"}))),
        );
        return nth.is_multiple_of(4).then_some(content);
    };
    if list_calls(body, Some(run)).len() < 3 + run.len() % 2 * 20 {
        return Some((0..=nth % 3).map(|id| call(id, by(run))).collect());
    }
    let output = json!({"type": "code_execution_result", "stdout": "No leak. ".repeat(20), "stderr": "", "return_code": 0});
    let result =
        json!({"type": "code_execution_tool_result", "tool_use_id": run, "content": output});
    let text = json!({"type": "text", "text": "The code found none."});
    let mut content = vec![result, thinking.clone(), text];
    content.extend(
        nth.is_multiple_of(2)
            .then(|| call(0, json!({"type": "direct"}))),
    );
    Some(content)
}

pub(super) fn write_message(body: &Value, content: Vec<Value>, tokens: usize) -> Value {
    let calls = content.iter().any(|block| block["type"] == "tool_use");
    let reason = if calls { "tool_use" } else { "end_turn" };
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content,
        "stop_reason": reason, "stop_sequence": null, "container": {"id": CONTAINER, "expires_at": "2026-12-24T00:00:00Z"},
        "usage": {"input_tokens": tokens, "output_tokens": 200}})
}

#[tokio::test]
async fn an_agent_whose_code_calls_its_tools_goes_on_through_fallbacks() {
    for (model, second) in [
        ("claude-opus-5-5", "claude-sonnet-5-5"),
        ("claude-opus-4-8", "claude-sonnet-4-6"),
    ] {
        let home = Sealer::new("home", Some(70)).with_code();
        let away = Sealer::new("away", None).with_code();
        let (up, other) = (home.start().await, away.start().await);
        let proxy = start_proxy(&up, ("anthropic", model), Some((&other, second))).await;
        let mut agent = MessagesAgent::new(&proxy).set("model", model);
        let code = json!({"type": "code_execution_20260120", "name": "code_execution"});
        agent.fields["tools"].as_array_mut().unwrap().push(code);
        agent.result = 600;
        let mut is_cut = false;
        for _ in 0..STEPS {
            let answered = agent.step().await;
            is_cut |= answered.action("dropped").is_some();
            if let Some(id) = answered.message["container"]["id"].as_str() {
                agent.fields["container"] = id.into();
            }
        }
        assert!(is_cut && agent.fields["container"] == CONTAINER, "{model}");
        let refused = (home.count_refused(), away.count_refused());
        assert_eq!(refused, (0, 0), "{model}");
        assert!(away.requests.load(Ordering::Relaxed) >= 4, "{model}");
    }
}
