//! The simulated provider's Messages.

use http_body_util::BodyExt as _;

use super::super::*;

async fn post(path: &str, body: impl Into<Bytes>) -> (StatusCode, String) {
    let request = Request::post(format!("http://simulated/v1{path}"));
    let response = answer_request(request.body(body.into()).unwrap()).await;
    assert!(response.headers().contains_key("request-id"));
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn request(more: &Value) -> Value {
    let mut body = json!({"model": "plimsoll-8k", "max_tokens": 1_000,
        "messages": [{"role": "user", "content": "Where is the harbour?"}]});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

async fn ask(more: Value) -> (StatusCode, Value) {
    let (status, body) = post("/messages", request(&more).to_string()).await;
    (status, serde_json::from_str(&body).unwrap())
}

/// The events of a stream, each checked to have its type as its name.
async fn events(more: Value) -> Vec<Value> {
    let mut body = request(&more);
    body["stream"] = true.into();
    let (status, body) = post("/messages", body.to_string()).await;
    assert_eq!(status, 200, "{body}");
    let events = body.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    });
    events.collect()
}

fn tools() -> Value {
    json!([{"name": "read_file", "input_schema": {"type": "object",
        "properties": {"path": {"type": "string"}}, "required": ["path"]}}])
}

#[tokio::test]
async fn a_message_has_its_shape_and_the_same_text_streamed() {
    let (status, body) = ask(json!({})).await;
    assert_eq!((status.as_u16(), &body["type"]), (200, &json!("message")));
    assert_eq!(
        (&body["role"], &body["stop_reason"]),
        (&json!("assistant"), &json!("end_turn"))
    );
    let events = events(json!({})).await;
    let types: Vec<&str> = events.iter().filter_map(|it| it["type"].as_str()).collect();
    assert_eq!(types[..3], ["message_start", "content_block_start", "ping"]);
    assert_eq!(
        types[types.len() - 3..],
        ["content_block_stop", "message_delta", "message_stop"]
    );
    let text = events.iter().filter_map(|it| it["delta"]["text"].as_str());
    assert_eq!(body["content"][0]["text"], text.collect::<String>());
    let (start, end) = (
        &events[0]["message"]["usage"],
        &events[events.len() - 2]["usage"],
    );
    assert_eq!(start["input_tokens"], body["usage"]["input_tokens"]);
    assert_eq!(end, &body["usage"]);
}

#[tokio::test]
async fn calls_are_blocks_and_a_loop_ends() {
    let mut messages = vec![json!({"role": "user", "content": "Mend the leak"})];
    for round in 0.. {
        let more = json!({"tools": tools(), "messages": messages, "system": "Be brief."});
        let (_, body) = ask(more.clone()).await;
        let block = &body["content"][0];
        if block["type"] == "text" {
            assert!((1..=7).contains(&round), "{round}");
            return;
        }
        assert_eq!(body["stop_reason"], "tool_use");
        assert!(block["input"]["path"].is_string(), "{block}");
        let events = events(more).await;
        assert_eq!(events[1]["content_block"]["id"], block["id"]);
        let pieces = events
            .iter()
            .filter_map(|it| it["delta"]["partial_json"].as_str());
        let input: Value = serde_json::from_str(&pieces.collect::<String>()).unwrap();
        assert_eq!(input, block["input"]);
        messages.push(json!({"role": "assistant", "content": body["content"]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}]}));
    }
}

#[tokio::test]
async fn a_notice_is_followed_at_the_end_of_results() {
    let notice = "Save it with add_reminder. Replies that remain, this reply included: 4.";
    let mut tools = tools();
    let own = json!({"name": "add_reminder", "input_schema": {"type": "object"}});
    tools.as_array_mut().unwrap().push(own);
    let messages = json!([{"role": "user", "content": "Mend it"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "read_file",
            "input": {"path": "a"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "ok"}]},
            {"type": "text", "text": notice}]}]);
    let (_, body) = ask(json!({"tools": tools, "messages": messages})).await;
    assert_eq!(body["content"][0]["name"], "add_reminder", "{body}");
    let mut messages = messages;
    messages[2]["content"].as_array_mut().unwrap().pop();
    let system = json!({"role": "system", "content": notice});
    messages.as_array_mut().unwrap().push(system);
    let more = json!({"tools": tools, "messages": messages, "thinking": {"type": "disabled"},
        "model": "claude-opus-4-8-32k"});
    let (_, body) = ask(more).await;
    assert_eq!(body["content"][0]["name"], "add_reminder", "{body}");
}

