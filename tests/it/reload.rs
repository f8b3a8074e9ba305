//! New settings while requests run: a running request keeps the settings that it began with.

#[cfg(unix)]
mod files;
#[cfg(unix)]
mod load;

use std::sync::Weak;

use crate::support::{
    COMPLETION, DONE, FINISH, ProviderStep, RunningProxy, SECRET, ScriptedProvider, TEXT,
    TestClient, TestUpload, answer, full_body, model_with_window, next, stalled_stream, wait_until,
    within_time,
};
use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt;
use plimsoll::{config::Config, proxy::App};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const ASK: &str = r#"{"model":"up/m","messages":[{"role":"user","content":"x"}]}"#;
const ASK_STREAM: &str =
    r#"{"model":"up/m","stream":true,"messages":[{"role":"user","content":"x"}]}"#;

fn window(config: &mut Config, tokens: u32) {
    config
        .models
        .insert("up/m".into(), model_with_window(tokens));
}

fn request_with_key(client: &TestClient, body: &'static str, key: &str) -> Request<TestUpload> {
    let mut request = client.chat_request(body);
    let value = format!("Bearer {key}").parse().unwrap();
    request.headers_mut().insert("authorization", value);
    request
}

async fn breaker(proxy: &RunningProxy) -> Value {
    let ready = proxy.client().get("/readyz").await;
    ready.json()["providers"]["up"]["breaker"].clone()
}

#[tokio::test]
async fn a_stream_ends_under_the_settings_it_began_with() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().set(|config| window(config, 8_000)).start().await;
    up.script_next(stalled_stream());
    let client = proxy.client();
    let answered = client.begin(client.chat_request(ASK_STREAM)).await;
    assert_eq!(answered.headers()["x-plimsoll-context-limit"], "8000");
    let mut body = answered.into_body();
    assert_eq!(next(&mut body).await, TEXT);
    let before = std::sync::Arc::downgrade(&proxy.live.app());
    let change = proxy.reload(|config| {
        config.providers.remove("up");
        config.models.clear();
    });
    assert_eq!(change.summarise_applied(), "providers.up, models.\"up/m\"");
    client.chat(ASK).await.is_error(404, "model_not_found");
    assert!(before.upgrade().is_some());
    up.release_stalled();
    let rest = within_time(body.collect()).await.unwrap().to_bytes();
    assert_eq!(rest, format!("{FINISH}{DONE}"));
    wait_until_freed(&before).await;
}

#[tokio::test]
async fn a_removed_key_is_refused_on_an_open_connection() {
    let up = ScriptedProvider::start().await;
    let (alice, bob) = (format!("{SECRET}-alice"), format!("{SECRET}-bob"));
    let proxy = up
        .proxy()
        .providers(|provider| provider.auth = plimsoll::config::Auth::None)
        .client("alice", &alice, &["*"])
        .client("bob", &bob, &["*"])
        .start()
        .await;
    for client in [proxy.client(), proxy.client_h2()] {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        assert_eq!(
            client
                .send(request_with_key(&client, ASK, &alice))
                .await
                .status,
            200
        );
        // One of alice's requests runs while her key is removed.
        up.script_next(stalled_stream());
        let running = client
            .begin(request_with_key(&client, ASK_STREAM, &alice))
            .await;
        let mut running = running.into_body();
        assert_eq!(next(&mut running).await, TEXT);
        let mut removed = None;
        proxy.reload(|config| removed = config.clients.remove("alice"));
        let refused = client.send(request_with_key(&client, ASK, &alice)).await;
        refused.is_error(401, "invalid_api_key");
        up.release_stalled();
        within_time(running.collect()).await.unwrap();
        up.script_next([answer("200 OK", "", COMPLETION)]);
        assert_eq!(
            client
                .send(request_with_key(&client, ASK, &bob))
                .await
                .status,
            200
        );
        proxy.reload(|config| {
            config.clients.insert("alice".into(), removed.unwrap());
        });
    }
}

#[tokio::test]
async fn running_requests_count_across_key_and_limit_changes() {
    let up = ScriptedProvider::start().await;
    let (old, new) = (format!("{SECRET}-old"), format!("{SECRET}-new"));
    let proxy = up
        .proxy()
        .providers(|provider| provider.auth = plimsoll::config::Auth::None)
        .client("alice", &old, &["*"])
        .start()
        .await;
    let client = proxy.client();
    up.script_next(stalled_stream());
    let running = client
        .begin(request_with_key(&client, ASK_STREAM, &old))
        .await;
    let mut running = running.into_body();
    assert_eq!(next(&mut running).await, TEXT);
    let limit = |most| {
        proxy.reload(|config| {
            let alice = config.clients.get_mut("alice").unwrap();
            alice.key_sha256 = Sha256::digest(&new).into();
            alice.max_in_flight = Some(most);
        })
    };
    limit(1);
    let refused = client.send(request_with_key(&client, ASK, &new)).await;
    refused.is_error(429, "too_many_requests");
    limit(2);
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(
        client
            .send(request_with_key(&client, ASK, &new))
            .await
            .status,
        200
    );
    up.release_stalled();
    within_time(running.collect()).await.unwrap();
    limit(1);
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(
        client
            .send(request_with_key(&client, ASK, &new))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn breakers_connections_and_sessions_outlive_a_reload() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .providers(|provider| provider.breaker_failures = 2)
        .start()
        .await;
    let client = proxy.client();
    let session = |answer: &crate::support::ClientAnswer| -> HeaderValue {
        answer.headers["x-plimsoll-session"].clone()
    };
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let first = client.chat(ASK).await;
    proxy.reload(|config| window(config, 16_000));
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let more = json!({"model": "up/m", "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "y"},
    ]});
    let second = client.chat(more.to_string()).await;
    assert_eq!(session(&first), session(&second));
    assert_eq!(second.headers["x-plimsoll-context-limit"], "16000");
    let seen = up.requests(2).await;
    assert_eq!(seen[0].connection, seen[1].connection);

    for _ in 0..2 {
        up.script_next([answer("500 Internal Server Error", "", "{}")]);
        assert_eq!(client.chat(ASK).await.status, 500);
    }
    assert_eq!(breaker(&proxy).await, "open");
    proxy.reload(|config| config.guard.reserve_tokens = Some(100));
    assert_eq!(breaker(&proxy).await, "open");
    proxy.reload(|config| {
        config.providers.get_mut("up").unwrap().breaker_failures = 3;
    });
    assert_eq!(
        breaker(&proxy).await,
        "closed",
        "it is another provider now"
    );
}

