//! A proxy without settings of its own: the names of Anthropic's and OpenAI's models are passed on with the client's
//! credentials. Behind a proxy of the environment, one server stands for both hosts.

mod attacks;
mod logins;

use std::fs;

use http::Method;
use plimsoll::config::{Config, Environment, Flags, LoadedConfig, load_config, names::ModelNames};
use serde_json::json;
use tokio_tungstenite::{
    connect_async,
    tungstenite::{Error, client::IntoClientRequest},
};

use crate::support::{
    COMPLETION, Process, ProviderStep, ProxyBuilder, ReceivedRequest, RunningProxy,
    ScriptedProvider, TunnelProxy, answer, within_time,
};

/// Names and values.
type Headers = &'static [(&'static str, &'static str)];

const OPENAI: &str = "sk-proj-secret";
const ANTHROPIC: &str = "sk-ant-api03-secret";
const LOGIN: &str = "sk-ant-oat01-secret";

fn load(lines: &str, variables: &[(&str, &str)]) -> LoadedConfig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.toml");
    fs::write(&path, lines).unwrap();
    let flags = Flags {
        config: Some(path),
        listen: None,
    };
    load_config(&flags, &Environment::from_iter(variables.iter().copied())).unwrap()
}

fn answer_anything(request: &ReceivedRequest) -> Vec<ProviderStep> {
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5",
        "content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 2},
    });
    let body = if request.line.contains("/messages") {
        message.to_string()
    } else {
        COMPLETION.to_owned()
    };
    vec![answer("200 OK", "", &body)]
}

async fn start() -> (ScriptedProvider, TunnelProxy, RunningProxy) {
    start_with("", |_| {}).await
}

/// With more lines in its `[server]`.
async fn start_with(
    server: &str,
    set: impl FnOnce(&mut Config),
) -> (ScriptedProvider, TunnelProxy, RunningProxy) {
    let up = ScriptedProvider::start_answering(answer_anything).await;
    start_before(up, server, set).await
}

/// The same before a server that answers in its own way.
async fn start_before(
    up: ScriptedProvider,
    server: &str,
    set: impl FnOnce(&mut Config),
) -> (ScriptedProvider, TunnelProxy, RunningProxy) {
    let hosts = ["api.openai.com", "api.anthropic.com", "chatgpt.com"];
    let tunnel = TunnelProxy::start(up.address, &hosts).await;
    let lines = format!("[server]\nca_file = {:?}\n{server}", tunnel.ca_file());
    let address = format!("http://{}", tunnel.address);
    let loaded = load(&lines, &[("HTTPS_PROXY", &address)]).config;
    let proxy = ProxyBuilder::new().set(|config| {
        config.providers = loaded.providers;
        config.server.outgoing = loaded.server.outgoing;
        set(config);
    });
    (up, tunnel, proxy.start().await)
}

fn body(model: &str) -> String {
    let message = json!({"role": "user", "content": "x"});
    json!({"model": model, "max_tokens": 9, "messages": [message], "input": "x"}).to_string()
}

