//! What the models that are named like real ones refuse.

use http_body_util::BodyExt as _;

use super::super::*;

/// The refusal's message; nothing where the request is answered.
async fn refusal(path: &str, body: &Value) -> Option<String> {
    let request = Request::post(format!("http://simulated/v1{path}"));
    let request = request.body(body.to_string().into()).unwrap();
    let response = answer_request(request).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let message = body["error"]["message"].as_str().map(str::to_owned);
    assert_eq!(status == 200, message.is_none(), "{body}");
    message
}

fn call() -> Value {
    let function = json!({"name": "read_file", "arguments": "{}"});
    json!({"id": "c", "type": "function", "function": function})
}

/// A request with a step whose answer has these members.
fn chat(model: &str, members: &Value) -> Value {
    let mut answer = json!({"role": "assistant", "content": null, "tool_calls": [call()]});
    for (key, value) in members.as_object().unwrap() {
        answer[key] = value.clone();
    }
    json!({"model": model, "messages": [{"role": "user", "content": "Go."}, answer,
        {"role": "tool", "tool_call_id": "c", "content": "ok"}]})
}

#[tokio::test]
async fn answers_must_have_their_reasoning() {
    const MISSING: &str = "in the thinking mode must be passed back";
    const EVERY: &str =
        "requires reasoning_content on every assistant message, but assistant message at index 1";
    for (model, members, words) in [
        ("deepseek-v4-flash-32k", json!({}), MISSING),
        (
            "deepseek-v4-flash-32k",
            json!({"reasoning_content": ""}),
            MISSING,
        ),
        (
            "deepseek-v4-flash-32k",
            json!({"reasoning_content": " "}),
            "",
        ),
        ("kimi-k3-32k", json!({}), EVERY),
        ("kimi-k3-32k", json!({"reasoning_content": ""}), ""),
        ("plimsoll-8k", json!({}), ""),
    ] {
        let found = refusal("/chat/completions", &chat(model, &members)).await;
        let found = found.unwrap_or_default();
        assert_eq!(found.is_empty(), words.is_empty(), "{model}: {found}");
        assert!(found.contains(words), "{model}: {found}");
    }
    let mut off = chat("deepseek-v4-flash-32k", &json!({}));
    off["thinking"] = json!({"type": "disabled"});
    assert_eq!(refusal("/chat/completions", &off).await, None);
    let item = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let input = |reasoning: &[Value]| {
        let mut input = vec![json!({"role": "user", "content": "Go."})];
        input.extend_from_slice(reasoning);
        input.push(item.clone());
        input.push(json!({"type": "function_call_output", "call_id": "c", "output": "ok"}));
        json!({"model": "deepseek-v4-flash-32k", "input": input})
    };
    let reasoning = |text: &str| {
        json!({"type": "reasoning", "summary": [],
            "content": [{"type": "reasoning_text", "text": text}]})
    };
    for (entries, is_refused) in [
        (vec![], true),
        (vec![reasoning("")], true),
        (vec![reasoning("deep")], false),
    ] {
        let found = refusal("/responses", &input(&entries)).await;
        assert_eq!(found.is_some_and(|it| it.contains(MISSING)), is_refused);
    }
}

#[tokio::test]
async fn the_first_call_of_the_running_turn_must_be_signed() {
    let bare = chat("gemini-3.8-flash-32k", &json!({}));
    let found = refusal("/chat/completions", &bare).await;
    assert!(found.unwrap().contains("missing a thought_signature"));
    let mut signed = bare.clone();
    signed["messages"][1]["tool_calls"][0]["extra_content"] =
        json!({"google": {"thought_signature": "skip_thought_signature_validator"}});
    assert_eq!(refusal("/chat/completions", &signed).await, None);
    let mut later = bare;
    let messages = later["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "user", "content": "And now?"}));
    assert_eq!(refusal("/chat/completions", &later).await, None);
}

#[tokio::test]
async fn members_of_the_request_are_refused_by_the_model() {
    let user = json!([{"role": "user", "content": "Go."}]);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let own = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    let begun = json!([user[0], {"role": "assistant", "content": "So"}]);
    let told = json!([user[0], {"role": "system", "content": "Be brief."}]);
    let (chat, messages) = ("/chat/completions", "/messages");
    for (path, refuses, takes, members, words) in [
        (
            chat,
            "gpt-6.2-sol-32k",
            "plimsoll-8k",
            json!({"max_tokens": 900}),
            "'max_tokens' is not supported",
        ),
        (
            chat,
            "gpt-6.2-sol-32k",
            "kimi-k3-32k",
            json!({"tools": tools}),
            "Function tools",
        ),
        (
            messages,
            "claude-sonnet-5-5-32k",
            "claude-opus-4-8-32k",
            json!({"tools": own, "tool_choice": {"type": "any"}}),
            "Thinking may not be enabled",
        ),
        (
            messages,
            "claude-sonnet-5-5-32k",
            "plimsoll-8k",
            json!({"messages": begun}),
            "assistant message prefill",
        ),
        (
            messages,
            "plimsoll-8k",
            "claude-opus-4-8-32k",
            json!({"messages": told}),
            "messages.1.role",
        ),
    ] {
        let mut body = json!({"messages": user});
        if path == messages {
            body["max_tokens"] = 900.into();
        }
        for (key, value) in members.as_object().unwrap() {
            body[key] = value.clone();
        }
        body["model"] = refuses.into();
        let found = refusal(path, &body).await.unwrap_or_default();
        assert!(found.contains(words), "{refuses}: {found:?}");
        body["model"] = takes.into();
        assert_eq!(refusal(path, &body).await, None, "{takes}");
    }
}
