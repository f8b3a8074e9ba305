//! What clients of Anthropic's Messages ask beside their conversations, and the simulated provider behind the proxy.

use http::Method;
use plimsoll::{config::ProviderConfig, conversation::Format, guard::profile::find_profile};
use serde_json::{Value, json};

use crate::support::{
    ClientAnswer, Mixing, ModelSetup, NoticeManner, ProxyBuilder, RunningProxy, ScriptedProvider,
    TestClient, Worker, answer, full_body, model_with_window,
};

/// Refuses to count a conversation as the client has it.
const STALE: &str = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.";
const MODEL: &str = "simulated/plimsoll-8k";

async fn post(client: &TestClient, path: &str, body: &Value) -> ClientAnswer {
    let request = client
        .request(Method::POST, path)
        .header("content-type", "application/json")
        .header("anthropic-version", "2023-06-01");
    client.send_with(request, body.to_string()).await
}

async fn simulated() -> (RunningProxy, TestClient) {
    let proxy = ProxyBuilder::new().start().await;
    let client = proxy.client();
    (proxy, client)
}

fn ask(content: impl Into<Value>) -> Value {
    let content: Value = content.into();
    json!({"model": MODEL, "max_tokens": 500, "messages": [{"role": "user", "content": content}]})
}

#[tokio::test]
async fn the_simulated_provider_answers_messages_with_health() {
    let (_proxy, client) = simulated().await;
    let mut body = ask("Where is the harbour?");
    let whole = post(&client, "/v1/messages?beta=true", &body).await;
    assert_eq!(whole.status, 200, "{}", whole.text());
    assert_eq!(whole.headers["x-plimsoll-health"], "healthy");
    let said = whole.json();
    let usage = said["usage"]["input_tokens"].to_string();
    assert_eq!(
        whole.headers["x-plimsoll-prompt-tokens"].to_str().unwrap(),
        usage
    );
    body["stream"] = true.into();
    let streamed = post(&client, "/v1/messages", &body).await;
    let text = streamed.text();
    assert!(text.starts_with("event: message_start\n"), "{text}");
    assert!(text.contains("event: message_stop\n"), "{text}");
}

#[tokio::test]
async fn a_session_stays_in_its_window_and_too_long_a_message_is_refused() {
    let worker = Worker::new(NoticeManner::Follows, Mixing::Never);
    let up = ModelSetup::new(8_192).start(move |heard| worker.compose_reply(heard));
    let up = up.await;
    let proxy = up.provider.proxy().model("m", model_with_window(8_192));
    let proxy = proxy.providers(|provider| provider.profile = find_profile("anthropic").unwrap());
    let proxy = proxy.start().await;
    let client = proxy.client();
    let mut body = ask("Find every leak in the hull and mend it.");
    body["model"] = "m".into();
    body["system"] = "You mend ships.".into();
    body["tools"] = json!([{"name": "read_file", "input_schema": {"type": "object",
        "properties": {"path": {"type": "string"}}, "required": ["path"]}}]);
    let mut folds = 0;
    for step in 0..60 {
        let got = post(&client, "/v1/messages", &body).await;
        assert_eq!(got.status, 200, "{step}: {}", got.text());
        let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
        folds += usize::from(actions.contains("cleared=") || actions.contains("trimmed="));
        let said = got.json()["content"].clone();
        let calls = said.as_array().into_iter().flatten();
        let calls = calls.filter(|block| block["type"] == "tool_use");
        let results = calls.map(|call| {
            json!({"type": "tool_result", "tool_use_id": call["id"],
                "content": format!("let leak = {step};\n").repeat(60)})
        });
        let mut results: Vec<Value> = results.collect();
        if results.is_empty() {
            results.push(json!({"type": "text", "text": format!("Well done. Now part {step}.")}));
        }
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": said}));
        messages.push(json!({"role": "user", "content": results}));
    }
    assert!(folds > 5, "{folds} requests were cut");
    up.assert_no_faults();
    assert_eq!(up.overflows(), 0);
    let sessions = client.get("/plimsoll/api/sessions").await.json();
    let id = sessions["sessions"][0]["id"].as_str().unwrap();
    let session = client.get(&format!("/plimsoll/api/sessions/{id}")).await;
    assert_eq!(session.json()["format"], "messages");
    let made_of = session.json()["made_of"].clone();
    for part in ["system", "tools", "tool_results"] {
        assert!(made_of[part].as_u64() > Some(0), "{part} in {made_of}");
    }
    let mut long = ask("tide table ".repeat(5_000));
    long["model"] = "m".into();
    let refused = post(&client, "/v1/messages", &long).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
}