#[tokio::test]
async fn each_name_goes_to_its_provider_with_the_clients_own_key() {
    let (up, tunnel, proxy) = start().await;
    let bearer = |key: &str| ("authorization", format!("Bearer {key}"));
    let cases = [
        (
            "chat/completions",
            "gpt-4o",
            bearer(OPENAI),
            "api.openai.com",
        ),
        (
            "chat/completions",
            "openai/o3-mini",
            bearer(OPENAI),
            "api.openai.com",
        ),
        ("responses", "gpt-5-codex", bearer(OPENAI), "api.openai.com"),
        (
            "embeddings",
            "text-embedding-3-small",
            bearer(OPENAI),
            "api.openai.com",
        ),
        (
            "messages",
            "claude-opus-5-5",
            ("x-api-key", ANTHROPIC.to_owned()),
            "api.anthropic.com",
        ),
        (
            "messages",
            "claude-not-known-yet",
            bearer(LOGIN),
            "api.anthropic.com",
        ),
        (
            "messages/count_tokens",
            "claude-opus-5-5",
            bearer(LOGIN),
            "api.anthropic.com",
        ),
        (
            "chat/completions",
            "claude-opus-5-5",
            bearer(ANTHROPIC),
            "api.anthropic.com",
        ),
    ];
    for (count, (path, model, (name, value), host)) in cases.into_iter().enumerate() {
        let client = proxy.client();
        let request = client.request(Method::POST, &format!("/v1/{path}"));
        let got = client
            .send_with(request.header(name, &value), body(model))
            .await;
        assert_eq!(got.status, 200, "{model} {}", got.text());
        let seen = up.requests(count + 1).await.pop().unwrap();
        assert_eq!(seen.line, format!("POST /v1/{path} HTTP/1.1"));
        assert_eq!(seen.header("host"), Some(host), "{model}");
        assert_eq!(seen.header(name), Some(&*value), "{model}");
    }
    let client = proxy.client();
    let request = client.request(Method::GET, "/openai/v1/files");
    let (name, value) = bearer(OPENAI);
    let got = client.send_with(request.header(name, value), "").await;
    assert_eq!(got.status, 200, "{}", got.text());
    let heads = tunnel.heads();
    assert!(!heads.is_empty() && heads.iter().all(|head| !head.contains("secret")));
}

