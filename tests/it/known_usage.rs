//! What a provider counted comes before what was estimated: counts far below the estimate, and refusals of prompts of which
//! one part is far denser than its estimate.

use http::Method;
use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};

use crate::support::{
    ClientAnswer, RunningProxy,
    count::TokenCounter,
    counting_provider::{CountRule, CountingProvider},
    full_body, model_with_window, words,
};

/// Paths and keys of the formats, and profiles that may count less than was sent.
const WAYS: [(&str, &str, &str); 4] = [
    ("/v1/chat/completions", "messages", "ollama"),
    ("/v1/chat/completions", "messages", "openai"),
    ("/v1/messages", "messages", "anthropic"),
    ("/v1/responses", "input", "openai"),
];

const NO_TOOLS: CountRule = CountRule {
    window: 8_192,
    tools: false,
    sealed: 0,
    cached: 0,
};

async fn proxy_before(up: &CountingProvider, profile: &str, window: u32) -> RunningProxy {
    let profile = find_profile(profile).unwrap();
    let proxy = up.provider.proxy();
    let proxy = proxy.providers(|provider| provider.profile = profile);
    let proxy = proxy.model("m", model_with_window(window));
    let proxy = proxy.set(|config| {
        config.recovery.enabled = false;
        config.guard.reserve_tokens = None;
        config.guard.chars_per_token = None;
    });
    proxy.start().await
}

async fn send(proxy: &RunningProxy, path: &str, body: &Value) -> ClientAnswer {
    let client = proxy.client();
    let request = client.request(Method::POST, path);
    let request = request.header("content-type", "application/json");
    let body = full_body(body.to_string());
    let got = client.send(request.body(body).unwrap()).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got
}

fn actions(got: &ClientAnswer) -> String {
    got.headers["x-plimsoll-actions"]
        .to_str()
        .unwrap()
        .to_owned()
}

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

/// Tools of some 5,000 tokens as JSON, in the shape of the path.
fn tools(path: &str) -> Value {
    let tool = |nth: usize| {
        let schema = json!({"type": "object",
            "properties": {"path": {"type": "string", "description": words(160, nth)}}});
        let name = format!("tool_{nth}");
        match path {
            "/v1/messages" => json!({"name": name, "input_schema": schema}),
            "/v1/responses" => json!({"type": "function", "name": name, "parameters": schema}),
            _ => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
        }
    };
    (0..28).map(tool).collect()
}

fn request(path: &str, key: &str, entries: &[Value]) -> Value {
    let mut body = json!({"model": "m", "tools": tools(path), key: entries});
    if path == "/v1/messages" {
        body["max_tokens"] = json!(256);
    }
    body
}

/// Asks `turns` questions of some tokens. Gives the actions of each.
async fn chat(proxy: &RunningProxy, path: &str, key: &str, turns: usize) -> Vec<String> {
    let (mut entries, mut done) = (Vec::new(), Vec::new());
    for nth in 0..turns {
        entries.push(says("user", &words(220, nth)));
        let got = send(proxy, path, &request(path, key, &entries)).await;
        done.push(actions(&got));
        entries.push(says("assistant", "Well."));
    }
    done
}

#[tokio::test]
async fn tools_that_are_not_counted_cut_nothing() {
    for (path, key, profile) in WAYS {
        let up = CountingProvider::start(NO_TOOLS).await;
        let proxy = proxy_before(&up, profile, 8_192).await;
        let done = chat(&proxy, path, key, 40).await;
        let counts = up.counts();
        let first = done.iter().position(|it| it.contains("dropped="));
        let first = first.expect("the chat is longer than the window");
        println!("{path} {profile}: cut at {first}, {counts:?}");
        assert!(counts[first - 1] > 5_500, "{path} {profile}: {counts:?}");
        assert!(!done.iter().any(|it| it.contains("provider-truncated")));
        assert_eq!(counts.len(), 40, "none was refused: {counts:?}");
    }
}

