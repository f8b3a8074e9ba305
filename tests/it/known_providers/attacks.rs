//! Keys that stand where nobody looks for them, fallbacks, foreign pages, lists: no key goes to the other provider.

use http::Method;

use super::{ANTHROPIC, Headers, OPENAI, body, start, start_with};
use crate::support::{answer, model_with_window};

#[tokio::test]
async fn no_key_goes_to_the_other_provider_wherever_it_stands() {
    let (_up, tunnel, proxy) = start().await;
    let client = proxy.client();
    let other: [(&str, &str); 9] = [
        ("authorization", "Bearer \"sk-ant-api03-secret\""),
        ("authorization", "Bearer: sk-ant-api03-secret"),
        ("x-api-key", "SK-ANT-api03-secret"),
        ("x-goog-api-key", "sk-ant-api03-secret"),
        ("anthropic-api-key", "sk-ant-api03-secret"),
        ("x-auth-token", "Bearer sk-ant-api03-secret"),
        ("openai-project", "sk-ant-api03-secret"),
        ("sec-websocket-protocol", "sk-ant-api03-secret"),
        ("helicone-auth", "key=sk-ant-api03-secret"),
    ];
    for (name, value) in other {
        // A right key beside it changes nothing.
        for beside in ["api-key", "authorization"] {
            for path in [
                "chat/completions",
                "responses",
                "embeddings",
                "responses/compact",
            ] {
                let request = client.request(Method::POST, &format!("/v1/{path}"));
                let request = request.header(name, value).header(beside, OPENAI);
                let got = client.send_with(request, body("openai/gpt-5-codex")).await;
                assert_eq!(got.status, 401, "{path} {name} {value} {}", got.text());
            }
            let turned = value
                .to_ascii_lowercase()
                .replace("sk-ant-api03", "sk-proj-abcd");
            for path in ["messages", "messages/count_tokens", "messages/batches"] {
                let request = client.request(Method::POST, &format!("/v1/{path}"));
                let request = request.header(name, &turned).header(beside, ANTHROPIC);
                let got = client
                    .send_with(request, body("anthropic/claude-opus-5-5"))
                    .await;
                assert_eq!(got.status, 401, "{path} {name} {turned} {}", got.text());
            }
        }
    }
    for query in [
        "token=sk-ant-api03-secret",
        "a=b&sk-ant-api03-secret",
        "KEY=sk%2Dant%2Dapi03",
    ] {
        for path in ["chat/completions", "embeddings"] {
            let request = client.request(Method::POST, &format!("/v1/{path}?{query}"));
            let request = request.header("authorization", format!("Bearer {OPENAI}"));
            let got = client.send_with(request, body("gpt-4o")).await;
            assert_eq!(got.status, 401, "{path} {query} {}", got.text());
        }
    }
    // A header that the connection names goes nowhere, and is no credential.
    let request = client.request(Method::POST, "/v1/chat/completions");
    let request = request.header("connection", "x-api-key");
    let got = client
        .send_with(request.header("x-api-key", OPENAI), body("gpt-4o"))
        .await;
    assert_eq!(got.status, 401, "{}", got.text());
    assert_eq!(tunnel.heads(), [""; 0]);
}

#[tokio::test]
async fn what_only_looks_like_a_key_passes() {
    let (up, _tunnel, proxy) = start().await;
    let client = proxy.client();
    for (count, (path, model, key)) in [
        ("messages", "claude-opus-5-5", ANTHROPIC),
        ("chat/completions", "gpt-4o", OPENAI),
    ]
    .into_iter()
    .enumerate()
    {
        let request = client.request(Method::POST, &format!("/v1/{path}?task=sk-1"));
        let request = request.header("accept-language", "sk-SK,sk;q=0.9");
        // The proxy's own header names sessions, and stays here.
        let request = request.header("x-plimsoll-key", "sk-ant-of-nobody sk-of-nobody-at-all");
        let request = request.header("x-api-key", key);
        let got = client.send_with(request, body(model)).await;
        assert_eq!(got.status, 200, "{path} {}", got.text());
        let seen = up.requests(count + 1).await.pop().unwrap();
        assert_eq!(seen.header("x-plimsoll-key"), None);
    }
}