#[tokio::test]
async fn the_simulated_provider_refuses_too_long_a_message() {
    let (_proxy, client) = simulated().await;
    let refused = post(&client, "/v1/messages", &ask("tide table ".repeat(5_000))).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let message = refused.json()["error"]["message"].clone();
    assert!(
        message
            .as_str()
            .unwrap()
            .starts_with("prompt is too long: "),
        "{message}"
    );
}

#[tokio::test]
async fn tokens_are_counted_by_the_provider_or_estimated() {
    let (_proxy, client) = simulated().await;
    let mut body = ask("Where is the harbour?");
    let answered = post(&client, "/v1/messages", &body).await;
    let exact = answered.json()["usage"]["input_tokens"].as_u64().unwrap();
    body.as_object_mut().unwrap().remove("max_tokens");
    let estimated = post(&client, "/v1/messages/count_tokens", &body).await;
    assert_eq!(estimated.headers["x-plimsoll-count"], "estimate");

    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let client = proxy.client();
    body["model"] = "up/m".into();
    up.script_next([answer("200 OK", "", r#"{"input_tokens":14}"#)]);
    let counted = post(&client, "/v1/messages/count_tokens?beta=true", &body).await;
    assert_eq!(
        (counted.status.as_u16(), counted.text()),
        (200, r#"{"input_tokens":14}"#)
    );
    assert!(!counted.headers.contains_key("x-plimsoll-count"));
    for status in ["404 Not Found", "405 Method Not Allowed"] {
        up.script_next([answer(status, "", "{}")]);
        let estimated = post(&client, "/v1/messages/count_tokens", &body).await;
        assert_eq!(estimated.status, 200, "{}", estimated.text());
        assert_eq!(estimated.headers["x-plimsoll-count"], "estimate");
        let tokens = estimated.json()["input_tokens"].as_u64().unwrap();
        assert!(tokens.abs_diff(exact) < 20, "{tokens} of {exact}");
        assert!(!estimated.headers.contains_key("x-plimsoll-session"));
    }
    let refusal = |kind: &str, message: &str| {
        json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
    };
    let missing_model = refusal("not_found_error", "model: m");
    for (status, error) in [
        ("404 Not Found", refusal("not_found_error", "Not Found")),
        ("404 Not Found", "<h1>No such Model</h1>".to_owned()),
        ("404 Not Found", r#"{"detail":"model"}"#.to_owned()),
        ("405 Method Not Allowed", missing_model.clone()),
        ("501 Not Implemented", missing_model.clone()),
        ("400 Bad Request", refusal("invalid_request_error", STALE)),
    ] {
        up.script_next([answer(status, "", error)]);
        let estimated = post(&client, "/v1/messages/count_tokens", &body).await;
        assert_eq!(estimated.headers["x-plimsoll-count"], "estimate");
    }
    for error in [
        missing_model,
        refusal("NotFoundError", "The Model `m` does not exist."),
        r#"{"error":{"message":"no m","code":"model_not_found"}}"#.to_owned(),
    ] {
        up.script_next([answer("404 Not Found", "", error.clone())]);
        let refused = post(&client, "/v1/messages/count_tokens", &body).await;
        assert_eq!((refused.status.as_u16(), refused.text()), (404, &*error));
        assert!(!refused.headers.contains_key("x-plimsoll-count"));
    }
    for status in ["429 Too Many Requests", "400 Bad Request"] {
        up.script_next([answer(status, "", "{}")]);
        let refused = post(&client, "/v1/messages/count_tokens", &body).await;
        assert_eq!(refused.text(), "{}");
        assert!(!refused.headers.contains_key("x-plimsoll-count"));
    }
    up.script_next([answer("404 Not Found", "", "{}")]);
    let odd = json!({"model": "up/m", "messages": "none"});
    let passed = post(&client, "/v1/messages/count_tokens", &odd).await;
    assert_eq!(
        passed.status, 404,
        "what cannot be counted is the provider's"
    );

    let asked = up.count_requests();
    let speaks_chat = |provider: &mut ProviderConfig| provider.formats = vec![Format::Chat];
    let proxy = up.proxy().providers(speaks_chat).start().await;
    let estimated = post(&proxy.client(), "/v1/messages/count_tokens", &body).await;
    assert_eq!(estimated.headers["x-plimsoll-count"], "estimate");
    assert_eq!(up.count_requests(), asked, "it cannot count");
}

#[tokio::test]
async fn head_of_the_root_is_answered() {
    let (_proxy, client) = simulated().await;
    let root = |method| client.request(method, "/").body(full_body("")).unwrap();
    let head = client.send(root(Method::HEAD)).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    // A browser is led to the dashboard.
    assert_eq!(client.send(root(Method::GET)).await.status, 308);
}

#[tokio::test]
async fn models_are_listed_in_the_shape_of_the_client() {
    let proxy = ProxyBuilder::new()
        .model(MODEL, model_with_window(4_096))
        .start()
        .await;
    let client = proxy.client();
    let get = async |path: &str| {
        let request = client.request(Method::GET, path);
        let request = request.header("anthropic-version", "2023-06-01");
        client.send_with(request, "").await
    };
    let list = get("/v1/models?limit=1000").await.json();
    let data = list["data"].as_array().unwrap();
    assert_eq!(list["has_more"], false);
    assert_eq!(list["first_id"], data[0]["id"]);
    assert_eq!(list["last_id"], data.last().unwrap()["id"]);
    let model = data.iter().find(|model| model["id"] == MODEL).unwrap();
    let expected = json!({"type": "model", "id": MODEL, "display_name": MODEL,
        "created_at": "1970-01-01T00:00:00Z", "max_input_tokens": 4_096});
    assert_eq!(model, &expected);
    assert_eq!(get(&format!("/v1/models/{MODEL}")).await.json(), expected);
    let missing = get("/v1/models/none%2Fsuch").await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.json()["type"], "error");
    let plain = client.get("/v1/models").await.json();
    assert_eq!(plain["object"], "list");
}

#[tokio::test]
async fn fit_knows_the_format_by_shape_or_by_name() {
    let (_proxy, client) = simulated().await;
    let mut body = ask("x".repeat(9));
    let path = "/plimsoll/api/fit";
    body["messages"] = json!([
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
            "content": "let leak = 1;\n".repeat(9_000)}]},
    ]);
    let guessed = post(&client, path, &body).await;
    assert_eq!(guessed.status, 200, "{}", guessed.text());
    let fitted = guessed.json();
    assert_eq!(fitted["report"]["truncated"].as_array().unwrap().len(), 1);
    let named = post(&client, &format!("{path}?format=messages"), &body).await;
    assert_eq!(named.body, guessed.body);
    let as_chat = post(&client, &format!("{path}?format=chat"), &body).await;
    assert_ne!(as_chat.body, guessed.body);
    let wrong = post(&client, &format!("{path}?format=other"), &body).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
}

/// Claude Code keeps a cache warm by the id of an answer (beta `cache-keepalive-2026-09-03`).
#[tokio::test]
async fn a_touch_of_the_cache_is_forwarded_with_the_id_of_an_answer() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let client = proxy.client();
    let said = json!({"type": "message", "role": "assistant", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "There."}], "usage": {"input_tokens": 9, "output_tokens": 2}});
    up.script_next([answer(
        "200 OK",
        "request-id: req_011\r\n",
        said.to_string(),
    )]);
    let mut body = ask("Where is the harbour?");
    body["model"] = "up/m".into();
    let answered = post(&client, "/v1/messages", &body).await;
    let id = answered.headers["request-id"].to_str().unwrap();
    assert_eq!(id, "req_011");
    up.script_next([answer("200 OK", "", "{}")]);
    let touch = json!({"request_id": id});
    let touched = post(&client, "/v1/messages/cache_touch", &touch).await;
    assert_eq!((touched.status.as_u16(), touched.text()), (200, "{}"));
    let received = up.last_request();
    assert_eq!(received.body, touch.to_string().as_bytes());
    assert!(!touched.headers.contains_key("x-plimsoll-session"));
}

