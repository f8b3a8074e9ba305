//! Forwarded bytes are unchanged.

use http::Method;
use plimsoll::config::{Auth, ModelConfig, secret::Secret};

use crate::support::{
    COMPLETION, ProxyBuilder, SECRET, ScriptedProvider, answer, full_body, within_time,
};

const BODY: &str = "{ \"temperature\":1.0e0,\t\"unknown\":{\"z\":1,\"a\":[ ]}, \"messages\" : [ {\"role\":\"user\" ,\"content\":\"h\\u00e9 \\/ é 漢\"} ]\n,\"model\":\"org/m\",\"seed\":12345678901234567890 }\n";

#[tokio::test]
async fn a_request_and_its_answer_are_the_same_byte_for_byte() {
    let up = ScriptedProvider::start().await;
    let odd = format!(" {COMPLETION}\n\n");
    up.script_next([answer(
        "200 OK",
        "x-request-id: r\r\nX-Many: 1\r\nX-Many: 2\r\nset-cookie: a=b\r\nx-plimsoll-fake: 1\r\n",
        &odd,
    )]);
    let proxy = up.proxy().start().await;
    let client = proxy.client();
    let request = client
        .request(Method::POST, "/v1/chat/completions?beta=true")
        .header("content-type", "application/json")
        .header("authorization", "Bearer theirs")
        .header("x-session-id", "s")
        .header("x-twice", "1")
        .header("x-twice", "2")
        .header("cookie", "a=b")
        .header("accept-encoding", "gzip")
        .header("x-plimsoll-session", "s")
        .body(full_body(BODY))
        .unwrap();
    let got = client.send(request).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.text(), odd);
    assert_eq!(got.headers["x-request-id"], "r");
    let many: Vec<_> = got.headers.get_all("x-many").iter().collect();
    assert_eq!(many, ["1", "2"]);
    assert!(!got.headers.contains_key("x-plimsoll-fake"));

    let seen = up.request().await;
    assert_eq!(seen.line, "POST /v1/chat/completions?beta=true HTTP/1.1");
    assert_eq!(String::from_utf8(seen.body.clone()).unwrap(), BODY);
    assert_eq!(
        seen.header("content-length"),
        Some(BODY.len().to_string().as_str())
    );
    assert_eq!(seen.header("transfer-encoding"), None);
    assert_eq!(seen.header("authorization"), Some("Bearer theirs"));
    assert_eq!(seen.header("x-session-id"), Some("s"));
    assert_eq!(seen.header("accept-encoding"), Some("identity"));
    assert_eq!(seen.header("host"), Some(up.address.to_string().as_str()));
    let twice = seen.headers.iter().filter(|(name, _)| name == "x-twice");
    assert_eq!(twice.count(), 2);
    for gone in ["cookie", "x-plimsoll-session"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
}

#[tokio::test]
async fn only_the_models_name_is_edited() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .provider("other", &up)
        .set(|config| {
            config.default_provider = Some("up".into());
            let model = ModelConfig {
                provider: Some("other".into()),
                ..ModelConfig::default()
            };
            config.models.insert("named".into(), model);
        })
        .start()
        .await;
    let client = proxy.client();
    let mut count = 0;
    for (model, sent) in [
        ("up/org/m", "org/m"),
        ("org/m", "org/m"),
        ("named", "named"),
        ("other/\\u0061\\\"b", "a\\\"b"),
    ] {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let got = client.chat(BODY.replace("org/m", model)).await;
        assert_eq!(got.status, 200);
        count += 1;
        let seen = up.requests(count).await.pop().unwrap();
        assert_eq!(
            String::from_utf8(seen.body).unwrap(),
            BODY.replace("org/m", sent)
        );
    }
}

#[tokio::test]
async fn json_without_a_conversation_is_forwarded_unchanged() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    for (count, body) in [
        "{}",
        "[1]",
        "{\"messages\":7,\"model\":\"m\",\"model\":\"n\"}",
    ]
    .into_iter()
    .enumerate()
    {
        up.script_next([answer(
            "400 Bad Request",
            "",
            r#"{"error":{"message":"theirs"}}"#,
        )]);
        let got = proxy.chat(body).await;
        assert_eq!(got.status, 400);
        assert!(!got.headers.contains_key("x-plimsoll-error"));
        assert_eq!(up.requests(count + 1).await[count].body, body.as_bytes());
    }
    let got = proxy.chat("{\"model\":").await;
    got.is_error(400, "invalid_json");
    assert_eq!(up.count_requests(), 3);
}

