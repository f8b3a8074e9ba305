//! The second remedy: a request without any thinking of earlier answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll::config::AddTools;
use serde_json::json;

use super::{
    BoundHost, agent_with_thinking, drop_wish, host::error_body, proxy_before, read_metric,
};
use crate::support::{Agent, COMPLETION, MessagesAgent, ScriptedProvider, answer};

const LEFT_OUT: &str = r#"plimsoll_thinking_refusals_total{provider="up",result="left_out"}"#;

#[tokio::test]
async fn a_host_that_does_not_take_the_member_is_asked_without_thinking() {
    for stream in [false, true] {
        let host = BoundHost {
            takes_binding: false,
            ..BoundHost::default()
        };
        let up = host.start().await;
        let proxy = proxy_before(&up).start().await;
        let mut agent = agent_with_thinking(&proxy, "stale-1").set("stream", stream);
        let generation = agent.step().await;
        assert_eq!(generation.answer.headers["x-plimsoll-attempts"], "3");
        let sent = up.requests(3).await;
        let asks: Vec<bool> = sent.iter().map(|it| drop_wish(it).is_some()).collect();
        assert_eq!(asks, [false, true, false]);
        assert_eq!(read_metric(&proxy, LEFT_OUT).await, 1);
        // The wish was refused, and is not sent again. What was left out stays out.
        agent.step().await;
        assert_eq!(up.count_requests(), 4);
        assert_eq!(drop_wish(&up.last_request()), None);
    }
}

#[tokio::test]
async fn a_host_that_is_known_not_to_take_the_member_is_not_asked_for_it_again() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up).start().await;
    let bound = BoundHost::default().bound_message("messages.1.content.0");
    let refuse = |message: &str| {
        up.script_next([answer("400 Bad Request", "", error_body(message))]);
    };
    for (nth, expected) in [3, 5].into_iter().enumerate() {
        refuse(&bound);
        if nth == 0 {
            refuse(super::host::EXTRA_INPUTS);
        }
        up.script_next(super::host::write_message(false, None));
        let mut agent = agent_with_thinking(&proxy, "stale-1");
        agent.fields["messages"][0]["content"] = format!("Task {nth}.").into();
        agent.step().await;
        assert_eq!(up.count_requests(), expected);
        assert_eq!(drop_wish(&up.last_request()), None);
    }
}

#[tokio::test]
async fn a_way_of_thinking_that_takes_no_wish_is_left_as_it_is() {
    for kind in ["disabled", "between_tools"] {
        let up = BoundHost::default().start().await;
        let proxy = proxy_before(&up).start().await;
        let agent = agent_with_thinking(&proxy, "stale-1").set("thinking", json!({"type": kind}));
        agent.ask().await;
        assert_eq!(up.count_requests(), 2);
        let sent = super::body(&up.last_request());
        assert_eq!(sent["thinking"], json!({"type": kind}));
    }
}

#[tokio::test]
async fn a_signature_that_is_of_no_use_is_left_out_at_once() {
    let up = BoundHost::default().start().await;
    let proxy = proxy_before(&up).start().await;
    agent_with_thinking(&proxy, "broken-1").ask().await;
    let sent = up.requests(2).await;
    assert!(sent.iter().all(|request| drop_wish(request).is_none()));
    assert_eq!(read_metric(&proxy, LEFT_OUT).await, 1);
}

/// A round of the proxy is sent with its thinking, also where the client leaves out its own.
#[tokio::test]
async fn thinking_of_a_round_alone_is_left_out_too() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up).set(|config| config.recovery.tools = AddTools::Always);
    let proxy = proxy.start().await;
    let thinking = json!({"type": "thinking", "thinking": "so", "signature": "round-1"});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "add_reminder", "input": {"text": "Tar."}});
    let round = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [thinking, call], "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 90, "output_tokens": 3}});
    up.script_next([answer("200 OK", "", round.to_string())]);
    up.script_next(super::host::write_message(false, None));
    let mut agent = MessagesAgent::new(&proxy).set("model", "claude-sonnet-5-5");
    agent.ask().await;
    assert_eq!(up.count_requests(), 2);
    agent.push("assistant", json!([{"type": "text", "text": "Done."}]));
    agent.push("user", "Go on.");
    let bound = BoundHost::default().bound_message("messages.1.content.0");
    for _ in 0..2 {
        up.script_next([answer("400 Bad Request", "", error_body(&bound))]);
    }
    up.script_next(super::host::write_message(false, None));
    agent.ask().await;
    let sent = up.requests(5).await;
    let has_thinking = |at: usize| String::from_utf8_lossy(&sent[at].body).contains("round-1");
    assert!(has_thinking(2) && has_thinking(3) && !has_thinking(4));
}

#[tokio::test]
async fn a_gateways_refusal_in_chat_completions_is_seen_in_its_wrapping() {
    for inside in [false, true] {
        let heard = AtomicUsize::new(0);
        let bound = BoundHost::default().bound_message("messages.1.content.0");
        let raw = error_body(&bound);
        let wrapped = json!({"error": {"message": "Provider returned error", "code": 400,
            "metadata": {"raw": raw, "provider_name": "Anthropic"}}});
        let up = ScriptedProvider::start_answering(move |_| {
            let status = if inside { "200 OK" } else { "400 Bad Request" };
            match heard.fetch_add(1, Ordering::Relaxed) {
                0 => vec![answer(status, "", wrapped.to_string())],
                _ => vec![answer("200 OK", "", COMPLETION)],
            }
        })
        .await;
        let profile = plimsoll::guard::profile::find_profile("openrouter").unwrap();
        let proxy = up.proxy().providers(|it| it.profile = profile);
        let proxy = proxy.start().await;
        let mut agent = Agent::new(&proxy);
        agent.messages.push(json!({"role": "assistant", "content": "One leak.",
            "reasoning_details": [{"type": "reasoning.text", "text": "so", "signature": "stale"}]}));
        agent
            .messages
            .push(json!({"role": "user", "content": "Go on."}));
        let answer = agent.send().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = up.requests(2).await;
        let has_reasoning = |at: usize| {
            sent[at]
                .body
                .windows(17)
                .any(|it| it == b"reasoning_details")
        };
        assert!(has_reasoning(0) && !has_reasoning(1));
        assert_eq!(drop_wish(&up.last_request()), None);
    }
}
