//! Ollama's own API: what asks is forwarded and not guarded, what changes the engine is not.

use http::Method;
use plimsoll::{config::Auth, guard::profile::find_profile};

use crate::support::{ClientAnswer, ProxyBuilder, RunningProxy, SECRET, ScriptedProvider, answer};

const LINES: &str = "{\"model\":\"m\",\"message\":{\"content\":\"A\"},\"done\":false}\n{\"done\":true,\"prompt_eval_count\":9}\n";

async fn start_engine() -> ScriptedProvider {
    ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", LINES)]).await
}

/// Providers with that API.
fn with_ollama(proxy: ProxyBuilder) -> ProxyBuilder {
    proxy.providers(|provider| {
        if provider.base_url.is_some() {
            provider.auth = Auth::None;
            provider.profile = find_profile("ollama").unwrap();
        }
    })
}

async fn send(
    proxy: &RunningProxy,
    method: Method,
    path: &str,
    key: &str,
    body: &str,
) -> ClientAnswer {
    let client = proxy.client();
    let mut request = client.request(method, path);
    if !key.is_empty() {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    client
        .send_with(
            request.header("content-type", "application/json"),
            body.to_owned(),
        )
        .await
}

#[tokio::test]
async fn what_asks_is_forwarded_as_it_came() {
    let up = start_engine().await;
    let proxy = with_ollama(up.proxy()).start().await;
    const CHAT: &str =
        r#"{"model":"m", "messages":[{"role":"user","content":"hi"}],"options":{"num_ctx":8192}}"#;
    for (method, path, body) in [
        (Method::GET, "/api/tags", ""),
        (Method::GET, "/api/version", ""),
        (Method::POST, "/api/show", r#"{"model":"m","verbose":true}"#),
        (Method::POST, "/api/chat", CHAT),
        (
            Method::POST,
            "/api/generate",
            r#"{"model":"m","prompt":"hi"}"#,
        ),
    ] {
        let answer = send(&proxy, method.clone(), path, "", body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (200, LINES),
            "{path}"
        );
        let seen = up.last_request();
        assert_eq!(seen.line, format!("{method} {path} HTTP/1.1"));
        assert_eq!(String::from_utf8_lossy(&seen.body), body);
    }
    let named = send(&proxy, Method::POST, "/api/show", "", r#"{"model":"up/m"}"#).await;
    assert_eq!(named.status, 200);
    assert_eq!(up.last_request().body, br#"{"model":"m"}"#);
    let asked = up.count_requests();
    for path in [
        "pull",
        "push",
        "create",
        "copy",
        "delete",
        "embed",
        "ps",
        "blobs/sha256:0",
    ] {
        let refused = send(
            &proxy,
            Method::POST,
            &format!("/api/{path}"),
            "",
            r#"{"model":"m"}"#,
        )
        .await;
        refused.is_error(404, "path_not_found");
        assert!(
            refused.text().contains("Ask Ollama itself"),
            "{}",
            refused.text()
        );
    }
    assert_eq!(
        send(&proxy, Method::DELETE, "/api/tags", "", "")
            .await
            .status,
        405
    );
    assert_eq!(up.count_requests(), asked);
}

#[tokio::test]
async fn without_such_a_provider_nothing_is_forwarded() {
    let up = start_engine().await;
    let proxy = up.proxy().start().await;
    for (method, path) in [(Method::GET, "/api/tags"), (Method::POST, "/api/chat")] {
        let refused = send(&proxy, method, path, "", r#"{"model":"m"}"#).await;
        refused.is_error(404, "path_not_found");
    }
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn the_model_chooses_among_several() {
    let (first, second, other) = (
        start_engine().await,
        start_engine().await,
        start_engine().await,
    );
    let proxy = with_ollama(
        ProxyBuilder::new()
            .provider("a", &first)
            .provider("b", &second),
    );
    let proxy = proxy.provider("other", &other).set(|config| {
        config.providers.get_mut("b").unwrap().models = vec!["large*".into()];
        config.default_provider = Some("other".into());
    });
    let proxy = proxy.start().await;
    for (path, body, counts) in [
        ("/api/tags", "", [1, 0]),
        ("/api/chat", r#"{"model":"large:7b"}"#, [1, 1]),
        ("/api/chat", r#"{"model":"b/small"}"#, [1, 2]),
        ("/api/generate", r#"{"model":"small"}"#, [2, 2]),
    ] {
        let method = if body.is_empty() {
            Method::GET
        } else {
            Method::POST
        };
        assert_eq!(
            send(&proxy, method, path, "", body).await.status,
            200,
            "{path}"
        );
        assert_eq!(
            [first.count_requests(), second.count_requests()],
            counts,
            "{path} {body}"
        );
    }
    assert_eq!(other.count_requests(), 0);
}

#[tokio::test]
async fn keys_and_their_paths_and_models_hold() {
    let up = start_engine().await;
    let key = |name: &str| format!("{SECRET}-{name}");
    let proxy = with_ollama(up.proxy())
        .client("usual", &key("usual"), &["*"])
        .client("all", &key("all"), &["*"])
        .client("some", &key("some"), &["up/m"])
        .set(|config| {
            for name in ["all", "some"] {
                config.clients.get_mut(name).unwrap().paths = vec!["api/*".into()];
            }
        });
    let proxy = proxy.start().await;
    const CHAT: &str = r#"{"model":"m"}"#;
    for (name, method, path, body, status) in [
        ("none", Method::POST, "/api/chat", CHAT, 401),
        ("usual", Method::POST, "/api/chat", CHAT, 403),
        ("usual", Method::GET, "/api/tags", "", 403),
        ("all", Method::POST, "/api/chat", CHAT, 200),
        ("all", Method::GET, "/api/tags", "", 200),
        ("some", Method::POST, "/api/chat", CHAT, 200),
        ("some", Method::POST, "/api/chat", r#"{"model":"n"}"#, 404),
        (
            "some",
            Method::POST,
            "/api/show",
            r#"{"model":"m","Model":"n"}"#,
            404,
        ),
        ("some", Method::POST, "/api/show", r#"{"name":"n"}"#, 404),
        ("some", Method::GET, "/api/version", "", 200),
        ("some", Method::GET, "/api/tags", "", 403),
    ] {
        let asked = up.count_requests();
        let got = send(&proxy, method, path, &key(name), body).await;
        assert_eq!(
            got.status.as_u16(),
            status,
            "{name} {path} {body}: {}",
            got.text()
        );
        let forwarded = up.count_requests() - asked;
        assert_eq!(
            forwarded,
            usize::from(status == 200),
            "{name} {path} {body}"
        );
        assert!(status != 200 || up.last_request().header("authorization").is_none());
    }
}
