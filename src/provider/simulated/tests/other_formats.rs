//! Messages and Responses.

use super::*;

/// The answer of the other APIs: its status, and the body or the events.
async fn post_to(path: &str, body: &Value) -> (StatusCode, Value) {
    post_with_version("2023-06-01", path, body).await
}

async fn post_with_version(version: &str, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = Request::post(format!("http://simulated/v1{path}"));
    let request = request.header("anthropic-version", version);
    let request = request.body(body.to_string().into()).unwrap();
    let response = answer_request(request).await;
    let status = response.status();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&text).unwrap();
    if !text.starts_with("event: ") {
        return (status, serde_json::from_str(text).unwrap());
    }
    let events = text.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    });
    (status, events.collect())
}

fn message(more: Value) -> Value {
    let mut body = request(&json!({"max_tokens": 1_000}));
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_message_has_its_shape_and_the_same_text_streamed() {
    let (status, body) = post_to("/messages", &message(json!({}))).await;
    assert_eq!((status.as_u16(), &body["type"]), (200, &json!("message")));
    assert_eq!(body["stop_reason"], "end_turn");
    let (_, events) = post_to("/messages", &message(json!({"stream": true}))).await;
    let events = events.as_array().unwrap();
    let types: Vec<&str> = events.iter().filter_map(|it| it["type"].as_str()).collect();
    assert_eq!(types[..2], ["message_start", "content_block_start"]);
    assert_eq!(
        types[types.len() - 3..],
        ["content_block_stop", "message_delta", "message_stop"]
    );
    let text = events.iter().filter_map(|it| it["delta"]["text"].as_str());
    assert_eq!(body["content"][0]["text"], text.collect::<String>());
    let end = &events[events.len() - 2]["usage"];
    assert_eq!(
        (&events[0]["message"]["usage"]["input_tokens"], end),
        (&body["usage"]["input_tokens"], &body["usage"])
    );
    let (_, cut) = post_to("/messages", &message(json!({"max_tokens": 5}))).await;
    assert_eq!(cut["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn messages_are_refused_as_at_anthropic() {
    let long = json!([{"role": "user", "content": "tide table ".repeat(5_000)}]);
    for (more, kind, words) in [
        (
            json!({"messages": long}),
            "invalid_request_error",
            "prompt is too long: 1",
        ),
        (
            json!({"messages": []}),
            "invalid_request_error",
            "at least one message",
        ),
        (
            json!({"model": "other"}),
            "not_found_error",
            "does not exist",
        ),
    ] {
        let (status, body) = post_to("/messages", &message(more)).await;
        assert!(status.is_client_error());
        assert_eq!(
            (&body["type"], &body["error"]["type"]),
            (&json!("error"), &json!(kind))
        );
        let told = body["error"]["message"].as_str().unwrap();
        assert!(told.starts_with(words) || told.contains(words), "{told}");
    }
}

#[tokio::test]
async fn only_marked_messages_are_cached() {
    let text = "The keel of this test is its own. ".repeat(300);
    let plain = json!([{"type": "text", "text": text}]);
    let marked = json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
    for (system, is_read) in [
        (&plain, false),
        (&plain, false),
        (&marked, false),
        (&marked, true),
    ] {
        let usage = post_to("/messages", &message(json!({"system": system})))
            .await
            .1["usage"]
            .clone();
        let read = usage["cache_read_input_tokens"].as_u64().unwrap();
        assert_eq!(read >= 1_024, is_read, "{usage}");
        assert!(
            usage["input_tokens"].as_u64().unwrap() + read > 1_200,
            "{usage}"
        );
    }
}

#[tokio::test]
async fn a_response_has_its_shape_and_the_same_text_streamed() {
    let mut body = json!({"model": "plimsoll-8k", "instructions": "Be brief.", "input": "Where is the harbour?"});
    let (status, whole) = post_to("/responses", &body).await;
    assert_eq!(
        (status.as_u16(), &whole["status"]),
        (200, &json!("completed"))
    );
    let text = &whole["output"][0]["content"][0]["text"];
    body["stream"] = true.into();
    let (_, events) = post_to("/responses", &body).await;
    let events = events.as_array().unwrap();
    assert_eq!(events[0]["type"], "response.created");
    let numbers = events.iter().map(|event| event["sequence_number"].as_u64());
    assert!(numbers.eq((0..events.len() as u64).map(Some)));
    let pieces = events
        .iter()
        .filter(|it| it["type"] == "response.output_text.delta");
    let pieces = pieces.filter_map(|it| it["delta"].as_str());
    assert_eq!(*text, pieces.collect::<String>());
    let last = events.last().unwrap();
    assert_eq!(
        (
            &last["response"]["output"][0]["content"],
            &last["response"]["usage"]
        ),
        (&whole["output"][0]["content"], &whole["usage"])
    );

    let (_, cut) = post_to(
        "/responses",
        &json!({"model": "plimsoll-8k", "input": "a", "max_output_tokens": 5}),
    )
    .await;
    assert_eq!(cut["status"], "incomplete");
    let items = json!([{"role": "user", "content": [{"type": "input_text", "text": "tide table ".repeat(5_000)}]}]);
    let (status, refused) = post_to(
        "/responses",
        &json!({"model": "plimsoll-8k", "input": items}),
    )
    .await;
    assert_eq!(status, 400);
    assert_eq!(refused["error"]["code"], "context_length_exceeded");
}

#[tokio::test]
async fn the_version_of_2026_refuses_sampling_documents_of_the_model_and_cited_texts_of_the_user() {
    let cited = json!({"type": "text", "text": "t", "citations": [{"type": "char_location"}]});
    let found = json!({"type": "search_result", "source": "s", "title": "t", "content": [cited]});
    let document = json!({"type": "document", "source": {"type": "text", "data": "d"}});
    let said = |role: &str, block: &Value| {
        json!({"messages": [{"role": "user", "content": "u"}, {"role": role, "content": [block]},
            {"role": "user", "content": "u"}]})
    };
    for (more, refused) in [
        (json!({}), ""),
        (json!({"temperature": 1.0}), "temperature"),
        (json!({"top_p": null}), "top_p"),
        (json!({"top_k": 5}), "top_k"),
        (said("assistant", &document), "messages.1.content: document"),
        (said("user", &document), ""),
        (said("assistant", &cited), ""),
        (said("user", &cited), "messages.1.content: citations"),
        (said("user", &found), "messages.1.content: citations"),
        (
            said(
                "user",
                &json!({"type": "text", "text": "t", "citations": []}),
            ),
            "",
        ),
    ] {
        let body = message(more);
        assert_eq!(post_to("/messages", &body).await.0, 200);
        let (status, answer) = post_with_version("2026-10-21", "/messages", &body).await;
        assert_eq!(status == 200, refused.is_empty(), "{answer}");
        if !refused.is_empty() {
            let told = answer["error"]["message"].as_str().unwrap();
            assert_eq!(told, format!("{refused}: Extra inputs are not permitted"));
        }
    }
}
