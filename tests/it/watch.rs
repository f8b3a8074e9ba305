//! Readiness and metrics.

use http::Method;
use plimsoll::config::Auth;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::{
    Agent, AgentGeneration, COMPLETION, ClientAnswer, ModelCall, ModelReply, ModelSetup,
    ProviderStep, ProxyBuilder, ReceivedRequest, RunningProxy, SECRET, ScriptedProvider, answer,
    model_with_window,
};

const ASK: &str = r#"{"model":"up/m","messages":[{"role":"user","content":"a prompt"}]}"#;

async fn ask(proxy: &RunningProxy, path: &str, headers: &[(&str, &str)]) -> ClientAnswer {
    let client = proxy.client();
    let mut request = client.request(Method::GET, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send_with(request, "").await
}

fn completion_of(metrics: &ClientAnswer, line: &str) {
    let text = metrics.text();
    assert!(text.lines().any(|found| found == line), "{line}\n{text}");
}

#[tokio::test]
async fn readiness_lists_the_breakers() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let got = ask(&proxy, "/readyz", &[]).await;
    assert_eq!(got.status, 200);
    let closed = json!({"breaker": "closed"});
    let expected = json!({"status": "ready", "providers": {"simulated": closed, "up": closed}});
    assert_eq!(got.json(), expected);
}

