//! Which error a client sees if its model and a fallback fail.

use super::*;

const BUSY: &str = r#"{"error":{"message":"busy"}}"#;

#[tokio::test]
async fn a_fallback_that_fails_for_good_does_not_hide_the_first_error() {
    let busy = |_: &ReceivedRequest| vec![answer("503 Busy", "retry-after: 7\r\n", BUSY)];
    for (status, error) in [
        (
            "400 Bad Request",
            "Each message must have at least one content element",
        ),
        ("422 Unprocessable", "property 'x' is unsupported"),
        ("404 Not Found", "The model does not exist"),
        ("403 Forbidden", "Your plan does not include this model"),
        ("401 Unauthorized", "Incorrect API key provided"),
        ("413 Payload Too Large", "Request too large"),
        (
            "400 Bad Request",
            "This model's maximum context length is 2 tokens. However, your messages resulted in 9 tokens.",
        ),
        ("", "no answer"),
    ] {
        let up = ScriptedProvider::start_answering(busy).await;
        let down = ScriptedProvider::start_answering(move |_: &ReceivedRequest| {
            let body = json!({"error": {"message": error}}).to_string();
            match status {
                "" => vec![ProviderStep::Close],
                status => vec![answer(status, "", body)],
            }
        })
        .await;
        let proxy = start_proxy(&up, ("openai", "m"), Some((&down, "grok-4.7"))).await;
        let got = proxy
            .chat(r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#)
            .await;
        assert_eq!(got.status, 503, "{status} {error}");
        assert_eq!(got.headers["retry-after"], "7", "{status} {error}");
        assert!(got.text().contains("busy"));
        assert!(down.count_requests() > 0);
    }
}

/// A client compacts where it is told that its conversation is too long.
#[tokio::test]
async fn a_fallback_that_fails_for_good_does_not_hide_an_overflow() {
    for status in ["404 Not Found", "401 Unauthorized", ""] {
        let up = ScriptedProvider::start_answering(|_: &ReceivedRequest| {
            let error = json!({"error": {"message": "This model's maximum context length is 8000 tokens. However, your \
                messages resulted in 25000 tokens.", "code": "context_length_exceeded"}});
            vec![answer("400 Bad Request", "", error.to_string())]
        })
        .await;
        let down = ScriptedProvider::start_answering(move |_: &ReceivedRequest| match status {
            "" => vec![ProviderStep::Close],
            status => vec![answer(status, "", BUSY)],
        })
        .await;
        let proxy = start_proxy(&up, ("openai", "m"), Some((&down, "gpt-6.2-sol"))).await;
        let body =
            json!({"model": "m", "messages": [{"role": "user", "content": words(100_000, 1)}]});
        let got = proxy.chat(body.to_string()).await;
        assert_eq!(got.status, 400, "{status}");
        assert!(
            got.text().contains("context_length_exceeded"),
            "{}",
            got.text()
        );
    }
}

/// Where the client's own model is left out for a while, it is asked all the same before the client gets a refusal.
#[tokio::test]
async fn a_fallback_that_fails_for_good_does_not_hide_a_pause_of_the_model_asked_for() {
    let later = |_: &ReceivedRequest| vec![answer("429 Slow", "retry-after: 30\r\n", BUSY)];
    let gone = |_: &ReceivedRequest| vec![answer("404 Not Found", "", "{}")];
    let up = ScriptedProvider::start_answering(later).await;
    let down = ScriptedProvider::start_answering(gone).await;
    let proxy = start_proxy(&up, ("openai", "m"), Some((&down, "grok-4.7"))).await;
    for _ in 0..3 {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;
        let got = proxy.chat(body).await;
        assert_eq!(got.status, 429);
        assert_eq!(got.headers["retry-after"], "30");
        assert_eq!(got.headers["x-plimsoll-attempts"], "2");
    }
}

/// The client may try again, so the last word of the providers counts.
#[tokio::test]
async fn a_fallback_that_is_busy_too_says_when_to_try_again() {
    let busy = |_: &ReceivedRequest| vec![answer("500 No", "", "{}")];
    let later = |_: &ReceivedRequest| vec![answer("429 Slow", "retry-after: 9\r\n", BUSY)];
    let up = ScriptedProvider::start_answering(busy).await;
    let down = ScriptedProvider::start_answering(later).await;
    let proxy = start_proxy(&up, ("openai", "m"), Some((&down, "grok-4.7"))).await;
    let got = proxy
        .chat(r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#)
        .await;
    assert_eq!(got.status, 429);
    assert_eq!(got.headers["retry-after"], "9");
}

/// A host that demands `reasoning_content` and refuses the request for something else.
#[tokio::test]
async fn a_demand_of_reasoning_does_not_hide_what_is_wrong_with_the_request() {
    for model in ["kimi-k3", "fast"] {
        let up = ScriptedProvider::start_answering(|request: &ReceivedRequest| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let error = if body.contains("reasoning_content") {
                "top_k: must be positive"
            } else {
                "thinking is enabled but reasoning_content is missing in assistant message at index 1"
            };
            let body = json!({"error": {"message": error, "type": "invalid_request_error"}});
            vec![answer("400 Bad Request", "", body.to_string())]
        })
        .await;
        let proxy = start_proxy(&up, ("template", model), None).await;
        let body = json!({"model": model, "top_k": -1, "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]});
        let got = proxy.chat(body.to_string()).await;
        assert_eq!(got.status, 400);
        assert!(got.text().contains("top_k"), "{model}: {}", got.text());
        assert_eq!(up.count_requests(), 2, "{model}");
    }
}

/// What recovery adds is refused, and the members that are demanded of answers are not.
#[tokio::test]
async fn additions_are_taken_back_where_the_members_beside_them_are_demanded() {
    let up = ScriptedProvider::start_answering(|request: &ReceivedRequest| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let messages = body["messages"].as_array().unwrap();
        let mut answers = messages.iter().filter(|it| it["role"] == "assistant");
        let error = if request.body.windows(12).any(|it| it == b"add_reminder") {
            "Invalid tool definition"
        } else if answers.any(|it| it["reasoning_content"].is_null()) {
            "preserved thinking requires reasoning_content on every assistant message"
        } else {
            return vec![answer("200 OK", "", crate::support::COMPLETION)];
        };
        let body = json!({"error": {"message": error, "type": "invalid_request_error"}});
        vec![answer("400 Bad Request", "", body.to_string())]
    })
    .await;
    let proxy = start_proxy(&up, ("template", "kimi-k3"), None).await;
    proxy.reload(|config| config.recovery.tools = AddTools::Always);
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let body = json!({"model": "kimi-k3", "tools": [tool], "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]});
    let got = proxy.chat(body.to_string()).await;
    assert_eq!(got.status, 200, "{}", got.text());
}

/// Hosts that serve the same models and know no such member.
#[tokio::test]
async fn a_member_that_the_name_suggests_is_taken_back_where_it_is_refused() {
    let up = ScriptedProvider::start_answering(|request: &ReceivedRequest| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let error = r#"{"error":{"message":"property 'messages.1.assistant.reasoning_content' is unsupported"}}"#;
        vec![if body.contains("reasoning_content") {
            answer("400 Bad Request", "", error)
        } else {
            answer("200 OK", "", crate::support::COMPLETION)
        }]
    })
    .await;
    let proxy = start_proxy(&up, ("template", "kimi-k3"), None).await;
    let body = r#"{"model":"kimi-k3","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}"#;
    for requests in [2, 3] {
        assert_eq!(proxy.chat(body).await.status, 200);
        assert_eq!(up.count_requests(), requests, "it is remembered");
    }
    let last = up.last_request();
    assert_eq!(String::from_utf8_lossy(&last.body), body);
}

/// Where a conversation would be cut, a larger model is asked first; its error is not that of the model asked for.
#[tokio::test]
async fn the_error_of_the_model_asked_for_comes_before_that_of_a_larger_one() {
    for (status, error) in [
        ("503 Service Unavailable", "busy"),
        ("404 Not Found", "The model does not exist"),
        (
            "400 Bad Request",
            "This model's maximum context length is 2500 tokens. However, your messages resulted in 9000 tokens.",
        ),
    ] {
        let up = ScriptedProvider::start_answering(|_: &ReceivedRequest| {
            let error = r#"{"error":{"message":"no such tool"}}"#;
            vec![answer("400 Bad Request", "", error)]
        })
        .await;
        let down = ScriptedProvider::start_answering(move |_: &ReceivedRequest| {
            let body = json!({"error": {"message": error}}).to_string();
            vec![answer(status, "", body)]
        })
        .await;
        let proxy = up.proxy().provider("other", &down).set(|config| {
            config.default_provider = Some("up".into());
            let settings = ModelConfig {
                provider: Some("up".into()),
                larger: Some("other/big".into()),
                ..model_with_window(4_096)
            };
            config.models.insert("m".into(), settings);
            config
                .models
                .insert("big".into(), model_with_window(131_072));
        });
        let proxy = proxy.providers(|provider| provider.auth = Auth::None);
        let proxy = proxy.start().await;
        let mut agent = Agent::bare(&proxy).set("model", "m");
        for nth in 0..20 {
            let role = if nth % 2 == 0 { "user" } else { "assistant" };
            agent
                .messages
                .push(json!({"role": role, "content": words(400, nth)}));
        }
        agent
            .messages
            .push(json!({"role": "user", "content": "Go on."}));
        let got = agent.send().await;
        assert!(down.count_requests() > 0);
        assert_eq!(got.status, 400, "{}", got.text());
        assert!(got.text().contains("no such tool"), "{}", got.text());
    }
}
