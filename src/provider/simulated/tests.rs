//! The simulated provider, through its requests.

mod other_formats;

use http_body_util::BodyExt as _;

use super::*;

async fn post(body: impl Into<Bytes>) -> (StatusCode, String) {
    let request = Request::post("http://simulated/any/v1/chat/completions");
    let response = answer_request(request.body(body.into()).unwrap()).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn ask(more: Value) -> (StatusCode, Value) {
    let (status, body) = post(request(&more).to_string()).await;
    (status, serde_json::from_str(&body).unwrap())
}

fn request(more: &Value) -> Value {
    let mut body = json!({
        "model": "plimsoll-8k",
        "messages": [{"role": "user", "content": "Where is the harbour?"}],
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

async fn events(more: Value) -> Vec<Value> {
    let mut body = request(&more);
    body["stream"] = true.into();
    let (status, body) = post(body.to_string()).await;
    assert_eq!(status, 200, "{body}");
    let mut events: Vec<&str> = body.split_terminator("\n\n").collect();
    assert_eq!(events.pop(), Some("data: [DONE]"));
    let data = events
        .iter()
        .map(|event| event.strip_prefix("data: ").unwrap());
    data.map(|event| serde_json::from_str(event).unwrap())
        .collect()
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object",
        "properties": {"path": {"type": "string"}}, "required": ["path"]}}}])
}

#[tokio::test]
async fn a_completion_has_its_shape_and_is_the_same_again() {
    let (status, body) = ask(json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(body["object"], "chat.completion");
    let choice = &body["choices"][0];
    assert_eq!(choice["finish_reason"], "stop");
    assert!(choice["message"]["content"].as_str().unwrap().len() > 20);
    let usage = &body["usage"];
    let sum =
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], sum);
    assert_eq!(ask(json!({})).await.1, body);
    assert_ne!(ask(json!({"user": "x"})).await.1["id"], body["id"]);
}

#[tokio::test]
async fn a_stream_has_the_same_text_as_a_completion() {
    let (_, whole) = ask(json!({})).await;
    let events = events(json!({})).await;
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    assert_eq!(
        events.last().unwrap()["choices"][0]["finish_reason"],
        "stop"
    );
    assert!(events.iter().all(|event| event.get("usage").is_none()));
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
}

#[tokio::test]
async fn usage_is_streamed_only_when_asked_for() {
    let (_, whole) = ask(json!({})).await;
    let events = events(json!({"stream_options": {"include_usage": true}})).await;
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"], whole["usage"]);
    assert!(
        others
            .iter()
            .all(|event| event["usage"].is_null() && event["choices"][0].is_object())
    );
}

#[tokio::test]
async fn calls_are_streamed_in_fragments() {
    let more = json!({"tools": tools(), "tool_choice": "required"});
    let (_, whole) = ask(more.clone()).await;
    let events = events(more).await;
    for choice in whole["choices"].as_array().unwrap() {
        for (nth, call) in choice["message"]["tool_calls"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
        {
            let pieces: Vec<&Value> = events
                .iter()
                .filter(|event| event["choices"][0]["index"] == choice["index"])
                .flat_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array())
                .flatten()
                .filter(|piece| piece["index"] == nth)
                .collect();
            assert_eq!(pieces[0]["id"], call["id"]);
            assert_eq!(pieces[0]["function"]["name"], "read_file");
            assert!(pieces.len() > 2 && pieces[1..].iter().all(|piece| piece.get("id").is_none()));
            let arguments = pieces
                .iter()
                .filter_map(|piece| piece["function"]["arguments"].as_str());
            assert_eq!(call["function"]["arguments"], arguments.collect::<String>());
        }
        assert_eq!(choice["finish_reason"], "tool_calls");
    }
}