#[tokio::test]
async fn metrics_of_every_provider_exist_from_the_start() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let got = ask(&proxy, "/metrics", &[]).await;
    assert_eq!(got.status, 200);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(got.headers["content-type"], kind);
    for line in [
        r#"plimsoll_breaker_state{provider="simulated"} 0"#,
        r#"plimsoll_breaker_state{provider="up"} 0"#,
        r#"plimsoll_provider_attempts_total{outcome="unsent",provider="up"} 0"#,
        r#"plimsoll_silent_truncations_total{provider="up"} 0"#,
        "plimsoll_requests_in_flight 0",
    ] {
        completion_of(&got, line);
    }
    assert!(!got.text().contains(&up.address.to_string()));
    let foreign = ask(&proxy, "/metrics", &[("host", "example.com")]).await;
    foreign.is_error(403, "foreign_host");
    let foreign = ask(&proxy, "/metrics", &[("origin", "https://example.com")]).await;
    foreign.is_error(403, "foreign_origin");
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_answer_ends() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    up.script_next([ProviderStep::Stall, answer("200 OK", "", COMPLETION)]);
    let client = proxy.client();
    let chat = client.chat(ASK);
    tokio::pin!(chat);
    tokio::select! {
        _ = &mut chat => panic!("there is no answer yet"),
        _ = up.requests(1) => {}
    }
    let got = ask(&proxy, "/metrics", &[]).await;
    completion_of(&got, "plimsoll_requests_in_flight 1");
    assert!(!got.text().contains("a prompt"));
    up.release_stalled();
    assert_eq!(chat.await.status, 200);
    // The last byte may be read before the proxy has ended the request.
    crate::support::within_time(async {
        loop {
            let got = ask(&proxy, "/metrics", &[]).await;
            if got.text().contains("plimsoll_requests_in_flight 0") {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn with_client_keys_metrics_need_a_key_that_says_so() {
    let all = format!("{SECRET}-all");
    let some = format!("{SECRET}-some");
    let admin = format!("{SECRET}-admin");
    let proxy = ProxyBuilder::new()
        .client("all", &all, &["*"])
        .client("some", &some, &[])
        .providers(|provider| provider.auth = Auth::None)
        .set(|config| config.admin.key_sha256 = Some(Sha256::digest(&admin).into()))
        .set(|config| config.clients.get_mut("some").unwrap().metrics = true)
        .start()
        .await;
    let metrics = async |key: &str| {
        let value = format!("Bearer {key}");
        ask(&proxy, "/metrics", &[("authorization", &value)]).await
    };
    ask(&proxy, "/metrics", &[])
        .await
        .is_error(401, "invalid_api_key");
    metrics("wrong").await.is_error(401, "invalid_api_key");
    metrics(&all).await.is_error(403, "path_not_allowed");
    for key in [&some, &admin] {
        completion_of(&metrics(key).await, "plimsoll_requests_in_flight 0");
    }
    assert_eq!(ask(&proxy, "/readyz", &[]).await.status, 200);
}

/// The value of a counter without labels.
async fn counter_value(proxy: &RunningProxy, name: &str) -> usize {
    let got = ask(proxy, "/metrics", &[]).await;
    let name = format!("{name} ");
    let line = got
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(&*name));
    line.unwrap().parse().unwrap()
}

/// A session of so many steps with a window of 20,000 tokens and results of some hundred; returns
/// the actions of its last answer.
async fn run_session(
    steps: usize,
    set: impl FnOnce(&mut plimsoll::config::Config),
) -> (RunningProxy, AgentGeneration) {
    let up = ModelSetup::new(20_000).start(|heard| {
        let path = json!({"path": format!("deck_{}.rs", heard.nth)});
        let name = heard.offered_tools().first().unwrap().to_owned();
        ModelReply::calls([ModelCall::new(&format!("call_{}", heard.nth), name, &path)])
    });
    let up = up.await;
    let proxy = up.provider.proxy().set(|config| {
        config.models.insert("m".into(), model_with_window(20_000));
        config.recovery.enabled = false;
        set(config);
    });
    let proxy = proxy.start().await;
    let mut agent = Agent::new(&proxy);
    agent.result = |nth| format!("plank {nth} of oak, tarred and nailed; ").repeat(50);
    let mut last = agent.step().await;
    for _ in 1..steps {
        last = agent.step().await;
    }
    (proxy, last)
}

#[tokio::test]
async fn folded_messages_are_counted_once() {
    let (proxy, last) = run_session(60, |config| config.guard.clear.enabled = false).await;
    let dropped: usize = last.action("dropped").unwrap().parse().unwrap();
    assert_eq!(
        counter_value(&proxy, "plimsoll_dropped_messages_total").await,
        dropped
    );
    let folds = counter_value(&proxy, "plimsoll_folds_total").await;
    assert!((2..20).contains(&folds), "{folds}");
    assert_eq!(counter_value(&proxy, "plimsoll_sessions_total").await, 1);
}

#[tokio::test]
async fn cleared_messages_are_counted_once() {
    let (proxy, last) = run_session(30, |config| config.guard.clear.at = Some(0.2)).await;
    let cleared: usize = last.action("cleared").unwrap().parse().unwrap();
    assert!(last.action("dropped").is_none() && cleared > 5);
    assert_eq!(
        counter_value(&proxy, "plimsoll_cleared_messages_total").await,
        cleared
    );
}

#[tokio::test]
async fn truncated_results_are_counted_once() {
    let up = ScriptedProvider::start_answering(|_: &ReceivedRequest| {
        vec![answer("200 OK", "", COMPLETION)]
    })
    .await;
    let proxy = up.proxy().start().await;
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let mut messages = vec![
        json!({"role": "user", "content": "go"}),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "c", "content": "x".repeat(70_000)}),
    ];
    for user in ["on", "and on"] {
        let body = json!({"model": "up/m", "messages": messages}).to_string();
        let answer = proxy.chat(body).await;
        assert_eq!(answer.headers["x-plimsoll-actions"], "truncated=1");
        messages.push(json!({"role": "assistant", "content": "hi"}));
        messages.push(json!({"role": "user", "content": user}));
    }
    assert_eq!(counter_value(&proxy, "plimsoll_truncations_total").await, 1);
    let sent = String::from_utf8(up.last_request().body).unwrap();
    let told = sent.split(" characters truncated").next().unwrap();
    let told = told.rsplit('[').next().unwrap();
    let cut: usize = told.parse().unwrap();
    let counted = counter_value(&proxy, "plimsoll_cut_characters_total").await;
    // The marker takes some room.
    assert!((cut - 100..=cut).contains(&counted), "{counted} of {cut}");
}
