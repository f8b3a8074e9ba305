//! What whoever watches the process is told.

use http::Method;
use plimsoll::config::Auth;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::{
    client::{Answer, SECRET, full},
    provider::{COMPLETION, Provider, Step, answer},
    proxy::{Proxy, Running},
};

const ASK: &str = r#"{"model":"up/m","messages":[{"role":"user","content":"a prompt"}]}"#;

async fn ask(proxy: &Running, path: &str, headers: &[(&str, &str)]) -> Answer {
    let client = proxy.client();
    let mut request = client.request(Method::GET, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request.body(full("")).unwrap()).await
}

fn says(metrics: &Answer, line: &str) {
    let text = metrics.text();
    assert!(text.lines().any(|found| found == line), "{line}\n{text}");
}

#[tokio::test]
async fn readiness_lists_the_breakers() {
    let up = Provider::start().await;
    let proxy = Proxy::new().provider("up", &up).start().await;
    let got = ask(&proxy, "/readyz", &[]).await;
    assert_eq!(got.status, 200);
    let closed = json!({"breaker": "closed"});
    let expected = json!({"status": "ready", "providers": {"simulated": closed, "up": closed}});
    assert_eq!(got.json(), expected);
}

#[tokio::test]
async fn metrics_are_there_for_every_provider_before_anything_happened() {
    let up = Provider::start().await;
    let proxy = Proxy::new().provider("up", &up).start().await;
    let got = ask(&proxy, "/metrics", &[]).await;
    assert_eq!(got.status, 200);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(got.headers["content-type"], kind);
    for line in [
        r#"plimsoll_breaker_state{provider="simulated"} 0"#,
        r#"plimsoll_breaker_state{provider="up"} 0"#,
        r#"plimsoll_provider_attempts_total{outcome="unsent",provider="up"} 0"#,
        r#"plimsoll_silent_truncations_total{provider="up"} 0"#,
        "plimsoll_requests_in_flight 0",
    ] {
        says(&got, line);
    }
    assert!(!got.text().contains(&up.address.to_string()));
    let foreign = ask(&proxy, "/metrics", &[("host", "example.com")]).await;
    foreign.is_error(403, "foreign_host");
    let foreign = ask(&proxy, "/metrics", &[("origin", "https://example.com")]).await;
    foreign.is_error(403, "foreign_origin");
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_answer_ends() {
    let up = Provider::start().await;
    let proxy = Proxy::new().provider("up", &up).start().await;
    up.then([Step::Stall, answer("200 OK", "", COMPLETION)]);
    let client = proxy.client();
    let chat = client.chat(ASK);
    tokio::pin!(chat);
    tokio::select! {
        _ = &mut chat => panic!("there is no answer yet"),
        _ = up.requests(1) => {}
    }
    let got = ask(&proxy, "/metrics", &[]).await;
    says(&got, "plimsoll_requests_in_flight 1");
    assert!(!got.text().contains("a prompt"));
    up.release();
    assert_eq!(chat.await.status, 200);
    // The answer's last byte may be read before the proxy has put the request down.
    crate::support::proxy::within(async {
        loop {
            let got = ask(&proxy, "/metrics", &[]).await;
            if got.text().contains("plimsoll_requests_in_flight 0") {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn with_client_keys_the_metrics_need_one_for_all_models() {
    let all = format!("{SECRET}-all");
    let some = format!("{SECRET}-some");
    let admin = format!("{SECRET}-admin");
    let proxy = Proxy::new()
        .client("all", &all, &["*"])
        .client("some", &some, &["up/*"])
        .providers(|provider| provider.auth = Auth::None)
        .set(|config| config.admin.key_sha256 = Some(Sha256::digest(&admin).into()))
        .start()
        .await;
    let metrics = async |key: &str| {
        let value = format!("Bearer {key}");
        ask(&proxy, "/metrics", &[("authorization", &value)]).await
    };
    ask(&proxy, "/metrics", &[])
        .await
        .is_error(401, "invalid_api_key");
    metrics("wrong").await.is_error(401, "invalid_api_key");
    metrics(&some).await.is_error(403, "path_not_allowed");
    for key in [&all, &admin] {
        says(&metrics(key).await, "plimsoll_requests_in_flight 0");
    }
    assert_eq!(ask(&proxy, "/readyz", &[]).await.status, 200);
}