#[tokio::test]
async fn an_overlong_prompt_is_refused_as_at_openai() {
    let long = json!([{"role": "user", "content": "tide table ".repeat(5_000)}]);
    for (more, expected) in [
        (
            json!({"messages": long, "tools": tools()}),
            "However, your messages resulted in ",
        ),
        (
            json!({"max_completion_tokens": 8_192}),
            "However, you requested ",
        ),
        (
            json!({"max_tokens": 4_294_967_295u32}),
            "However, you requested 4294967295 tokens (",
        ),
    ] {
        let (status, body) = ask(more).await;
        assert_eq!(status, 400);
        assert_eq!(body["error"]["code"], "context_length_exceeded");
        let message = body["error"]["message"].as_str().unwrap();
        let start = "This model's maximum context length is 8192 tokens. ";
        assert!(
            message.starts_with(&format!("{start}{expected}")),
            "{message}"
        );
    }
    let (_, small) = ask(json!({})).await;
    let room = 8_192 - small["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(ask(json!({"max_tokens": room})).await.0, 200);
    assert_eq!(ask(json!({"max_tokens": room + 1})).await.0, 400);
    assert_eq!(
        ask(json!({"messages": long, "model": "simulated/plimsoll-32k"}))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn the_start_of_a_grown_conversation_is_cached() {
    let text = "The rudder of this test is its own. ".repeat(300);
    let mut messages = vec![json!({"role": "user", "content": text})];
    let cached = |body: Value| body["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    let (_, first) = ask(json!({"messages": messages, "tools": tools()})).await;
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(cached(first), Some(0));
    messages.push(json!({"role": "assistant", "content": "Aye."}));
    messages.push(json!({"role": "user", "content": "Again."}));
    let hit = cached(ask(json!({"messages": messages, "tools": tools()})).await.1).unwrap();
    assert!(
        hit >= 1_024 && hit <= prompt && hit % 128 == 0 && hit + 256 > prompt,
        "{hit} of {prompt}"
    );
    let other = json!({"messages": messages, "tools": tools(), "model": "plimsoll-32k"});
    assert_eq!(cached(ask(other).await.1), Some(0));
}

#[tokio::test]
async fn invalid_json_is_refused() {
    for body in [
        "",
        "{",
        "null",
        "[]",
        "\u{0}",
        "{\"model\": \"\\u12\"}",
        "\\u",
        "\"\\",
    ] {
        let (status, text) = post(body.as_bytes().to_vec()).await;
        assert_eq!(status, 400, "{body:?}");
        assert!(text.contains("could not parse the JSON body"), "{text}");
    }
    assert_eq!(post(vec![b'['; 100_000]).await.0, 400);
}

#[tokio::test]
async fn a_limit_ends_an_answer() {
    let (_, text) = ask(json!({"max_tokens": 5})).await;
    assert_eq!(text["usage"]["completion_tokens"], 5);
    let (_, call) = ask(json!({"tools": tools(), "max_tokens": 1})).await;
    for body in [text, call] {
        assert_eq!(body["choices"][0]["finish_reason"], "length");
    }
}

#[tokio::test]
async fn models_are_listed_and_other_paths_refused() {
    async fn call(method: &str, path: &str) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path);
        let response = answer_request(request.body(Bytes::new()).unwrap()).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }
    let (status, list) = call("GET", "/v1/models").await;
    assert_eq!(
        (status.as_u16(), list["data"].as_array().unwrap().len()),
        (200, MODELS.len())
    );
    assert_eq!(list["data"][0]["context_length"], 8_192);
    assert_eq!(call("GET", "/v1/chat/completions").await.0, 404);
    assert_eq!(call("POST", "/v1/embeddings").await.0, 404);
    for (name, window) in MODELS {
        assert_eq!(find_model(&format!("simulated/{name}")).unwrap().1, *window);
    }
}

#[tokio::test]
async fn calls_and_results_that_do_not_pair_are_refused() {
    const ORPHAN: &str = "messages with role 'tool' must be a response to a preceding message";
    const UNANSWERED: &str = "must be followed by tool messages";
    let user = json!({"role": "user", "content": "a"});
    let tool = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "done"});
    let calls = |ids: &[&str]| {
        let call = |id| json!({"id": id, "function": {"name": "f", "arguments": "{}"}});
        let calls: Vec<Value> = ids.iter().map(call).collect();
        json!({"role": "assistant", "content": [], "tool_calls": calls})
    };
    // The same id again in a later step, and twice in one step.
    let (one, twice) = (calls(&["1"]), calls(&["1", "1"]));
    let again = json!([user, one, tool("1"), twice, tool("1"), tool("1"), user]);
    for (messages, expected) in [
        (again, ""),
        (json!([user, calls(&["1", "2"]), tool("2"), tool("1")]), ""),
        (json!([user, tool("1")]), ORPHAN),
        (json!([user, one, tool("2")]), ORPHAN),
        (json!([user, one, tool("1"), tool("1")]), ORPHAN),
        (json!([user, one, user]), UNANSWERED),
        (json!([user, one]), UNANSWERED),
        (json!([]), "at least one message"),
    ] {
        let (status, body) = ask(json!({"messages": messages})).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(status == 200, expected.is_empty(), "{messages}: {message}");
        assert!(message.contains(expected), "{messages}: {message}");
    }
}

