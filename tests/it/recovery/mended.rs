//! Calls of the proxy's tools that could not be sent back, rounds that a provider refuses, and rounds that are used up.

use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll::config::AddTools;
use serde_json::{Value, json};

use super::{Shape, agent_past_optimal, first_prompted, obliging_model, pair, proxy_before, work};
use crate::support::{
    Agent, AgentGeneration, MessagesAgent, ModelCall, ModelReply, ModelRequest, ModelSetup,
    ResponsesAgent, RunningModel, RunningProxy, answer,
};

const BROKEN: &str = r#"{"content": "caulk the bow"#;

/// A proxy whose tools are always there, before a model with this reply rule.
async fn pair_with_tools(
    mind: impl Fn(&ModelRequest<'_>) -> ModelReply + Send + Sync + 'static,
) -> (RunningProxy, RunningModel) {
    let up = ModelSetup::new(100_000).start(mind).await;
    let shape = Shape {
        window: 100_000,
        ..Shape::default()
    };
    let proxy = proxy_before(&up, &shape);
    let proxy = proxy.set(|config| config.recovery.tools = AddTools::Always);
    (proxy.start().await, up)
}

/// One generation of an agent of each format, streamed and not.
async fn each_format(
    proxy: &RunningProxy,
    mut check: impl FnMut(&str, AgentGeneration, AgentGeneration),
) {
    for stream in [false, true] {
        let mut agent = Agent::new(proxy).set("stream", stream);
        check("chat", agent.step().await, agent.step().await);
        let mut agent = MessagesAgent::new(proxy).set("stream", stream);
        check("messages", agent.step().await, agent.step().await);
        for keeps_ids in [false, true] {
            let mut agent = ResponsesAgent::new(proxy).set("stream", stream);
            agent.keeps_ids = keeps_ids;
            check("responses", agent.step().await, agent.step().await);
        }
    }
}

/// The calls of `add_reminder` in a request of any format: id, and arguments.
fn own_calls(body: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    let mut add = |id: &Value, arguments: &Value| {
        found.push((id.as_str().unwrap_or("").to_owned(), arguments.clone()));
    };
    for message in body["messages"].as_array().into_iter().flatten() {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            if call["function"]["name"] == "add_reminder" {
                assert_eq!(call["type"], "function", "{call}");
                add(&call["id"], &call["function"]["arguments"]);
            }
        }
        for block in message["content"].as_array().into_iter().flatten() {
            if block["name"] == "add_reminder" {
                add(&block["id"], &block["input"].to_string().into());
            }
        }
    }
    for item in body["input"].as_array().into_iter().flatten() {
        if item["name"] == "add_reminder" {
            add(&item["call_id"], &item["arguments"]);
        }
    }
    found
}

#[tokio::test]
async fn broken_arguments_go_back_as_an_empty_object() {
    let (proxy, up) = pair_with_tools(|heard| {
        if heard.follows_proxy_call() || !heard.offers_tool("add_reminder") {
            return work(heard);
        }
        let call = ModelCall {
            id: Some(format!("own_{}", heard.nth)),
            name: "add_reminder".to_owned(),
            arguments: BROKEN.to_owned(),
        };
        ModelReply::Says("I write it down.".to_owned(), vec![call])
    })
    .await;
    each_format(&proxy, |format, first, _| {
        assert!(first.answer.text().contains("read_file"), "{format}");
    })
    .await;
    let mut rounds = 0;
    for body in up.bodies().await {
        for (id, arguments) in own_calls(&body) {
            rounds += 1;
            assert_eq!(arguments, "{}", "{body}");
            assert!(
                !id.is_empty() && body.to_string().matches(&id).count() >= 2,
                "{body}"
            );
            let told = ["no JSON", "Write its text"];
            assert!(
                told.iter().any(|it| body.to_string().contains(it)),
                "{body}"
            );
        }
    }
    assert!(rounds >= 8, "{rounds}");
    up.assert_no_faults();
}

