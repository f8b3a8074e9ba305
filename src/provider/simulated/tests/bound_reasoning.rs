//! Reasoning of the models that are named like those whose reasoning is bound.

use http_body_util::BodyExt as _;

use super::super::*;

async fn post(path: &str, headers: &[(&str, &str)], body: &Value) -> (StatusCode, String) {
    let mut request = Request::post(format!("http://simulated/v1{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.to_string().into()).unwrap();
    let response = answer_request(request).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

const BETA: &[(&str, &str)] = &[("anthropic-beta", "thinking-binding-controls-2026-08-01")];

/// A conversation of three steps in Messages.
async fn talk(model: &str) -> Value {
    let mut body = json!({"model": model, "max_tokens": 1_000, "system": "You help.",
        "messages": [{"role": "user", "content": "Where is the harbour?"}],
        "tools": [{"name": "read_file", "input_schema": {"type": "object"}}]});
    for step in 0..3 {
        let (status, answer) = post("/messages", &[], &body).await;
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["content"][0]["type"], "thinking");
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": answer["content"]}));
        messages.push(json!({"role": "user", "content": [{"type": "tool_result",
            "tool_use_id": answer["content"][1]["id"], "content": format!("result {step}")}]}));
    }
    body
}

#[tokio::test]
async fn thinking_behind_a_change_is_refused() {
    let mut body = talk("claude-sonnet-5-5-32k").await;
    body["messages"][2]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
    body["messages"][0]["content"] = json!([{"type": "text", "text": "Where is the harbour?"}]);
    assert_eq!(post("/messages", &[], &body).await.0, 200);
    body["messages"][2]["content"][0]["content"] = "cleared".into();
    for path in ["/messages", "/messages/count_tokens"] {
        let (status, error) = post(path, &[], &body).await;
        let error: Value = serde_json::from_str(&error).unwrap();
        assert_eq!(
            (status, &error["error"]["type"]),
            (StatusCode::BAD_REQUEST, &json!("invalid_request_error"))
        );
        assert_eq!(
            error["error"]["message"],
            "messages.3.content.0: Invalid `signature` in `thinking` block. The block is \
            bound to a different conversation. Remove the block, or set \
            `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting requires the \
            `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
        );
    }
    assert_eq!(
        post("/messages", &[("x-api-key", "old-account")], &body)
            .await
            .0,
        200
    );
    body["model"] = "claude-opus-4-8-32k".into();
    assert_eq!(post("/messages", &[], &body).await.0, 200);
}

#[tokio::test]
async fn thinking_may_go_from_the_start_but_not_from_the_middle() {
    let whole = talk("claude-sonnet-5-5-32k").await;
    for (entry, expected) in [(1, 200), (3, 400), (5, 200)] {
        let mut body = whole.clone();
        body["messages"][entry]["content"]
            .as_array_mut()
            .unwrap()
            .remove(0);
        assert_eq!(post("/messages", &[], &body).await.0, expected, "{entry}");
    }
    let mut body = whole;
    body["messages"][1]["content"][0]["thinking"] = "Another.".into();
    let (_, error) = post("/messages", &[], &body).await;
    assert!(error.contains("messages.1.content.0: Invalid `signature` in `thinking` block\""));
}

#[tokio::test]
async fn a_request_may_ask_for_stale_thinking_to_be_dropped() {
    let mut body = talk("claude-sonnet-5-5-32k").await;
    body["system"] = "Another.".into();
    body["thinking"] =
        json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    let (_, error) = post("/messages", &[], &body).await;
    assert!(error.contains("block_binding: Extra inputs are not permitted"));
    let (_, answer) = post("/messages", BETA, &body).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let told = answer["input_transformations"].as_array().unwrap();
    assert_eq!(told.len(), 3);
    assert_eq!(
        told[0],
        json!({"type": "thinking_dropped", "path": "messages.1.content.0",
        "reason": "prefix_binding_mismatch"})
    );
    body["stream"] = true.into();
    let (_, events) = post("/messages", BETA, &body).await;
    let start = events
        .lines()
        .find(|line| line.contains("\"message_start\""))
        .unwrap();
    assert!(start.contains(&answer["input_transformations"].to_string()));
    let signature = answer["content"][0]["signature"].as_str().unwrap();
    assert!(
        events.contains(&format!(r#""delta":{{"signature":"{signature}""#)),
        "{events}"
    );
}

#[tokio::test]
async fn stale_reasoning_of_responses_is_left_out_and_told() {
    let mut body = json!({"model": "gpt-6.2-sol-32k", "input": "Where is the harbour?",
        "tools": [{"type": "function", "name": "read_file", "parameters": {"type": "object"}}]});
    let (_, answer) = post("/responses", &[], &body).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["input_transformations"], json!([]));
    assert_eq!(answer["output"][0]["type"], "reasoning");
    let mut input = vec![json!({"role": "user", "content": "Where is the harbour?"})];
    input.extend(answer["output"].as_array().unwrap().iter().cloned());
    if let Some(call) = answer["output"][1]["call_id"].as_str() {
        input.push(json!({"type": "function_call_output", "call_id": call, "output": "there"}));
    }
    body["input"] = input.into();
    let (_, next) = post("/responses", &[], &body).await;
    let next: Value = serde_json::from_str(&next).unwrap();
    assert_eq!(next["input_transformations"], json!([]));
    body["input"][0]["content"] = "Where is the quay?".into();
    body["stream"] = true.into();
    let (_, events) = post("/responses", &[], &body).await;
    let dropped = json!([{"type": "reasoning", "action": "removed", "reason": "prefix_mismatch", "id": answer["output"][0]["id"]}]);
    assert!(
        events.contains(&format!("\"input_transformations\":{dropped}")),
        "{events}"
    );
    assert!(events.contains("encrypted_content"));
}

#[tokio::test]
async fn a_tool_that_an_entry_brings_changes_nothing_before_it() {
    let mut body = talk("claude-sonnet-5-5-32k").await;
    let definition = json!({"name": "recall", "input_schema": {"type": "object"}});
    let added = json!({"type": "tool_addition",
        "tool": {"type": "tool_definition", "definition": definition}});
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "system", "content": [added]}));
    let (status, error) = post("/messages", &[], &body).await;
    assert_eq!(status, 400, "{error}");
    let betas = [("anthropic-beta", "inline-tools-2026-09-15")];
    let (status, answer) = post("/messages", &betas, &body).await;
    assert_eq!(status, 200, "{answer}");
    body["tools"]
        .as_array_mut()
        .unwrap()
        .push(definition.clone());
    let (status, error) = post("/messages", &betas, &body).await;
    assert_eq!(status, 400, "{error}");
    body["tools"][1]["defer_loading"] = true.into();
    let (status, answer) = post("/messages", &betas, &body).await;
    assert_eq!(status, 200, "{answer}");
}
