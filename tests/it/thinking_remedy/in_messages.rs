//! The first remedy: the provider is asked to drop the thinking.

use std::sync::Arc;

use plimsoll::{config::Config, session::SessionState, store::Store};
use serde_json::{Value, json};

use super::{BoundHost, agent_with_thinking, body, drop_wish, proxy_before, read_metric};
use crate::support::{MessagesAgent, TestStore};

#[tokio::test]
async fn a_refused_request_is_sent_again_with_the_wish_that_thinking_be_dropped() {
    for stream in [false, true] {
        let up = BoundHost::default().start().await;
        let proxy = proxy_before(&up).start().await;
        let mut agent = agent_with_thinking(&proxy, "stale-1").set("stream", stream);
        let generation = agent.step().await;
        assert_eq!(generation.action("thinking-dropped"), Some("1"));
        let attempts = &generation.answer.headers["x-plimsoll-attempts"];
        assert_eq!(attempts, "2");
        // What the provider says of it passes.
        let changes = &generation.message["input_transformations"];
        assert_eq!(changes[0]["path"], "messages.1.content.0");
        let sent = up.requests(2).await;
        assert_eq!(drop_wish(&sent[0]), None);
        let wish = json!({"prefix_mismatch_behavior": "drop_block"});
        assert_eq!(drop_wish(&sent[1]), Some(wish.clone()));
        // The client's header value comes first, and nothing else of the request differs.
        let betas = sent[1].header("anthropic-beta").unwrap();
        assert_eq!(
            betas,
            "context-management-2025-06-27,thinking-binding-controls-2026-08-01"
        );
        let [before, after] = [&sent[0], &sent[1]].map(|it| String::from_utf8_lossy(&it.body));
        let binding = r#""block_binding":{"prefix_mismatch_behavior":"drop_block"}"#;
        let member = format!(r#","thinking":{{"type":"adaptive",{binding}}}"#);
        assert_eq!(after.replace(&member, ""), before);
        // Each later request of the session asks from the beginning. What was dropped is left out, since the provider would
        // drop all later thinking with it.
        let later = agent.step().await;
        assert_eq!(later.action("thinking-dropped"), None);
        assert_eq!(later.action("thinking-left-out"), Some("1"));
        assert_eq!(up.count_requests(), 3);
        assert_eq!(drop_wish(&up.last_request()), Some(wish));
        let refusals = |result| {
            format!(r#"plimsoll_thinking_refusals_total{{provider="up",result="{result}"}}"#)
        };
        assert_eq!(read_metric(&proxy, &refusals("dropped")).await, 1);
        assert_eq!(read_metric(&proxy, &refusals("unhealed")).await, 0);
        let dropped = r#"plimsoll_input_transformations_total{change="dropped",provider="up",reason="prefix_binding_mismatch"}"#;
        assert_eq!(read_metric(&proxy, dropped).await, 1);
        // Another conversation begins without it.
        MessagesAgent::new(&proxy).step().await;
        assert_eq!(drop_wish(&up.last_request()), None);
    }
}

#[tokio::test]
async fn the_wish_stands_in_what_the_client_says_of_thinking() {
    for (thinking, expected) in [
        (
            json!({"type": "adaptive", "display": "omitted"}),
            json!({"type": "adaptive", "display": "omitted",
                "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
        ),
        (
            json!({"type": "enabled", "budget_tokens": 500}),
            json!({"type": "enabled", "budget_tokens": 500,
                "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
        ),
    ] {
        let up = BoundHost::default().start().await;
        let proxy = proxy_before(&up).start().await;
        let mut agent = agent_with_thinking(&proxy, "stale-1").set("thinking", thinking);
        agent.step().await;
        assert_eq!(body(&up.last_request())["thinking"], expected);
    }
}

#[tokio::test]
async fn a_host_that_names_the_member_otherwise_gets_its_name() {
    let host = BoundHost {
        field: "mismatch_behavior",
        ..BoundHost::default()
    };
    let up = host.start().await;
    let proxy = proxy_before(&up).start().await;
    let mut agent = agent_with_thinking(&proxy, "stale-1");
    agent.steps(2).await;
    assert_eq!(up.count_requests(), 3);
    let wish = json!({"mismatch_behavior": "drop_block"});
    assert_eq!(drop_wish(&up.last_request()), Some(wish));
}

/// AWS documents one name for Bedrock, shipped clients send the other there: the words of the refusal say it, and where they
/// do not, those of the second one.
#[tokio::test]
async fn a_host_that_refuses_the_name_of_the_member_gets_the_other_once() {
    for (field, takes_binding, requests) in [
        ("mismatch_behavior", true, [3, 4]),
        // As hosts that take neither name.
        ("of_a_later_day", true, [4, 5]),
    ] {
        let host = BoundHost {
            field,
            takes_binding,
            names_field: false,
            ..BoundHost::default()
        };
        let up = host.start().await;
        let proxy = proxy_before(&up).start().await;
        let mut agent = agent_with_thinking(&proxy, "stale-1");
        for count in requests {
            agent.step().await;
            assert_eq!(up.count_requests(), count, "{field}");
        }
        let wish = drop_wish(&up.last_request());
        let expected = json!({"mismatch_behavior": "drop_block"});
        assert_eq!(wish, (field == "mismatch_behavior").then_some(expected));
    }
}

#[tokio::test]
async fn an_older_account_is_asked_once_and_what_it_says_is_counted() {
    let host = BoundHost {
        is_new_account: false,
        ..BoundHost::default()
    };
    let up = host.start().await;
    let proxy = proxy_before(&up).start().await;
    let agent = agent_with_thinking(&proxy, "stale-1");
    let agent = agent.with("anthropic-beta", super::BETA);
    let generation = agent.ask().await;
    assert_eq!(generation.header("actions"), Some("none"));
    let changes = &generation.message["input_transformations"];
    assert_eq!(changes[0]["type"], "thinking_mismatch_allowed");
    assert_eq!(up.count_requests(), 1);
    let allowed = r#"plimsoll_input_transformations_total{change="allowed",provider="up",reason="prefix_binding_mismatch"}"#;
    assert_eq!(read_metric(&proxy, allowed).await, 1);
}

#[tokio::test]
async fn the_session_remembers_it_after_a_restart() {
    let up = BoundHost::default().start().await;
    let data = tempfile::tempdir().unwrap();
    let store = Arc::new(TestStore::default());
    let place = |config: &mut Config| config.server.data_dir = data.path().into();
    let start = async || {
        let proxy = proxy_before(&up).set(place);
        let proxy = proxy.store(Arc::clone(&store) as Arc<dyn Store>);
        proxy.start().await
    };
    let mut proxy = start().await;
    let mut agent = agent_with_thinking(&proxy, "stale-1");
    let first = agent.step().await;
    proxy.stop();
    let proxy = start().await;
    agent.client = proxy.client();
    let second = agent.step().await;
    assert_eq!(first.header("session"), second.header("session"));
    assert_eq!(up.count_requests(), 3);
    assert!(drop_wish(&up.last_request()).is_some());
    // The model's name says nothing.
    let written = store.written.lock().unwrap();
    let state = SessionState::from_bytes(written.last().unwrap()).unwrap();
    assert!(state.reasoning.is_bound && state.reasoning.drop_by.is_some());
}

#[tokio::test]
async fn dropped_items_of_responses_are_counted() {
    use crate::support::{ScriptedProvider, answer, stream_of};
    let changes = json!([{"id": "rs_1", "type": "reasoning", "action": "removed",
        "reason": "prefix_mismatch"}, {"type": "of a later day"}]);
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Done.", "annotations": []}]});
    let response = |status: &str, output: Value| {
        json!({"id": "resp_1", "object": "response", "status": status, "model": "m", "output": output,
            "input_transformations": changes, "usage": {"input_tokens": 9, "output_tokens": 1}})
    };
    let whole = response("completed", json!([message]));
    for stream in [false, true] {
        let up = ScriptedProvider::start().await;
        let proxy = up.proxy().start().await;
        let events = [
            json!({"type": "response.created", "response": response("in_progress", json!([]))}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": message}),
            json!({"type": "response.completed", "response": whole}),
        ];
        let events = events.map(|event| {
            let name = event["type"].as_str().unwrap();
            format!("event: {name}\ndata: {event}\n\n")
        });
        up.script_next(if stream {
            stream_of(&events)
        } else {
            vec![answer("200 OK", "", whole.to_string())]
        });
        let client = proxy.client();
        let request = client.request(http::Method::POST, "/v1/responses");
        let request = request.header("x-plimsoll-stream-health", "comment");
        let asked = json!({"model": "m", "stream": stream, "input": "Hello"});
        let got = client.send_with(request, asked.to_string()).await;
        if stream {
            assert!(
                got.text().contains("actions=thinking-dropped=1"),
                "{}",
                got.text()
            )
        } else {
            assert_eq!(got.headers["x-plimsoll-actions"], "thinking-dropped=1")
        }
        let dropped = r#"plimsoll_input_transformations_total{change="dropped",provider="up",reason="prefix_mismatch"}"#;
        assert_eq!(read_metric(&proxy, dropped).await, 1);
    }
}
