//! `GET providers`: the figures of providers, and who may read them.

use plimsoll::config::ModelConfig;
use serde_json::{Value, json};

use super::{ADMIN, Api, keyed};
use crate::support::{COMPLETION, ScriptedProvider, answer};

async fn provider(api: &Api, name: &str) -> Value {
    let told = api.json("providers").await;
    let providers = told["providers"].as_array().unwrap();
    let found = providers.iter().find(|one| one["name"] == name);
    found.cloned().unwrap_or(Value::Null)
}

async fn chat(api: &Api, model: &str) -> u16 {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "x"}]});
    let path = "/v1/chat/completions";
    let got = api.send(http::Method::POST, path, body.to_string()).await;
    got.status.as_u16()
}

fn small_models(config: &mut plimsoll::config::Config) {
    let window = ModelConfig {
        context_length: Some(9_000),
        provider: Some("up".into()),
        ..ModelConfig::default()
    };
    config.models.insert("up/small".into(), window.clone());
    config.models.insert("up/large".into(), window);
}

#[tokio::test]
async fn a_provider_shows_its_requests_and_breaker() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .providers(|provider| provider.breaker_failures = 2)
        .set(small_models)
        .start()
        .await;
    let api = Api::new(&proxy);
    let fresh = provider(&api, "up").await;
    let nothing = json!({"answer": 0, "busy": 0, "failed": 0, "denied": 0, "unsent": 0});
    let expected = json!({
        "name": "up", "breaker": "closed", "attempts": nothing, "retries": 0, "fallbacks": 0,
        "latency_ms": null,
        "models": [
            {"id": "up/large", "context_length": 9_000, "window_from": "configured"},
            {"id": "up/small", "context_length": 9_000, "window_from": "configured"},
        ],
    });
    assert_eq!(fresh, expected);
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(chat(&api, "up/small").await, 200);
    // A model without settings and with an unknown window.
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(chat(&api, "up/odd").await, 200);
    for _ in 0..2 {
        up.script_next([answer("500 Internal Server Error", "", "{}")]);
        assert_eq!(chat(&api, "up/small").await, 500);
    }
    let told = provider(&api, "up").await;
    let attempts = json!({"answer": 2, "busy": 0, "failed": 2, "denied": 0, "unsent": 0});
    assert_eq!(told["attempts"], attempts);
    assert_eq!(told["breaker"], "open");
    let latency = &told["latency_ms"];
    assert_eq!(latency["count"], 2, "what failed is no answer");
    assert!(latency["median"].as_f64() > Some(0.0) && latency["p95"].as_f64() < Some(20_000.0));
    let odd = json!({"id": "up/odd", "context_length": null, "window_from": "assumed"});
    assert!(told["models"].as_array().unwrap().contains(&odd), "{told}");
    let simulated = provider(&api, "simulated").await;
    assert_eq!(simulated["attempts"], nothing);
    assert_eq!(simulated["models"][0]["window_from"], "catalogue");
}

#[tokio::test]
async fn a_limited_key_sees_only_providers_it_may_use() {
    let up = ScriptedProvider::start().await;
    let proxy = keyed(up.proxy()).set(small_models);
    let proxy = proxy.start().await;
    let alice = Api::keyed(&proxy, "sk-secret-alice");
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(chat(&alice, "up/small-secretive").await, 200);
    for key in ["sk-secret-alice", ADMIN] {
        let api = Api::keyed(&proxy, key);
        let told = provider(&api, "up").await;
        assert_eq!(told["attempts"]["answer"], 1);
        assert_eq!(told["models"].as_array().unwrap().len(), 3);
        assert!(!provider(&api, "simulated").await.is_null());
    }
    let carol = Api::keyed(&proxy, "sk-secret-carol");
    let expected = json!({"providers": [{
        "name": "up", "breaker": "closed", "attempts": null, "retries": null, "fallbacks": null,
        "latency_ms": null,
        "models": [{"id": "up/small", "context_length": 9_000, "window_from": "configured"}],
    }]});
    assert_eq!(carol.json("providers").await, expected);
}
