//! What clients of Responses ask beside their conversations.

use http::Method;
use plimsoll::{config::ProviderConfig, conversation::Format};
use serde_json::{Value, json};

use crate::support::{ClientAnswer, ResponsesAgent, RunningProxy, ScriptedProvider, answer};

const COUNT: &str = "/v1/responses/input_tokens";

fn speaks_chat(provider: &mut ProviderConfig) {
    provider.formats = vec![Format::Chat];
}

async fn post(proxy: &RunningProxy, path: &str, body: &Value) -> ClientAnswer {
    let client = proxy.client();
    let request = client.request(Method::POST, path);
    let request = request.header("content-type", "application/json");
    client.send_with(request, body.to_string()).await
}

fn question() -> Value {
    json!({"model": "up/m", "input": [{"role": "user", "content": "Where is the harbour?"}],
        "instructions": "You mend ships."})
}

#[tokio::test]
async fn tokens_are_counted_by_the_provider_or_estimated() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let exact = r#"{"object": "response.input_tokens", "input_tokens": 17}"#;
    up.script_next([answer("200 OK", "", exact)]);
    let counted = post(&proxy, COUNT, &question()).await;
    assert_eq!(counted.text(), exact);
    assert!(!counted.headers.contains_key("x-plimsoll-count"));
    let seen = up.last_request();
    assert_eq!(seen.line, "POST /v1/responses/input_tokens HTTP/1.1");

    let is_estimate = |got: &ClientAnswer| {
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(got.headers["x-plimsoll-count"], "estimate");
        assert_eq!(got.json()["object"], "response.input_tokens");
        let tokens = got.json()["input_tokens"].as_u64().unwrap();
        assert!((9..40).contains(&tokens), "{tokens}");
        assert!(!got.headers.contains_key("x-plimsoll-session"));
    };
    for status in [
        "404 Not Found",
        "405 Method Not Allowed",
        "501 Not Implemented",
    ] {
        up.script_next([answer(status, "", "{}")]);
        is_estimate(&post(&proxy, COUNT, &question()).await);
    }
    let unknown = r#"{"error":{"message":"The model `m` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#;
    for status in ["404 Not Found", "429 Too Many Requests"] {
        up.script_next([answer(status, "", unknown)]);
        let refused = post(&proxy, COUNT, &question()).await;
        assert_eq!(refused.status.as_str(), &status[..3]);
        assert_eq!(refused.text(), unknown);
    }

    let asked = up.count_requests();
    let proxy = up.proxy().providers(speaks_chat).start().await;
    is_estimate(&post(&proxy, COUNT, &question()).await);
    assert_eq!(up.count_requests(), asked, "it cannot count");
}

#[tokio::test]
async fn other_paths_of_responses_are_forwarded() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let compacted = r#"{"object": "response.compaction", "output": [], "usage": {}}"#;
    let long = "mast ".repeat(200_000);
    let mut body = question();
    body["input"][0]["content"] = long.into();
    up.script_next([answer("200 OK", "", compacted)]);
    let got = post(&proxy, "/v1/responses/compact", &body).await;
    assert_eq!(got.text(), compacted);
    let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    assert_eq!(sent["input"], body["input"]);

    for (method, path) in [
        (Method::GET, "/v1/responses/resp_1?include=a"),
        (Method::DELETE, "/v1/responses/resp_1"),
        (Method::GET, "/v1/responses/resp_1/input_items"),
        (Method::POST, "/v1/responses/resp_1/cancel"),
    ] {
        up.script_next([answer("200 OK", "", r#"{"id": "resp_1"}"#)]);
        let client = proxy.client();
        let got = client
            .send_with(client.request(method.clone(), path), "")
            .await;
        assert_eq!(got.text(), r#"{"id": "resp_1"}"#);
        let seen = up.last_request();
        assert_eq!(seen.line, format!("{method} {path} HTTP/1.1"));
        assert!(!got.headers.contains_key("x-plimsoll-session"));
    }
}

#[tokio::test]
async fn a_provider_that_does_not_speak_responses_is_not_asked() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().providers(speaks_chat).start().await;
    for stream in [false, true] {
        let agent = ResponsesAgent::new(&proxy).set("model", "up/m");
        let got = agent.set("stream", stream).send().await;
        got.is_error(400, "format_not_spoken");
        let message = got.json()["error"]["message"].clone();
        assert!(message.as_str().unwrap().contains("responses"), "{message}");
    }
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn what_is_no_conversation_is_forwarded_as_it_came() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let prompt = json!({"model": "up/m", "prompt": {"id": "pmpt_1"}});
    for body in [prompt, json!({"model": "up/m", "input": 5})] {
        up.script_next([answer("200 OK", "", "{}")]);
        assert_eq!(post(&proxy, "/v1/responses", &body).await.text(), "{}");
        let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        assert_eq!(sent.get("input"), body.get("input"));
        assert_eq!(sent["prompt"], body["prompt"]);
    }
    let client = proxy.client();
    let request = client.request(Method::POST, "/v1/responses");
    let got = client.send_with(request, "{\"model\":").await;
    got.is_error(400, "invalid_json");
}

#[tokio::test]
async fn an_answer_in_the_background_has_no_health_yet() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let queued =
        r#"{"id":"resp_1","object":"response","status":"queued","output":[],"usage":null}"#;
    let agent = ResponsesAgent::new(&proxy).set("model", "up/m");
    up.script_next([answer("200 OK", "", queued)]);
    let got = agent.set("background", true).send().await;
    assert_eq!(got.text(), queued);
    assert_eq!(got.headers["x-plimsoll-health"], "unknown");
}
