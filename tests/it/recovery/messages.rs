//! Prompts in Messages: as system entries where the model takes them, and as text where its provider refuses that.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{
    ProviderStep, ReceivedRequest, RunningProxy, ScriptedProvider, answer, full_body,
    model_with_early_levels,
};

const MODEL: &str = "claude-opus-5";

fn body_of(request: &ReceivedRequest) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

fn entries(body: &Value) -> Vec<&Value> {
    body["messages"].as_array().unwrap().iter().collect()
}

fn roles(body: &Value) -> String {
    let roles = entries(body);
    let roles: Vec<_> = roles
        .iter()
        .map(|it| it["role"].as_str().unwrap())
        .collect();
    roles.join(" ")
}

/// Answers with a prompt past the optimal size.
fn reply(request: &ReceivedRequest, refuses: bool) -> Vec<ProviderStep> {
    let body = body_of(request);
    if refuses && roles(&body).contains("system") {
        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "messages: role 'system' is not supported on this model"}});
        return vec![answer("400 Bad Request", "", error.to_string())];
    }
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL,
        "content": [{"type": "text", "text": format!("Done {}.", entries(&body).len())}],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 11_000, "output_tokens": 5},
    });
    vec![answer("200 OK", "", message.to_string())]
}

/// Three requests of a client, each with the answers before it. Gives what the provider received.
async fn converse(refuses: bool) -> Vec<Value> {
    let up = ScriptedProvider::start_answering(move |request| reply(request, refuses)).await;
    let proxy = up.proxy().model(MODEL, model_with_early_levels(20_000));
    let proxy = proxy.set(|config| config.recovery.chats = true);
    let proxy: RunningProxy = proxy.start().await;
    let mut messages = vec![json!({"role": "user", "content": "Count the files."})];
    for question in ["And the lines?", "And the words?", "And?"] {
        let body = json!({"model": MODEL, "max_tokens": 500, "messages": messages});
        let client = proxy.client();
        let request = client.request(Method::POST, "/v1/messages");
        let body = full_body(Bytes::from(body.to_string()));
        let answer = client.send(request.body(body).unwrap()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        messages.push(json!({"role": "assistant", "content": answer.json()["content"]}));
        messages.push(json!({"role": "user", "content": question}));
    }
    let received = up.requests(3).await;
    received.iter().map(body_of).collect()
}

#[tokio::test]
async fn a_prompt_is_a_system_entry_and_stays_at_its_place() {
    let sent = converse(false).await;
    let sent: Vec<_> = sent.iter().map(roles).collect();
    assert_eq!(
        sent,
        [
            "user",
            "user assistant user system",
            "user assistant user system assistant user",
        ]
    );
}

#[tokio::test]
async fn a_provider_that_refuses_a_system_entry_gets_text() {
    let sent = converse(true).await;
    let roles: Vec<_> = sent.iter().map(roles).collect();
    assert_eq!(
        roles,
        [
            "user",
            "user assistant user system",
            "user assistant user user",
            // It was refused once in this session.
            "user assistant user user assistant user",
        ]
    );
    let prompt = |body: &Value| entries(body)[3]["content"].clone();
    assert_eq!(prompt(&sent[1]), prompt(&sent[2]));
    assert_eq!(prompt(&sent[2]), prompt(&sent[3]));
}