#[tokio::test]
async fn a_chat_beside_tools_beyond_the_window_goes_on_whole() {
    // Counts that small may be those of cache misses where a profile says so.
    for (path, key, profile) in WAYS.into_iter().skip(1) {
        let rule = CountRule {
            window: 2_048,
            ..NO_TOOLS
        };
        let up = CountingProvider::start(rule).await;
        let proxy = proxy_before(&up, profile, 2_048).await;
        let mut entries = Vec::new();
        for nth in 0..10 {
            entries.push(says("user", &words(60, nth)));
            send(&proxy, path, &request(path, key, &entries)).await;
            entries.push(says("assistant", "Well."));
        }
        let sent: Value = serde_json::from_slice(&up.provider.last_request().body).unwrap();
        let sent = sent[key].as_array().unwrap().len();
        // The first two requests are cut by the estimate, and what was cut stays so.
        assert!(
            sent >= 15,
            "{path} {profile}: {sent} of 19, {:?}",
            up.counts()
        );
    }
}

#[tokio::test]
async fn a_count_with_cached_tokens_is_believed_at_once() {
    for (path, key, profile) in WAYS {
        for cached in [0, 64] {
            let up = CountingProvider::start(CountRule { cached, ..NO_TOOLS }).await;
            let proxy = proxy_before(&up, profile, 8_192).await;
            let mut entries = vec![
                says("user", &words(200, 0)),
                says("assistant", "Well."),
                says("user", &words(200, 1)),
            ];
            send(&proxy, path, &request(path, key, &entries)).await;
            entries.push(says("assistant", "Well."));
            for nth in 2..6 {
                entries.push(says("user", &words(900, nth)));
                entries.push(says("assistant", "Well."));
            }
            entries.push(says("user", "Go on."));
            let got = send(&proxy, path, &request(path, key, &entries)).await;
            let is_cut = actions(&got).contains("dropped=");
            // By the estimate it is cut where tools weigh their JSON.
            assert!(
                is_cut == (cached == 0 && profile != "openai"),
                "{path} {profile} {cached}: {:?}",
                up.counts()
            );
        }
    }
}

/// An answer whose reasoning is encrypted, in the shape of the path, and whether it is one entry.
fn sealed_answer(path: &str, bytes: usize) -> Vec<Value> {
    let data = "QmFzZTY0".repeat(bytes / 8);
    match path {
        "/v1/messages" => vec![json!({"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": data}, {"type": "text", "text": "Well."}]})],
        "/v1/responses" => vec![
            json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": data}),
            json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "Well.", "annotations": []}]}),
        ],
        _ => vec![json!({"role": "assistant", "content": "Well.",
            "reasoning_details": [{"type": "reasoning.encrypted", "data": data, "id": "rs_1"}]})],
    }
}

#[tokio::test]
async fn a_refusal_for_dense_reasoning_leaves_the_rest() {
    let counter = TokenCounter::o200k();
    for (path, key, profile) in WAYS.into_iter().skip(1) {
        for place in [1, 8, 15] {
            let rule = CountRule {
                sealed: 60,
                ..NO_TOOLS
            };
            let up = CountingProvider::start(rule).await;
            let proxy = proxy_before(&up, profile, 8_192).await;
            let mut entries = Vec::new();
            for nth in 0..18 {
                entries.push(says("user", &words(180, nth)));
                if nth == place {
                    entries.extend(sealed_answer(path, 16_000))
                } else {
                    entries.push(says("assistant", "Well."))
                }
            }
            entries.push(says("user", "Go on."));
            let mut body = json!({"model": "m", key: entries});
            if path == "/v1/messages" {
                body["max_tokens"] = json!(256);
            }
            assert!(rule.count(&body, &counter) > 12_000);
            let got = send(&proxy, path, &body).await;
            let counts = up.counts();
            println!("{path} {place}: {counts:?} {}", actions(&got));
            assert!(
                actions(&got).contains("refitted=1"),
                "{path} {place}: {counts:?}"
            );
            // The cut goes as far as the reasoning, and what stands behind it stays.
            let least = [3_000, 2_000, 1_200][place / 7];
            assert!(counts[1] > least, "{path} {place}: {counts:?}");
            // The next request builds on the count of this one.
            let list = body[key].as_array_mut().unwrap();
            list.extend([says("assistant", "Well."), says("user", &words(900, 30))]);
            let got = send(&proxy, path, &body).await;
            let counts = up.counts();
            assert!(
                !actions(&got).contains("refitted="),
                "{path} {place}: {counts:?}"
            );
            assert!(counts[2] > counts[1] + 800, "{path} {place}: {counts:?}");
        }
    }
}
