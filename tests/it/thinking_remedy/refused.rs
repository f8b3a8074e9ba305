//! Where the refusal is the client's answer.

use serde_json::json;

use super::{
    BoundHost, agent_with_thinking,
    host::{EXTRA_INPUTS, error_body, refusal},
    proxy_before, read_metric,
};
use crate::support::{MessagesAgent, ScriptedProvider};

#[tokio::test]
async fn what_the_client_asks_for_or_the_guard_may_not_touch_is_refused_as_it_was() {
    let error = json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}});
    for (thinking, header, guard) in [
        (error, None, true),
        (json!(null), Some("off"), true),
        (json!(null), Some("dry-run"), true),
        (json!(null), None, false),
    ] {
        let host = BoundHost::default();
        let up = host.start().await;
        let proxy = proxy_before(&up).set(|config| config.guard.enabled = guard);
        let proxy = proxy.start().await;
        let mut agent = agent_with_thinking(&proxy, "stale-1");
        if !thinking.is_null() {
            agent = agent.set("thinking", thinking);
            agent = agent.with("anthropic-beta", super::BETA);
        }
        if let Some(header) = header {
            agent = agent.with("x-plimsoll-guard", header);
        }
        let answer = agent.send().await;
        assert_eq!(answer.status, 400);
        let message = host.bound_message("messages.1.content.0");
        assert_eq!(answer.text(), error_body(&message));
        assert_eq!(up.count_requests(), 1);
        let unhealed = r#"plimsoll_thinking_refusals_total{provider="up",result="unhealed"}"#;
        assert_eq!(read_metric(&proxy, unhealed).await, 1);
    }
}

#[tokio::test]
async fn what_the_guard_changed_is_not_the_clients_error() {
    let up = BoundHost::default().start().await;
    let proxy = proxy_before(&up).start().await;
    let mut agent = MessagesAgent::new(&proxy).with("anthropic-beta", super::BETA);
    agent.fields["thinking"] =
        json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}});
    agent.push("assistant", json!([call]));
    let long = "a line of the log\n".repeat(10_000);
    agent.push(
        "user",
        json!([{"type": "tool_result", "tool_use_id": "toolu_1", "content": long}]),
    );
    let thinking = json!({"type": "thinking", "thinking": "so", "signature": "stale-1"});
    agent.push(
        "assistant",
        json!([thinking, {"type": "text", "text": "One leak."}]),
    );
    agent.push("user", "Go on.");
    assert_eq!(agent.send().await.status, 200);
    assert_eq!(up.count_requests(), 2);
    let sent = super::body(&up.last_request());
    assert_eq!(sent["thinking"], agent.fields["thinking"]);
}

#[tokio::test]
async fn a_switched_off_guard_leaves_a_request_of_a_session_with_the_remedy_alone() {
    let up = BoundHost::default().start().await;
    let proxy = proxy_before(&up).start().await;
    let mut agent = agent_with_thinking(&proxy, "stale-1");
    agent.step().await;
    let agent = agent.with("x-plimsoll-guard", "off");
    assert_eq!(agent.send().await.status, 400);
    assert_eq!(up.count_requests(), 3);
    assert_eq!(super::drop_wish(&up.last_request()), None);
}

#[tokio::test]
async fn a_request_without_thinking_is_not_sent_again() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up).start().await;
    let message = BoundHost::default().bound_message("messages.1.content.0");
    up.script_next(refusal(&message));
    let answer = MessagesAgent::new(&proxy).send().await;
    assert_eq!(answer.status, 400);
    assert_eq!(up.count_requests(), 1);
}

#[tokio::test]
async fn where_no_remedy_helps_the_client_gets_the_first_refusal() {
    for stream in [false, true] {
        let up = ScriptedProvider::start().await;
        let proxy = proxy_before(&up).start().await;
        let first = BoundHost::default().bound_message("messages.1.content.0");
        up.script_next(refusal(&first));
        up.script_next(refusal(EXTRA_INPUTS));
        up.script_next(refusal("messages: thinking is missed"));
        let agent = agent_with_thinking(&proxy, "stale-1").set("stream", stream);
        let answer = agent.send().await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.text(), error_body(&first));
        assert_eq!(answer.headers["x-plimsoll-attempts"], "3");
        assert_eq!(up.count_requests(), 3);
        // Nothing was proved, so nothing is remembered.
        up.script_next(super::host::write_message(stream, None));
        agent.ask().await;
        assert_eq!(super::drop_wish(&up.last_request()), None);
    }
}

#[tokio::test]
async fn an_error_of_another_kind_after_the_remedy_is_the_answer() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up).start().await;
    let first = BoundHost::default().bound_message("messages.1.content.0");
    up.script_next(refusal(&first));
    let overloaded = error_body("Overloaded");
    up.script_next([crate::support::answer("529 ", "", &overloaded)]);
    let answer = agent_with_thinking(&proxy, "stale-1").send().await;
    assert_eq!(answer.status.as_u16(), 529);
    assert_eq!(answer.text(), overloaded);
}