#[tokio::test]
async fn an_overlong_prompt_is_refused_as_at_anthropic() {
    let long = json!([{"role": "user", "content": "tide table ".repeat(5_000)}]);
    let (status, body) = ask(json!({"messages": long})).await;
    assert_eq!((status.as_u16(), &body["type"]), (400, &json!("error")));
    assert_eq!(body["error"]["type"], "invalid_request_error");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("prompt is too long: ") && message.ends_with(" > 8192 maximum"));
    let count = request(&json!({"messages": long, "max_tokens": null}));
    let (status, body) = post("/messages/count_tokens", count.to_string()).await;
    let count: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert!(message.contains(&format!(" {} tokens ", count["input_tokens"])));
}

#[tokio::test]
async fn a_cap_or_the_window_ends_an_answer() {
    assert_eq!(
        ask(json!({"max_tokens": 5})).await.1["stop_reason"],
        "max_tokens"
    );
    let filler = "tide ".repeat(8_160);
    let nearly_full =
        json!({"max_tokens": 8_000, "messages": [{"role": "user", "content": filler}]});
    let (status, body) = ask(nearly_full).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["stop_reason"], "model_context_window_exceeded");
}

#[tokio::test]
async fn only_marked_prompts_are_cached() {
    let text = "The keel of this test is its own. ".repeat(300);
    let plain = json!([{"role": "user", "content": text}]);
    let marked = json!([{"role": "user", "content": [{"type": "text", "text": text,
        "cache_control": {"type": "ephemeral"}}]}]);
    let usage = |messages: &Value| {
        let more = json!({"messages": messages});
        async move { ask(more).await.1["usage"].clone() }
    };
    usage(&plain).await;
    let first = usage(&marked).await;
    let written = first["cache_creation_input_tokens"].as_u64().unwrap();
    assert!(written >= 1_024);
    assert_eq!(first["cache_read_input_tokens"], 0);
    let second = usage(&marked).await;
    assert_eq!(second["cache_read_input_tokens"], written);
    assert_eq!(second["cache_creation_input_tokens"], 0);
    assert_eq!(second["input_tokens"], first["input_tokens"]);
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let user = json!({"role": "user", "content": "a"});
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f",
        "input": {}}]});
    let result = json!({"type": "tool_result", "tool_use_id": "1"});
    let text = json!({"type": "text", "text": "a"});
    let answer = |blocks: &[&Value]| json!({"role": "user", "content": blocks});
    let marked = json!({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}});
    for (messages, expected) in [
        (json!([user, call, answer(&[&result, &text])]), ""),
        (
            json!([user, call, answer(&[&text, &result])]),
            "must be first",
        ),
        (json!([user, call, user]), "response messages: 1"),
        (json!([user, call]), "response messages: 1"),
        (json!([user, answer(&[&result])]), "must be a response to"),
        (json!([]), "at least one message"),
        (
            json!([{"role": "user", "content": ""}]),
            "must be non-empty",
        ),
        (
            json!([{"role": "user", "content": []}]),
            "non-empty content",
        ),
        (json!([{"role": "tool", "content": "a"}]), "messages.0.role"),
        (
            json!([{"role": "system", "content": "a"}, user]),
            "not allowed here",
        ),
        (json!([1]), "messages.0.content"),
        (json!([answer(&[&marked; 5])]), "Found 5."),
    ] {
        // Others take no entry of the system.
        let model = match expected {
            "not allowed here" => "claude-opus-4-8-32k",
            _ => "plimsoll-8k",
        };
        let (status, body) = ask(json!({"messages": messages, "model": model})).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(status == 200, expected.is_empty(), "{messages}: {message}");
        assert!(message.contains(expected), "{messages}: {message}");
    }
    for (body, expected) in [
        (
            request(&json!({"max_tokens": null})),
            "max_tokens: Field required",
        ),
        (request(&json!({"model": null})), "a model parameter"),
        (json!([]), "could not parse the JSON"),
    ] {
        let (status, text) = post("/messages", body.to_string()).await;
        assert_eq!(status, 400);
        assert!(text.contains(expected), "{text}");
    }
    let (status, body) = ask(json!({"model": "other"})).await;
    assert_eq!(
        (status.as_u16(), &body["error"]["type"]),
        (404, &json!("not_found_error"))
    );
}