#[tokio::test]
async fn limits_of_bodies_and_connections_change() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let client = proxy.client();
    proxy.reload(|config| config.server.max_body_bytes = 20);
    client.chat(ASK).await.is_error(413, "body_too_large");
    proxy.reload(|config| {
        config.server.max_body_bytes = 1 << 20;
        config.server.max_bytes_in_flight = 20;
    });
    assert_eq!(client.chat(ASK).await.status, 503);
    proxy.reload(|config| config.server.max_bytes_in_flight = 1 << 30);
    up.script_next([answer("200 OK", "", COMPLETION)]);
    assert_eq!(client.chat(ASK).await.status, 200);

    // The client's connection is open, and the next connection gets the free place.
    proxy.reload(|config| config.server.max_connections = 1);
    let second = proxy.client();
    assert_eq!(second.get("/healthz").await.status, 200);
    let third = proxy.client();
    let waits = third.get("/healthz");
    let mut waits = std::pin::pin!(waits);
    let more = async {
        // It gets no answer while the first two get theirs.
        for _ in 0..20 {
            assert_eq!(client.get("/healthz").await.status, 200);
            assert_eq!(second.get("/healthz").await.status, 200);
        }
    };
    tokio::select! {
        biased;
        _ = &mut waits => panic!("one more than may be open"),
        () = more => {}
    }
    proxy.reload(|config| config.server.max_connections = 10);
    assert_eq!(waits.await.status, 200);
}

#[tokio::test]
async fn answers_of_a_replaced_provider_do_not_count_for_the_new_one() {
    let up = ScriptedProvider::start().await;
    let other = ScriptedProvider::start().await;
    let proxy = up.proxy().set(|config| window(config, 8_000)).start().await;
    let client = proxy.client();
    let too_long = "This model's maximum context length is 4097 tokens. However, your messages \
                    resulted in 5000 tokens.";
    let too_long = json!({"error": {"message": too_long, "code": "context_length_exceeded"}});
    let refused = answer("400 Bad Request", "", too_long.to_string());
    up.script_next([ProviderStep::Stall, refused]);
    let move_to = |at: &ScriptedProvider| {
        let base_url = Some(format!("http://{}/v1", at.address));
        proxy.reload(|config| config.providers.get_mut("up").unwrap().base_url = base_url);
    };
    let limit = async |at: &ScriptedProvider| {
        at.script_next([answer("200 OK", "", COMPLETION)]);
        let got = client.chat(ASK).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got.headers["x-plimsoll-context-limit"].clone()
    };
    let refused = async {
        client.chat(ASK).await;
    };
    let moved = async {
        up.requests(1).await;
        move_to(&other);
        up.release_stalled();
    };
    tokio::join!(refused, moved);
    assert_eq!(limit(&other).await, "8000");
    // The window was learnt for the provider that reported it.
    move_to(&up);
    assert_eq!(limit(&up).await, "4097");
}

#[tokio::test]
async fn old_settings_are_freed_after_a_reload() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let client = proxy.client();
    let metrics = tokio::runtime::Handle::current().metrics();
    let mut tasks = 0;
    let mut apps = Vec::new();
    for n in 0..100_u32 {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        assert_eq!(client.chat(ASK).await.status, 200);
        if n == 10 {
            tasks = metrics.num_alive_tasks();
        }
        apps.push(std::sync::Arc::downgrade(&proxy.live.app()));
        proxy.reload(|config| {
            window(config, 8_000 + n);
            let headers = &mut config.providers.get_mut("up").unwrap().headers;
            headers.insert("x-set", n.into());
        });
    }
    for app in &apps {
        wait_until_freed(app).await;
    }
    // Each had its own provider, and so its own connection.
    for connection in 0..100 {
        up.closed(connection).await;
    }
    wait_until(|| metrics.num_alive_tasks() <= tasks).await;
    let got = client.get("/metrics").await;
    let line = r#"plimsoll_config_reloads_total{result="ok"} 100"#;
    assert!(got.text().contains(line), "{}", got.text());
}

#[tokio::test]
async fn a_removed_provider_is_no_longer_shown() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let client = proxy.client();
    let shown = async || {
        let got = client.get("/metrics").await;
        got.text()
            .contains(r#"plimsoll_breaker_state{provider="up"}"#)
    };
    assert!(shown().await);
    proxy.reload(|config| {
        config.providers.remove("up");
    });
    assert!(!shown().await);
    let ready = client.request(Method::GET, "/readyz").body(full_body(""));
    let ready = client.send(ready.unwrap()).await.json();
    assert_eq!(
        ready["providers"],
        json!({"simulated": {"breaker": "closed"}})
    );
}

/// Waits until the old settings are freed.
async fn wait_until_freed(app: &Weak<App>) {
    wait_until(|| app.strong_count() == 0).await;
}