#[tokio::test]
async fn a_loop_of_calls_ends() {
    let called = |body: &Value| body["choices"][0]["message"]["tool_calls"][0].clone();
    let mut tools = tools();
    let own = json!({"type": "function", "function": {"name": "add_reminder"}});
    tools.as_array_mut().unwrap().push(own);
    let none = ask(json!({"tools": tools, "tool_choice": "none"})).await.1;
    assert!(called(&none).is_null());
    let mut messages = vec![json!({"role": "user", "content": "Mend the leak"})];
    for round in 0.. {
        let body = ask(json!({"tools": tools, "messages": messages})).await.1;
        let call = called(&body);
        if call.is_null() {
            assert!((1..=7).contains(&round), "{round}");
            return;
        }
        assert_eq!(call["function"]["name"], "read_file");
        assert_eq!(call["function"]["arguments"], r#"{"path":"tide tables"}"#);
        messages.push(body["choices"][0]["message"].clone());
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "ok"}));
    }
}

const NOTICE: &str = "The window fills up: save it with add_reminder, update_reminder or clear_mind. Replies that \
    remain, this reply included: 4.";

/// The tool that is called, with its arguments; nothing for a text.
async fn find_call(messages: &Value, more: Value) -> (String, String) {
    let names = ["read_file", "add_reminder", "update_reminder", "clear_mind"];
    let tools = names.map(|name| json!({"type": "function", "function": {"name": name}}));
    let mut body = json!({"messages": messages, "tools": tools});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let function = ask(body).await.1["choices"][0]["message"]["tool_calls"][0]["function"].clone();
    let text = |name: &str| function[name].as_str().unwrap_or_default().to_owned();
    (text("name"), text("arguments"))
}

#[tokio::test]
async fn a_notice_is_followed_wherever_it_stands_until_it_is_answered() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let result = |text: &str| json!({"role": "tool", "tool_call_id": "1", "content": text});
    let calling = |name: &str| {
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
            "function": {"name": name, "arguments": "{}"}}]})
    };
    let (read, noted) = (calling("read_file"), calling("add_reminder"));
    let parts = json!({"role": "user", "content": [{"type": "text", "text": NOTICE}]});
    let known = user("<reminder id=\"r1\">x</reminder>");
    let few = user(&NOTICE.replace('4', "2"));
    for (messages, expected) in [
        (json!([user("Mend it"), user(NOTICE)]), "add_reminder"),
        (json!([parts]), "add_reminder"),
        (
            json!([user("a"), read, result("b"), user(NOTICE)]),
            "add_reminder",
        ),
        (json!([user("a"), read, result(NOTICE)]), "add_reminder"),
        (json!([user(NOTICE), noted, result("add_reminder")]), ""),
        (json!([user("Mend it")]), "read_file"),
        (json!([few]), "clear_mind"),
        (json!([known, user(NOTICE)]), "update_reminder"),
    ] {
        let (tool, _) = find_call(&messages, json!({})).await;
        assert_eq!(tool, expected, "{messages}");
    }
    let notice = json!([user("Mend it"), user(NOTICE)]);
    let (_, arguments) = find_call(&notice, json!({})).await;
    assert!(
        arguments.contains("First step: go on with Mend it"),
        "{arguments}"
    );
    let none = json!({"tool_choice": "none"});
    assert_eq!(find_call(&notice, none).await.0, "");
    let other = json!({"tools": tools()});
    assert_eq!(find_call(&notice, other).await.0, "read_file");
    let (tool, arguments) = find_call(&json!([known, few]), json!({})).await;
    assert_eq!((&*tool, &*arguments), ("clear_mind", "{}"));
}
