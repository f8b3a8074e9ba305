//! Client keys: where they are read, which paths they open, how many requests may run.

use http::{Method, Request};
use http_body_util::BodyExt;
use plimsoll::{
    config::{Auth, secret::Secret},
    session::installation_secret::InstallationSecret,
};

use crate::support::{
    COMPLETION, ProviderStep, ProxyBuilder, SECRET, ScriptedProvider, TEXT, TestClient, TestUpload,
    answer, endless_stream, full_body, send_bytes, stream_head, within_time,
};

const CHAT: &str = r#"{"model":"up/m","messages":[{"role":"user","content":"x"}]}"#;

fn request_with(client: &TestClient, name: &str, value: &str) -> Request<TestUpload> {
    let mut request = client.chat_request(CHAT);
    let name: http::HeaderName = name.parse().unwrap();
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// Some programs send it as the key of an API.
#[tokio::test]
async fn the_key_of_plimsoll_run_goes_to_no_provider() {
    let (up, folder) = (
        ScriptedProvider::start().await,
        tempfile::tempdir().unwrap(),
    );
    let data_dir = folder.path().to_owned();
    let proxy = up
        .proxy()
        .providers(|provider| provider.auth = Auth::Client)
        .set(|config| config.server.data_dir = data_dir.into())
        .start()
        .await;
    let secret = InstallationSecret::load_or_create(folder.path()).unwrap();
    let (run_key, other) = (secret.derive_run_key(), format!("{SECRET}-own"));
    for (key, expected) in [(&run_key, None), (&other, Some(&other))] {
        for (name, value) in [
            ("authorization", format!("Bearer {key}")),
            ("x-api-key", key.clone()),
        ] {
            let count = up.count_requests() + 1;
            up.script_next([answer("200 OK", "", COMPLETION)]);
            let client = proxy.client();
            let got = client.send(request_with(&client, name, &value)).await;
            assert_eq!(got.status, 200, "{name}");
            let seen = up.requests(count).await.pop().unwrap();
            assert_eq!(seen.header(name).is_some(), expected.is_some(), "{name}");
            let all = format!("{:?}", seen.headers);
            assert!(!all.contains(&run_key), "{name}: {all}");
        }
    }
}

#[tokio::test]
async fn a_key_is_read_from_every_usual_header_and_never_forwarded() {
    let up = ScriptedProvider::start().await;
    let key = format!("{SECRET}-theirs");
    let ours = format!("{SECRET}-ours");
    for auth in [
        Auth::Key(Secret::new(ours.clone()), "KEY".into()),
        Auth::None,
    ] {
        let proxy = up
            .proxy()
            .client("alice", &key, &["*"])
            .providers(|provider| provider.auth = auth.clone())
            .start()
            .await;
        let client = proxy.client();
        for (name, value) in [
            ("authorization", format!("Bearer {key}")),
            ("api-key", key.clone()),
            ("x-api-key", key.clone()),
            (
                "sec-websocket-protocol",
                format!("realtime, openai-insecure-api-key.{key}"),
            ),
        ] {
            let count = up.count_requests() + 1;
            up.script_next([answer("200 OK", "", COMPLETION)]);
            let got = client.send(request_with(&client, name, &value)).await;
            assert_eq!(got.status, 200, "{name}");
            let seen = up.requests(count).await.pop().unwrap();
            let secrets = seen.headers.iter().filter(|(_, v)| v.contains(SECRET));
            let secrets: Vec<_> = secrets.map(|(_, value)| value.clone()).collect();
            let expected = match auth {
                Auth::Key(..) => vec![format!("Bearer {ours}")],
                _ => vec![],
            };
            assert_eq!(secrets, expected, "{name}");
        }
        let keyed = |path: &str| {
            let request = client.request(Method::GET, path);
            request.header("api-key", &key).body(full_body("")).unwrap()
        };
        let count = up.count_requests() + 1;
        up.script_next([answer("200 OK", "", "{}")]);
        let path = format!("/up/v1/embeddings?api-key={key}&x=1");
        client.send(keyed(&path)).await;
        let seen = up.requests(count).await.pop().unwrap();
        assert_eq!(seen.line, "GET /v1/embeddings?x=1 HTTP/1.1");
        for name in ["api-key", "API%2Dkey", "key", "subscription-key"] {
            let count = up.count_requests() + 1;
            up.script_next([answer("200 OK", "", COMPLETION)]);
            let mut request = request_with(&client, "api-key", &key);
            let uri = format!("{}?{name}={key}&x=%31", request.uri());
            *request.uri_mut() = uri.parse().unwrap();
            client.send(request).await;
            let seen = up.requests(count).await.pop().unwrap();
            assert_eq!(seen.line, "POST /v1/chat/completions?x=%31 HTTP/1.1");
        }
    }
}

/// The client's key for the proxy in a header of its own, and beside it what the client sends to the provider.
#[tokio::test]
async fn credentials_beside_a_key_of_the_proxy_go_to_the_provider() {
    let up = ScriptedProvider::start().await;
    let (key, other) = (format!("{SECRET}-alice"), format!("{SECRET}-bob"));
    let proxy = up
        .proxy()
        .client("alice", &key, &["*"])
        .client("bob", &other, &["*"])
        .providers(|provider| provider.auth = Auth::Client)
        .start()
        .await;
    let client = proxy.client();
    let theirs = |name: &'static str, value: &str| (name, value.to_owned());
    for (sent, passes) in [
        (
            vec![theirs("authorization", "Bearer login-1")],
            vec!["authorization"],
        ),
        (vec![theirs("x-api-key", "login-2")], vec!["x-api-key"]),
        // A key of the proxy goes to no provider, in whatever header it came.
        (
            vec![theirs("authorization", &format!("Bearer {key}"))],
            vec![],
        ),
        (
            vec![theirs("api-key", &other), theirs("x-api-key", "login-3")],
            vec!["x-api-key"],
        ),
        (vec![theirs("x-anything", &other)], vec![]),
    ] {
        let count = up.count_requests() + 1;
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let mut request = request_with(&client, "x-plimsoll-key", &key);
        for (name, value) in &sent {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        assert_eq!(client.send(request).await.status, 200);
        let seen = up.requests(count).await.pop().unwrap();
        let names = [
            "authorization",
            "api-key",
            "x-api-key",
            "x-anything",
            "x-plimsoll-key",
        ];
        let passed = seen.headers.iter().map(|(name, _)| name.as_str());
        let passed: Vec<&str> = passed.filter(|name| names.contains(name)).collect();
        assert_eq!(passed, passes, "{sent:?}");
        assert!(!seen.headers.iter().any(|(_, value)| value.contains(SECRET)));
    }
    // Without that header, the credential is the key, and goes nowhere.
    let count = up.count_requests() + 1;
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let got = client.send(request_with(&client, "x-api-key", &key)).await;
    assert_eq!(got.status, 200);
    let seen = up.requests(count).await.pop().unwrap();
    assert!(!seen.headers.iter().any(|(_, value)| value.contains(SECRET)));
    // The header alone decides who asks.
    let mut wrong = request_with(&client, "x-plimsoll-key", "nobody's");
    let bearer = format!("Bearer {key}").parse().unwrap();
    wrong.headers_mut().insert("authorization", bearer);
    let got = client.send(wrong).await;
    assert_eq!(got.status, 401);
    assert_eq!(got.headers["x-should-retry"], "false");
}

/// A login whose token changes keeps its sessions, and a key is one account in any header.
#[tokio::test]
async fn an_account_is_named_by_the_key_and_not_by_its_header() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .providers(|provider| provider.auth = Auth::Client)
        .start()
        .await;
    let client = proxy.client();
    let ask = async |headers: &[(&'static str, &str)]| {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let mut request = request_with(&client, "x-plimsoll-session", "mine");
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let got = client.send(request).await;
        (got.status, got.headers.get("x-plimsoll-session").cloned())
    };
    let bearer = ask(&[("authorization", "Bearer one-key")]).await;
    assert!(bearer.1.is_some());
    assert_eq!(ask(&[("x-api-key", "one-key")]).await, bearer);
    assert_eq!(ask(&[("api-key", "one-key")]).await, bearer);
    let first = ask(&[
        ("x-plimsoll-key", "0123456789abcdef"),
        ("authorization", "Bearer t1"),
    ])
    .await;
    let later = ask(&[
        ("x-plimsoll-key", "0123456789abcdef"),
        ("authorization", "Bearer t2"),
    ])
    .await;
    assert_eq!(first, later);
    assert_ne!(first, bearer);
    let short = ask(&[("x-plimsoll-key", "0123456789abcde")]).await;
    assert_eq!(short.0, 401);
}

#[tokio::test]
async fn a_missing_or_wrong_key_is_refused_as_by_openai() {
    let proxy = ProxyBuilder::new().client("alice", SECRET, &["*"]);
    let proxy = proxy.start().await;
    let client = proxy.client();
    for (name, value) in [
        ("x-none", "x"),
        ("authorization", "Bearer wrong"),
        ("authorization", "Basic c2stc2VjcmV0"),
        ("authorization", ""),
        ("api-key", "wrong"),
        ("x-api-key", ""),
    ] {
        let got = client.send(request_with(&client, name, value)).await;
        got.is_error(401, "invalid_api_key");
        assert_eq!(got.json()["error"]["type"], "invalid_request_error");
        assert_eq!(got.headers["www-authenticate"], "Bearer");
    }
    for path in ["/v1/models", "/v1/embeddings", "/v1/realtime"] {
        client.get(path).await.is_error(401, "invalid_api_key");
    }
}

#[tokio::test]
async fn a_key_is_limited_to_its_paths() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .client("usual", "usual", &["*"])
        .client("some", "some", &["*"])
        .client("all", "all", &["*"])
        .providers(|provider| provider.auth = Auth::None)
        .set(|config| {
            let paths = |client: &str, paths: &[&str], config: &mut plimsoll::config::Config| {
                config.clients.get_mut(client).unwrap().paths =
                    paths.iter().map(|&path| path.into()).collect();
            };
            paths("some", &["files*", "responses"], config);
            paths("all", &["*"], config);
        })
        .start()
        .await;
    let client = proxy.client();
    for (key, method, path, allowed) in [
        ("usual", Method::POST, "/v1/chat/completions", true),
        ("usual", Method::GET, "/v1/chat/completions", true),
        ("usual", Method::POST, "/up/v1/embeddings", true),
        ("usual", Method::GET, "/v1/models", true),
        ("usual", Method::GET, "/up/v1/models", true),
        ("usual", Method::GET, "/v1/files", false),
        ("usual", Method::POST, "/v1/embeddings/", false),
        ("usual", Method::POST, "/v1/%65mbeddings", false),
        ("usual", Method::POST, "/v1//embeddings", false),
        ("some", Method::GET, "/v1/files/a/content", true),
        ("some", Method::POST, "/v1/responses", true),
        ("some", Method::GET, "/v1/responses/a", false),
        ("some", Method::POST, "/v1/chat/completions", false),
        ("some", Method::GET, "/v1/models", false),
        ("all", Method::DELETE, "/v1/assistants/a", true),
        ("all", Method::POST, "/v1/chat/completions", true),
    ] {
        let reaches = allowed && path != "/v1/models";
        if reaches {
            up.script_next([answer("200 OK", "", COMPLETION)]);
        }
        let before = up.count_requests();
        let request = client
            .request(method.clone(), path)
            .header("authorization", format!("Bearer {key}"));
        let got = client.send_with(request, CHAT).await;
        if allowed {
            assert_eq!(got.status, 200, "{key} {method} {path}")
        } else {
            got.is_error(403, "path_not_allowed")
        }
        assert_eq!(up.count_requests() - before, usize::from(reaches), "{path}");
    }
}

#[tokio::test]
async fn concurrent_requests_of_a_client_are_limited() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .client("alice", "alice", &["*"])
        .client("bob", "bob", &["*"])
        .providers(|provider| provider.auth = Auth::None)
        .set(|config| {
            config.clients.get_mut("alice").unwrap().max_in_flight = Some(2);
        })
        .start()
        .await;
    let client = proxy.client();
    let ask = |key: &str| request_with(&client, "authorization", &format!("Bearer {key}"));
    let mut streams = Vec::new();
    for _ in 0..2 {
        up.script_next([
            stream_head(),
            send_bytes(TEXT),
            ProviderStep::Stall,
            ProviderStep::Close,
        ]);
        let mut body = client.begin(ask("alice")).await.into_body();
        within_time(body.frame()).await.unwrap().unwrap();
        streams.push(body);
    }
    let got = client.send(ask("alice")).await;
    got.is_error(429, "too_many_requests");
    assert_eq!(got.headers["retry-after"], "1");
    assert_eq!(got.json()["error"]["type"], "requests");
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(client.send(ask("bob")).await.status, 200);

    // One ends, and the client of another disconnects.
    up.release_stalled();
    let mut first = streams.remove(0);
    while let Some(Ok(_)) = within_time(first.frame()).await {}
    drop(streams);
    let again = within_time(async {
        let mut running = Vec::new();
        while running.len() < 2 {
            up.script_next(endless_stream());
            let answer = client.begin(ask("alice")).await;
            if answer.status() == 200 {
                running.push(answer);
            }
        }
        running
    })
    .await;
    let got = client.send(ask("alice")).await;
    got.is_error(429, "too_many_requests");
    drop(again);
    // A refused request does not count as running.
    let refused = async || {
        let request = client
            .request(Method::GET, "/nobody/v1/models")
            .header("authorization", "Bearer alice");
        client.send_with(request, "").await
    };
    within_time(async { while refused().await.status == 429 {} }).await;
    for _ in 0..5 {
        refused().await.is_error(404, "provider_not_found");
    }
}