/// As Codex sends it with `requires_openai_auth` at a provider of its own.
#[tokio::test]
async fn a_chatgpt_login_goes_to_its_own_backend() {
    let (up, _tunnel, proxy) = start().await;
    let client = proxy.client();
    const LOGIN: Headers = &[
        ("authorization", "Bearer eyJhbGciOi.x.y"),
        ("chatgpt-account-id", "acct_1"),
        ("x-plimsoll-key", "0123456789abcdef"),
    ];
    const KEY: Headers = &[
        ("authorization", "Bearer sk-proj-x"),
        ("chatgpt-account-id", "acct_1"),
    ];
    const WITHOUT_ACCOUNT: Headers = &[("authorization", "Bearer eyJhbGciOi.x.y")];
    let cases: [(&str, &str, Headers, &str, &str); 6] = [
        (
            "POST",
            "responses",
            LOGIN,
            "chatgpt.com",
            "/backend-api/codex/responses",
        ),
        (
            "POST",
            "responses/compact",
            LOGIN,
            "chatgpt.com",
            "/backend-api/codex/responses/compact",
        ),
        (
            "GET",
            "models?client_version=1",
            LOGIN,
            "chatgpt.com",
            "/backend-api/codex/models?client_version=1",
        ),
        ("POST", "responses", KEY, "api.openai.com", "/v1/responses"),
        (
            "POST",
            "responses",
            WITHOUT_ACCOUNT,
            "api.openai.com",
            "/v1/responses",
        ),
        (
            "POST",
            "messages",
            &[("authorization", "Bearer sk-ant-oat01-x")],
            "api.anthropic.com",
            "/v1/messages",
        ),
    ];
    for (count, (method, path, headers, host, expected)) in cases.into_iter().enumerate() {
        let mut request = client.request(method.parse().unwrap(), &format!("/v1/{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let model = if path == "messages" {
            "claude-opus-5-5"
        } else {
            "gpt-5.5"
        };
        let sent = if method == "GET" {
            String::new()
        } else {
            body(model)
        };
        let got = client.send_with(request, sent).await;
        assert_eq!(got.status, 200, "{path} {}", got.text());
        let seen = up.requests(count + 1).await.pop().unwrap();
        assert_eq!(seen.header("host"), Some(host), "{path}");
        assert_eq!(seen.line, format!("{method} {expected} HTTP/1.1"));
        for (name, value) in headers {
            let passes = *name != "x-plimsoll-key";
            assert_eq!(seen.header(name), passes.then_some(*value), "{path} {name}");
        }
    }
    // Another model stays where its name leads.
    let mut request = client.request(Method::POST, "/v1/responses");
    for (name, value) in LOGIN {
        request = request.header(*name, *value);
    }
    let got = client
        .send_with(request, body("simulated/plimsoll-8k"))
        .await;
    assert_eq!(
        (got.status.as_u16(), up.count_requests()),
        (200, cases.len())
    );
}

#[tokio::test]
async fn a_request_without_the_right_credential_stays_here() {
    let (_up, tunnel, proxy) = start().await;
    let client = proxy.client();
    let cases: [(&str, &str, Headers); 12] = [
        ("chat/completions", "gpt-4o", &[]),
        (
            "messages",
            "anthropic/claude-opus-5-5",
            &[
                ("authorization", "Bearer eyJhbGciOi.x.y"),
                ("chatgpt-account-id", "acct_1"),
            ],
        ),
        (
            "chat/completions",
            "gpt-4o",
            &[("authorization", "Bearer ")],
        ),
        ("messages", "claude-opus-5-5", &[]),
        (
            "chat/completions",
            "gpt-4o",
            &[("authorization", "Bearer sk-ant-x")],
        ),
        (
            "chat/completions",
            "gpt-4o",
            &[("authorization", "bearer  sk-ant-x")],
        ),
        ("chat/completions", "gpt-4o", &[("x-api-key", "sk-ant-x")]),
        (
            "embeddings",
            "gpt-4o",
            &[
                ("authorization", "Bearer sk-a"),
                ("authorization", "Bearer sk-ant-x"),
            ],
        ),
        (
            "chat/completions?key=sk-ant-x",
            "gpt-4o",
            &[("authorization", "Bearer sk-a")],
        ),
        (
            "chat/completions",
            "claude-opus-5-5",
            &[("authorization", "Bearer sk-proj-x")],
        ),
        (
            "messages",
            "claude-opus-5-5",
            &[("x-api-key", "sk-or-v1-x")],
        ),
        (
            "messages/count_tokens",
            "claude-opus-5-5",
            &[("api-key", "sk-x")],
        ),
    ];
    for (path, model, headers) in cases {
        let mut request = client.request(Method::POST, &format!("/v1/{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let got = client.send_with(request, body(model)).await;
        assert_eq!(got.status, 401, "{path} {model} {headers:?} {}", got.text());
    }
    // A path without a model, at a provider that the client names.
    let request = client.request(Method::GET, "/openai/v1/files");
    let got = client
        .send_with(request.header("authorization", "Bearer sk-ant-x"), "")
        .await;
    assert_eq!(got.status, 401, "{}", got.text());
    // A browser's key among the protocols of a websocket.
    let url = format!("ws://{}/v1/realtime?model=gpt-realtime", proxy.address);
    let mut request = url.into_client_request().unwrap();
    let protocols = "realtime, openai-insecure-api-key.sk-ant-x"
        .parse()
        .unwrap();
    request
        .headers_mut()
        .insert("sec-websocket-protocol", protocols);
    let Err(Error::Http(refused)) = within_time(connect_async(request)).await else {
        panic!("it was not refused");
    };
    assert_eq!(refused.status(), 401);
    assert_eq!(tunnel.heads(), [""; 0]);
}

#[tokio::test]
async fn any_other_name_is_refused_with_the_lines_that_serve_it() {
    let (_up, tunnel, proxy) = start().await;
    let client = proxy.client();
    for model in [
        "llama3",
        "gpt-oss-120b",
        "openai/gpt-oss-20b",
        "openai/llama3",
        "anthropic/gpt-4o",
        "openai/claude-x",
    ] {
        let request = client.request(Method::POST, "/v1/chat/completions");
        let request = request.header("authorization", "Bearer eyJ.x.y");
        let got = client.send_with(request, body(model)).await;
        got.is_error(404, "model_not_found");
        let message = got.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains(&format!("models = [{model:?}]")),
            "{message}"
        );
        // With these lines in a file, the other names still go where their keys belong.
        let lines = &message[message.find("[providers").unwrap()..];
        let names = ModelNames::new(&load(lines, &[]).config);
        for (name, provider) in [
            (model, "mine"),
            ("gpt-4o", "openai"),
            ("claude-opus-5-5", "anthropic"),
        ] {
            let served = names.resolve_model(name, None).unwrap();
            assert_eq!(served.provider, provider, "{lines}");
        }
    }
    let request = client.request(Method::POST, "/v1/chat/completions");
    let request = request.header("x-plimsoll-provider", "openai");
    let request = request.header("authorization", "Bearer eyJ.x.y");
    client
        .send_with(request, body("llama3"))
        .await
        .is_error(404, "model_not_found");
    // A path without a model says where it goes.
    let request = client.request(Method::GET, "/v1/files");
    let request = request.header("authorization", "Bearer eyJ.x.y");
    let got = client.send_with(request, "").await;
    got.is_error(404, "model_not_found");
    assert!(got.text().contains("/openai/v1/files"), "{}", got.text());
    let got = proxy.chat(body("simulated/plimsoll-8k")).await;
    assert_eq!(got.status, 200, "the built-in provider needs no key");
    assert_eq!(tunnel.heads(), [""; 0]);
}

#[test]
fn any_setting_that_says_who_is_asked_switches_it_off() {
    let known = |lines: &str, variables: &[(&str, &str)]| {
        let providers = load(lines, variables).config.providers;
        providers
            .values()
            .filter(|provider| provider.is_known)
            .count()
    };
    let digest = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    assert_eq!(known("", &[]), 3);
    assert_eq!(known("[models.\"gpt-4o\"]\ncaution_cadence = 3", &[]), 3);
    assert_eq!(known("[server]\nlisten = \"[::1]:1876\"", &[]), 3);
    assert_eq!(known("[server]\nknown_providers = false", &[]), 0);
    assert_eq!(
        known("", &[("PLIMSOLL_SERVER__KNOWN_PROVIDERS", "false")]),
        0
    );
    assert_eq!(known("default_provider = \"simulated\"", &[]), 0);
    assert_eq!(
        known(
            "[providers.a]\nbase_url = \"https://a.example/v1\"\nauth = \"none\"",
            &[]
        ),
        0
    );
    let clients = format!("[clients.a]\nkey_sha256 = \"{digest}\"");
    assert_eq!(known(&clients, &[]), 0);
    assert_eq!(
        known(&format!("[server]\nlisten = \"0.0.0.0:1\"\n{clients}"), &[]),
        0
    );
}

#[tokio::test]
async fn a_bare_command_serves_them_and_the_first_request_of_the_readme() {
    let up = ScriptedProvider::start_answering(answer_anything).await;
    let tunnel = TunnelProxy::start(up.address, &["api.openai.com", "api.anthropic.com"]).await;
    let folder = tempfile::tempdir().unwrap();
    let process = Process::run(|command| {
        command
            .args(["--listen", "127.0.0.1:0"])
            .current_dir(folder.path())
            .env(
                "HTTPS_PROXY",
                format!("http://me:hidden@{}", tunnel.address),
            )
            .env("PLIMSOLL_SERVER__CA_FILE", tunnel.ca_file())
            .env("PLIMSOLL_SERVER__DATA_DIR", folder.path())
    })
    .await;
    let client = process.client();
    let got = client.chat(body("simulated/plimsoll-8k")).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.headers["x-plimsoll-context-limit"], "8192");
    let request = client
        .request(Method::POST, "/v1/messages")
        .header("x-api-key", ANTHROPIC);
    let got = client.send_with(request, body("claude-opus-5-5")).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let request = client.request(Method::POST, "/v1/chat/completions");
    let request = request.header("authorization", format!("Bearer {OPENAI}"));
    let got = client.send_with(request, body("gpt-4o")).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let hosts: Vec<_> = up
        .requests(2)
        .await
        .iter()
        .map(|it| it.header("host").unwrap().to_owned())
        .collect();
    assert_eq!(hosts, ["api.anthropic.com", "api.openai.com"]);
    // Nobody else was asked, and the log says what is done.
    assert_eq!(tunnel.heads().len(), 2);
    process.signal("TERM");
    let (_, log) = process.wait_for_end().await;
    assert!(!log.contains("hidden"), "{log}");
}