/// After the server's own fallback, the last `message` is the model that refused; a compaction tells no size.
#[tokio::test]
async fn the_size_after_a_fallback_is_that_of_the_model_that_answered() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .model("m", model_with_window(8_192))
        .start()
        .await;
    let client = proxy.client();
    let iteration =
        |kind: &str, tokens: u32| json!({"type": kind, "input_tokens": tokens, "output_tokens": 5});
    let advisor = iteration("advisor_message", 4_000);
    for (iterations, expected) in [
        (
            vec![
                iteration("message", 900),
                iteration("fallback_message", 1_234),
            ],
            "1234",
        ),
        (
            vec![
                iteration("message", 900),
                iteration("message", 950),
                advisor,
            ],
            "950",
        ),
        (
            vec![iteration("message", 900), iteration("compaction", 7_000)],
            "900",
        ),
    ] {
        let said = json!({"type": "message", "role": "assistant", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "There."}],
            "usage": {"input_tokens": 2_500, "output_tokens": 9, "iterations": iterations}});
        up.script_next([answer("200 OK", "", said.to_string())]);
        let mut body = ask("Where is the harbour?");
        body["model"] = "m".into();
        let answered = post(&client, "/v1/messages", &body).await;
        assert_eq!(
            answered.headers["x-plimsoll-prompt-tokens"], expected,
            "{iterations:?}"
        );
    }
}