/// Whole answers of chat completions whose call is odd: without an id, with an object, with null.
#[tokio::test]
async fn odd_calls_are_sent_back_as_the_api_wants_them() {
    let note = json!({"content": "caulk the bow"});
    for (id, arguments, sent, saved) in [
        (json!(""), json!(note.to_string()), note.clone(), 1),
        (Value::Null, json!(note.to_string()), note.clone(), 1),
        (json!("own"), note.clone(), note.clone(), 1),
        (
            json!("own"),
            json!(json!(note.to_string()).to_string()),
            note.clone(),
            1,
        ),
        (json!("own"), Value::Null, json!({}), 0),
        (json!("own"), json!(""), json!({}), 0),
        (json!(""), json!("[1]"), json!({}), 0),
    ] {
        for stream in [false, true] {
            let (id, arguments) = (id.clone(), arguments.clone());
            let (proxy, up) = pair_with_tools(move |heard| {
                if heard.follows_proxy_call() {
                    return work(heard);
                }
                let call = json!({"index": 0, "id": id, "type": "function",
                    "function": {"name": "add_reminder", "arguments": arguments}});
                let said = json!({"role": "assistant", "content": null, "tool_calls": [call]});
                let usage =
                    json!({"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105});
                let member = if stream { "delta" } else { "message" };
                let mut body = json!({"id": "c", "object": "chat.completion", "usage": usage,
                    "choices": [{"index": 0, "finish_reason": "tool_calls"}]});
                body["choices"][0][member] = said;
                let steps = if stream {
                    crate::support::stream_of([format!("data: {body}\n\ndata: [DONE]\n\n")])
                } else {
                    vec![answer("200 OK", "", body.to_string())]
                };
                ModelReply::Raw(steps)
            })
            .await;
            let agent = Agent::new(&proxy).set("stream", stream);
            let step = agent.ask().await;
            assert_eq!(step.called(), ["read_file"]);
            assert_eq!(step.number("reminders").unwrap_or(0), saved, "{sent}");
            let body = up.bodies().await.pop().unwrap();
            let [(id, arguments)] = &own_calls(&body)[..] else {
                panic!("{body}")
            };
            let parsed: Value = serde_json::from_str(arguments.as_str().unwrap()).unwrap();
            assert_eq!(parsed, sent);
            assert!(!id.is_empty());
            let result = body["messages"].as_array().unwrap().last().unwrap();
            assert_eq!(result["tool_call_id"], **id);
            up.assert_no_faults();
        }
    }
}

#[tokio::test]
async fn one_refused_round_does_not_end_recovery() {
    for stream in [false, true] {
        let refused = AtomicUsize::new(0);
        let (proxy, up) = pair(move |heard| {
            let is_first = || refused.fetch_add(1, Ordering::SeqCst) == 0;
            if heard.follows_proxy_call() && is_first() {
                ModelReply::Fails(400, "invalid_value")
            } else {
                obliging_model(heard)
            }
        })
        .await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        let prompted = first_prompted(&mut agent).await;
        assert_eq!(prompted.number("reminders"), Some(1));
        assert!(!prompted.called().is_empty() || !prompted.text().is_empty());
        // The prompt stays, and the next one comes.
        let later = agent.steps(12).await;
        assert!(later.iter().any(|it| it.injected().is_some()), "{stream}");
        assert!(later.iter().all(|it| it.number("reminders") >= Some(1)));
        up.assert_no_faults();
    }
}

const MUSING: &str = "I note once more that the keel holds.";

/// A model that calls nothing but `add_reminder`, and says `text` beside it.
async fn endless(text: &'static str) -> (RunningProxy, RunningModel) {
    pair_with_tools(move |heard| {
        let asked = heard.messages().iter().rev();
        let asked = asked.filter(|it| it["role"] == "user").count();
        if asked > 1 {
            return work(heard);
        }
        let note = json!({"content": format!("note {}", heard.nth)});
        let call = ModelCall::new(&format!("own_{}", heard.nth), "add_reminder", &note);
        ModelReply::Says(text.to_owned(), vec![call])
    })
    .await
}

#[tokio::test]
async fn texts_and_ids_of_used_up_rounds_are_not_put_back_twice() {
    let (proxy, up) = endless(MUSING).await;
    let mut before = 0;
    let mut checked = 0;
    for stream in [false, true] {
        for format in ["chat", "messages", "responses"] {
            match format {
                "chat" => {
                    let mut agent = Agent::new(&proxy).set("stream", stream);
                    agent.step().await;
                    agent.step().await;
                }
                "messages" => {
                    let mut agent = MessagesAgent::new(&proxy).set("stream", stream);
                    agent.step().await;
                    agent.step().await;
                }
                _ => {
                    let mut agent = ResponsesAgent::new(&proxy).set("stream", stream);
                    agent.keeps_ids = true;
                    agent.step().await;
                    agent.step().await;
                }
            }
            let bodies = up.bodies_from(before).await;
            before += bodies.len();
            let rounds = bodies.len() - 1;
            let last = bodies.last().unwrap();
            let text = last.to_string();
            let times = text.matches(MUSING).count();
            assert!(
                times <= rounds,
                "{format}: {times} times in {rounds} rounds: {text}"
            );
            let mut ids: Vec<&str> = Vec::new();
            for item in last["input"].as_array().into_iter().flatten() {
                ids.extend(item["id"].as_str());
            }
            let mut unique = ids.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), ids.len(), "{format}: {text}");
            checked += 1;
        }
    }
    assert_eq!(checked, 6);
    up.assert_no_faults();
}

#[tokio::test]
async fn an_answer_of_messages_without_content_has_a_text() {
    for stream in [false, true] {
        let (proxy, up) = endless("").await;
        let mut agent = MessagesAgent::new(&proxy).set("stream", stream);
        let first = agent.step().await;
        let content = first.message["content"].as_array().unwrap();
        assert!(!content.is_empty(), "{}", first.answer.text());
        assert!(!content[0]["text"].as_str().unwrap().trim().is_empty());
        let next = agent.step().await;
        assert_eq!(next.header("session"), first.header("session"));
        assert_eq!(
            next.number("reminders").unwrap_or(0),
            first.number("reminders").unwrap_or(0)
        );
        up.assert_no_faults();
    }
}
