//! The health of answers, as a client sees it.

use plimsoll::config::ModelConfig;
use serde_json::{Value, json};

use crate::support::{
    ClientAnswer, DONE, FINISH, ProviderStep, ScriptedProvider, TEXT, answer, model_with_window,
    stream_of,
};

const JSON: &str = "content-type: application/json\r\n";

fn completion_of(usage: &Value) -> ProviderStep {
    let message = json!({ "role": "assistant", "content": "ok" });
    let body = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }], "usage": usage });
    answer("200 OK", JSON, body.to_string())
}

fn health_line<'a>(answer: &'a ClientAnswer, name: &str) -> Option<&'a str> {
    let value = answer.headers.get(format!("x-plimsoll-{name}"))?;
    Some(value.to_str().unwrap())
}

fn ask_model(model: &str, stream: bool) -> String {
    let messages = [("user", "x"), ("assistant", "ok"), ("user", "y")]
        .map(|(role, content)| json!({ "role": role, "content": content }));
    let messages = if stream {
        &messages[..]
    } else {
        &messages[..1]
    };
    json!({ "model": model, "stream": stream, "messages": messages }).to_string()
}

#[tokio::test]
async fn without_prompt_tokens_the_level_is_unknown() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    for usage in [
        Value::Null,
        json!({}),
        json!({ "completion_tokens": 3 }),
        json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 }),
        json!({ "prompt_tokens": "12" }),
    ] {
        up.script_next([completion_of(&usage)]);
        let got = proxy.chat(ask_model("m", false)).await;
        assert_eq!(got.status, 200);
        assert_eq!(health_line(&got, "health"), Some("unknown"), "{usage}");
        assert_eq!(
            health_line(&got, "prompt-tokens"),
            Some("unknown"),
            "{usage}"
        );
        assert_eq!(health_line(&got, "hard-util"), None, "{usage}");
        assert_eq!(health_line(&got, "optimal-util"), None, "{usage}");
    }
}

/// A stream's headers have the limit and share of the previous answer, whichever model is asked
/// now.
#[tokio::test]
async fn utilisation_is_of_the_window_in_the_header() {
    let up = ScriptedProvider::start().await;
    let window = |tokens| model_with_window(tokens);
    let proxy = up.proxy().set(|config| {
        config.models.insert("small".into(), window(10_000));
        config.models.insert("large".into(), window(100_000));
    });
    let proxy = proxy.start().await;
    up.script_next([completion_of(&json!({ "prompt_tokens": 5_000 }))]);
    let first = proxy.chat(ask_model("small", false)).await;
    assert_eq!(health_line(&first, "hard-util"), Some("0.500"));
    for model in ["large", "nobody-knows-it", "small"] {
        up.script_next(stream_of([TEXT, FINISH, DONE]));
        let next = proxy.chat(ask_model(model, true)).await;
        assert_eq!(
            health_line(&next, "session"),
            health_line(&first, "session")
        );
        assert_eq!(health_line(&next, "health-from"), Some("previous"));
        assert_eq!(health_line(&next, "prompt-tokens"), Some("5000"));
        assert_eq!(
            health_line(&next, "context-limit"),
            Some("10000"),
            "{model}"
        );
        assert_eq!(health_line(&next, "hard-util"), Some("0.500"), "{model}");
    }
}

/// An assumed window is good enough to cut by; a level from it would be a guess.
#[tokio::test]
async fn an_assumed_window_gives_neither_a_level_nor_a_prompt() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    up.script_next([completion_of(&json!({ "prompt_tokens": 60_000 }))]);
    let first = proxy.chat(ask_model("m", false)).await;
    assert_eq!(health_line(&first, "health"), Some("healthy"));
    assert_eq!(health_line(&first, "context-limit"), Some("unknown"));
    assert_eq!(health_line(&first, "hard-util"), None);
    assert_eq!(health_line(&first, "optimal-util"), Some("0.600"));
    up.script_next(stream_of([TEXT, FINISH, DONE]));
    let next = proxy.chat(ask_model("m", true)).await;
    assert_eq!(health_line(&next, "actions"), Some("none"));
    let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    assert_eq!(sent["messages"].as_array().unwrap().len(), 3, "{sent}");
    // A stream's headers have the health of the previous answer.
    assert_eq!(health_line(&next, "health"), Some("healthy"));
}

/// A configured optimal limit holds without a known window; a configured critical limit needs one.
#[tokio::test]
async fn configured_limits_of_an_unknown_window_give_caution_at_most() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().set(|config| {
        let told = ModelConfig {
            optimal_max_tokens: Some(40_000),
            critical_max_tokens: Some(50_000),
            ..ModelConfig::default()
        };
        config.models.insert("up/m".into(), told);
    });
    let proxy = proxy.start().await;
    up.script_next([completion_of(&json!({ "prompt_tokens": 60_000 }))]);
    let got = proxy.chat(ask_model("m", false)).await;
    assert_eq!(health_line(&got, "health"), Some("caution"));
    assert_eq!(health_line(&got, "optimal-util"), Some("1.500"));
    let model = proxy.client().get("/v1/models/up/m").await.json();
    assert_eq!(model["optimal_max_tokens"], 40_000);
    assert_eq!(model["critical_max_tokens"], Value::Null);
}