#[tokio::test]
async fn a_fallback_at_the_other_provider_does_not_get_the_key() {
    let (up, tunnel, proxy) = start_with("", |config| {
        for (model, other) in [("claude-opus-5-5", "gpt-4o"), ("gpt-4o", "claude-opus-5-5")] {
            let mut settings = model_with_window(100_000);
            settings.fallback = vec![other.to_owned()];
            config.models.insert(model.to_owned(), settings);
        }
        config.compaction.model = Some("openai/gpt-4o".to_owned());
    })
    .await;
    let client = proxy.client();
    for (count, (model, key, host)) in [
        ("claude-opus-5-5", ANTHROPIC, "api.anthropic.com"),
        ("gpt-4o", OPENAI, "api.openai.com"),
        // Nobody sees whose it is, so it is lent to the first one only.
        ("claude-opus-5-5", "eyJ.opaque.login", "api.anthropic.com"),
    ]
    .into_iter()
    .enumerate()
    {
        up.script_next([answer(
            "503 Service Unavailable",
            "",
            r#"{"error":{"message":"busy"}}"#,
        )]);
        let request = client.request(Method::POST, "/v1/chat/completions");
        let request = request.header("authorization", format!("Bearer {key}"));
        let got = client.send_with(request, body(model)).await;
        assert_eq!(got.status, 503, "{model} {}", got.text());
        assert_eq!(up.count_requests(), count + 1, "{model}");
        assert_eq!(up.last_request().header("host"), Some(host));
    }
    let heads = tunnel.heads();
    assert!(heads.iter().all(|head| !head.contains("secret")));
}

#[tokio::test]
async fn a_foreign_page_sends_no_key_on() {
    let (_up, tunnel, proxy) = start().await;
    let client = proxy.client();
    let foreign: [Headers; 5] = [
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1.evil.example")],
        &[("sec-fetch-site", "cross-site")],
        &[("host", "evil.example")],
    ];
    for headers in foreign {
        for path in [
            "/v1/chat/completions",
            "/openai/v1/files",
            "/v1/models",
            "/v1/embeddings",
        ] {
            let mut request = client.request(Method::POST, path);
            request = request.header("authorization", format!("Bearer {OPENAI}"));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let got = client.send_with(request, body("gpt-4o")).await;
            assert_eq!(got.status, 403, "{path} {headers:?} {}", got.text());
        }
    }
    assert_eq!(tunnel.heads(), [""; 0]);
}

#[tokio::test]
async fn where_it_is_switched_off_nobody_outside_is_asked() {
    let (_up, tunnel, proxy) = start_with("known_providers = false\n", |_| {}).await;
    let client = proxy.client();
    for (path, model) in [
        ("/v1/chat/completions", "gpt-4o"),
        ("/v1/chat/completions", "openai/gpt-4o"),
        ("/v1/messages", "claude-opus-5-5"),
        ("/v1/embeddings", "text-embedding-3-small"),
        ("/openai/v1/files", "gpt-4o"),
        ("/anthropic/v1/messages", "claude-opus-5-5"),
    ] {
        let request = client.request(Method::POST, path);
        let request = request.header("authorization", "Bearer eyJ.x.y");
        let got = client.send_with(request, body(model)).await;
        assert!(
            [400, 404].contains(&got.status.as_u16()),
            "{path} {}",
            got.text()
        );
    }
    let list = client.get("/v1/models").await;
    assert!(!list.text().contains("gpt-") && !list.text().contains("claude-"));
    assert_eq!(tunnel.heads(), [""; 0]);
}

#[tokio::test]
async fn lists_and_paths_without_a_model_name_no_provider_by_themselves() {
    let (up, tunnel, proxy) = start().await;
    let client = proxy.client();
    for path in [
        "/v1/models",
        "/v1/models/gpt-4o",
        "/v1/models/claude-opus-5-5",
        "/v1/files",
    ] {
        let request = client.request(Method::GET, path);
        let request = request.header("authorization", format!("Bearer {OPENAI}"));
        client.send_with(request, "").await;
    }
    assert_eq!(tunnel.heads(), [""; 0], "these are answered here");
    let request = client.request(Method::GET, "/openai/v1/files");
    let request = request.header("authorization", format!("Bearer {OPENAI}"));
    assert_eq!(client.send_with(request, "").await.status, 200);
    assert_eq!(up.request().await.header("host"), Some("api.openai.com"));
}