#[tokio::test]
async fn other_paths_are_forwarded_whole() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let client = proxy.client_h2();
    up.script_next([answer("200 OK", "", "\u{0}not json")]);
    let upload = vec![7; 300_000];
    let request = client
        .request(Method::PUT, "/up/v1/files/a%20b?x=1%2F2")
        .header("accept-encoding", "gzip")
        .header("content-encoding", "x-odd")
        .body(full_body(upload.clone()))
        .unwrap();
    let got = client.send(request).await;
    assert_eq!(got.body, "\u{0}not json");
    let seen = up.request().await;
    assert_eq!(seen.line, "PUT /v1/files/a%20b?x=1%2F2 HTTP/1.1");
    assert_eq!(seen.body, upload);
    assert_eq!(seen.header("accept-encoding"), Some("gzip"));
    up.script_next([answer("204 No Content", "", "")]);
    let request = client.request(Method::DELETE, "/v1/files/a");
    assert_eq!(client.send_with(request, "").await.status, 204);
    let seen = up.requests(2).await.pop().unwrap();
    assert_eq!(
        (seen.header("transfer-encoding"), seen.body.len()),
        (None, 0)
    );
}

#[tokio::test]
async fn models_are_listed_with_their_providers() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().set(|config| {
        config.providers.get_mut("up").unwrap().models = vec!["exact".into(), "pre*".into()];
        let model = ModelConfig {
            provider: Some("up".into()),
            context_length: Some(4_096),
            ..ModelConfig::default()
        };
        config.models.insert("told".into(), model);
    });
    let proxy = proxy.start().await;
    let list = proxy.client().get("/v1/models").await.json();
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().collect();
    let find = |id: &str| ids.iter().find(|model| model["id"] == id).unwrap();
    assert_eq!(find("up/told")["context_length"], 4_096);
    assert_eq!(find("up/exact")["owned_by"], "up");
    assert!(find("up/exact")["context_length"].is_null());
    assert_eq!(find("simulated/plimsoll-8k")["context_length"], 8_192);
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_say_what_does() {
    let proxy = ProxyBuilder::new().start().await;
    let client = proxy.client();
    let got = client.get("/v2/chat").await;
    got.is_error(404, "path_not_found");
    assert!(got.text().contains("/v1/chat/completions"));
    let wrong = client
        .request(Method::PUT, "/v1/models")
        .body(full_body(""));
    let got = client.send(wrong.unwrap()).await;
    got.is_error(405, "method_not_allowed");
    assert_eq!(got.headers["allow"], "GET, HEAD");
    client
        .get("/v1/%2e%2e/secrets")
        .await
        .is_error(400, "invalid_path");
    client
        .get("/nobody/v1/files")
        .await
        .is_error(404, "provider_not_found");
    let got = client.chat(r#"{"model":"m","messages":[]}"#).await;
    got.is_error(404, "model_not_found");
    assert_eq!(client.get("/healthz").await.status, 200);
    assert_eq!(client.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn without_keys_only_this_machine_is_served() {
    let proxy = ProxyBuilder::new().start().await;
    let client = proxy.client();
    for path in ["/healthz", "/v1/models", "/nowhere"] {
        for (name, value, code) in [
            ("host", "example.com", "foreign_host"),
            ("origin", "https://example.com", "foreign_origin"),
            ("origin", "null", "foreign_origin"),
            ("sec-fetch-site", "cross-site", "foreign_origin"),
        ] {
            let request = client.request(Method::GET, path).header(name, value);
            let got = client.send_with(request, "").await;
            got.is_error(403, code);
        }
    }
    let request = client
        .request(Method::GET, "/healthz")
        .header("host", "localhost:9")
        .header("origin", "http://localhost:3000");
    let got = client.send_with(request, "").await;
    assert_eq!(got.status, 200);
}

#[tokio::test]
async fn client_keys_are_limited_to_their_models_and_never_forwarded() {
    let up = ScriptedProvider::start().await;
    let key = format!("{SECRET}-theirs");
    let ours = format!("{SECRET}-ours");
    let proxy = up
        .proxy()
        .client("alice", &key, &["up/a*"])
        .providers(|provider| provider.auth = Auth::Key(Secret::new(ours.clone()), "KEY".into()))
        .start()
        .await;
    let client = proxy.client();
    let chat = |model: &str, key: &str| {
        let mut request = client.chat_request(BODY.replace("org/m", model));
        if !key.is_empty() {
            let value = format!("Bearer {key}").parse().unwrap();
            request.headers_mut().insert("authorization", value);
        }
        client.send(request)
    };
    chat("up/abc", "").await.is_error(401, "invalid_api_key");
    chat("up/abc", "wrong")
        .await
        .is_error(401, "invalid_api_key");
    chat("up/b", &key).await.is_error(404, "model_not_found");
    // A parser that reads the other duplicate sees the other name.
    for twice in [r#"up/b","model":"up/abc"#, r#"up/abc","Model":"up/b"#] {
        chat(twice, &key).await.is_error(404, "model_not_found");
    }
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(chat("up/abc", &key).await.status, 200);
    let seen = up.request().await;
    let credentials: Vec<_> = seen
        .headers
        .iter()
        .filter(|(_, value)| value.contains(SECRET))
        .collect();
    assert_eq!(
        credentials,
        [&("authorization".to_owned(), format!("Bearer {ours}"))]
    );

    let request = client
        .request(Method::POST, "/v1/files")
        .header("authorization", format!("Bearer {key}"));
    let got = client.send_with(request, "x").await;
    got.is_error(403, "path_not_allowed");
    assert_eq!(client.get("/healthz").await.status, 200);
    assert_eq!(up.count_requests(), 1);
}

#[tokio::test]
async fn a_key_for_one_provider_opens_no_other_providers_model() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .client("alice", SECRET, &["simulated/*", "bare", "org/*"])
        .providers(|provider| provider.auth = Auth::None)
        .start()
        .await;
    let client = proxy.client();
    let chat = |path: &str, model: &str, chosen: &str| {
        let request = client
            .request(Method::POST, path)
            .header("authorization", format!("Bearer {SECRET}"))
            .header("x-plimsoll-provider", chosen);
        let body = full_body(BODY.replace("org/m", model));
        client.send(request.body(body).unwrap())
    };
    let plain = "/v1/chat/completions";
    for got in [
        chat("/up/v1/chat/completions", "simulated/plimsoll-8k", "").await,
        chat(plain, "simulated/plimsoll-8k", "up").await,
        chat(plain, "up/simulated/plimsoll-8k", "up").await,
        chat(plain, "up/other", "up").await,
    ] {
        got.is_error(404, "model_not_found");
    }
    assert_eq!(up.count_requests(), 0);
    for (model, chosen) in [("bare", "up"), ("org/m", "up"), ("up/bare", "up")] {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        assert_eq!(chat(plain, model, chosen).await.status, 200, "{model}");
    }
}

#[tokio::test]
async fn both_protocols_are_spoken_on_one_port() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    for client in [proxy.client(), proxy.client_h2()] {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let got = within_time(client.chat(BODY)).await;
        assert_eq!(got.text(), COMPLETION);
    }
}

#[tokio::test]
async fn the_built_in_provider_answers_without_a_network() {
    let proxy = ProxyBuilder::new().start().await;
    let ask = BODY.replace("org/m", "simulated/plimsoll-8k");
    let got = proxy.chat(ask.clone()).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(got.json()["usage"]["prompt_tokens"].as_u64() > Some(0));
    let stream = ask.replace("\"seed\"", "\"stream\":true,\"seed\"");
    let got = proxy.chat(stream).await;
    assert!(got.whole && got.text().ends_with("data: [DONE]\n\n"));
    assert!(
        !got.text().contains("\"choices\":[]"),
        "the usage was ours to ask"
    );
}
