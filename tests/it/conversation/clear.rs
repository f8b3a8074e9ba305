//! `POST /plimsoll/api/sessions/{id}/clear`: who may request a new course, and how.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Talk, api::ask, header, numbering_provider, proxy_before};
use crate::support::{ClientAnswer, RunningProxy};

/// The path that clears the session of this answer.
fn path(answer: &ClientAnswer) -> String {
    let id = header(answer, "session");
    format!("/plimsoll/api/sessions/{id}/clear")
}

/// Requests a clear with this body.
async fn post(proxy: &RunningProxy, path: &str, headers: HeaderMap, body: Bytes) -> ClientAnswer {
    let client = proxy.client();
    let mut request = client.request(Method::POST, path);
    request.headers_mut().unwrap().extend(headers);
    client.send_with(request, body).await
}

#[tokio::test]
async fn a_requested_clear_is_shown() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    talk.say("x").await;
    let answer = talk.say("y").await;
    assert_eq!(talk.session(&answer).await["clear_pending"], false);
    for _ in 0..2 {
        let told = ask(&proxy, Method::POST, &path(&answer), &[]).await;
        assert_eq!(told.status, StatusCode::OK, "{}", told.text());
        assert_eq!(told.headers["content-type"], "application/json");
        let told = told.json();
        assert_eq!(told["clear_pending"], true);
        assert_eq!(told["id"], header(&answer, "session"));
        assert_eq!(
            (&told["course"], &told["generations"]),
            (&1.into(), &2.into())
        );
        assert_eq!(talk.session(&answer).await, told);
    }
    // Another conversation of the same client is unaffected.
    let mut other = Talk::new(&proxy);
    let answer = other.say("z").await;
    assert_eq!(other.session(&answer).await["clear_pending"], false);
}

#[tokio::test]
async fn a_key_clears_its_own_sessions() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000)
        .client("alice", "sk-secret-a", &["*"])
        .client("bob", "sk-secret-b", &["*"])
        .set(|config| config.admin.key_sha256 = Some(Sha256::digest("sk-secret-admin").into()));
    let proxy = proxy.start().await;
    let mut talk = Talk::new(&proxy).with("authorization", "Bearer sk-secret-a");
    let answer = talk.say("x").await;
    let path = path(&answer);
    let bearer = async |key: &str| {
        let value = format!("Bearer {key}");
        ask(&proxy, Method::POST, &path, &[("authorization", &value)]).await
    };
    bearer("sk-secret-b")
        .await
        .is_error(404, "session_not_found");
    bearer("sk-secret-x").await.is_error(401, "invalid_api_key");
    let none = ask(&proxy, Method::POST, &path, &[]).await;
    none.is_error(401, "invalid_api_key");
    // The same conversation of another client is another session.
    let mut same = Talk::new(&proxy).with("authorization", "Bearer sk-secret-b");
    let theirs = same.say("x").await;
    assert_eq!(talk.session(&answer).await["clear_pending"], false);
    let told = bearer("sk-secret-admin").await;
    assert_eq!(told.status, StatusCode::OK);
    let told = told.json();
    assert_eq!(told["clear_pending"], true);
    assert_eq!(
        (&told["reminders"], &told["prompts"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(told["reminder_count"], 0);
    let shown = talk.session(&answer).await;
    assert_eq!(shown["clear_pending"], true);
    assert!(shown["reminders"].is_array() && shown["prompts"].is_array());
    assert_eq!(same.session(&theirs).await["clear_pending"], false);
}

#[tokio::test]
async fn other_pages_methods_and_paths_are_refused() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    let answer = talk.say("x").await;
    let path = path(&answer);
    for (name, value, code) in [
        ("host", "example.com", "foreign_host"),
        ("origin", "https://example.com", "foreign_origin"),
        ("origin", "http://127.0.0.1.example.com", "foreign_origin"),
        ("origin", "null", "foreign_origin"),
        ("sec-fetch-site", "cross-site", "foreign_origin"),
    ] {
        // As a page's form sends it.
        let form = ("content-type", "text/plain");
        let got = ask(&proxy, Method::POST, &path, &[(name, value), form]).await;
        got.is_error(403, code);
    }
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
        let got = ask(&proxy, method.clone(), &path, &[]).await;
        assert_eq!(got.status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(got.headers["allow"], "POST");
        assert_eq!(got.headers["x-plimsoll-error"], "method_not_allowed");
    }
    let id = header(&answer, "session");
    for unknown in [
        "0".repeat(32),
        "x".into(),
        String::new(),
        format!("{id}/clear"),
    ] {
        let path = format!("/plimsoll/api/sessions/{unknown}/clear");
        let got = ask(&proxy, Method::POST, &path, &[]).await;
        got.is_error(404, "session_not_found");
    }
    let below = format!("{path}/x");
    let got = ask(&proxy, Method::POST, &below, &[]).await;
    got.is_error(404, "session_not_found");
    assert_eq!(talk.session(&answer).await["clear_pending"], false);
    // A page of another local port is foreign; the proxy's own page is not.
    let other = [("origin", "http://localhost:1876")];
    let got = ask(&proxy, Method::POST, &path, &other).await;
    got.is_error(403, "foreign_origin");
    let origin = format!("http://{}", proxy.address);
    let ours = [("origin", &*origin)];
    assert_eq!(ask(&proxy, Method::POST, &path, &ours).await.status, 200);
    assert_eq!(talk.session(&answer).await["clear_pending"], true);
}

#[tokio::test]
async fn a_body_of_a_clear_is_ignored_unless_it_is_too_large() {
    let up = numbering_provider().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    let answer = talk.say("x").await;
    let path = path(&answer);
    let send = async |bytes: usize, headers: &[(&'static str, &str)]| {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        post(&proxy, &path, headers, Bytes::from(vec![b'{'; bytes])).await
    };
    for (name, value) in [("transfer-encoding", "chunked"), ("accept", "*/*")] {
        let refused = send((64 << 10) + 1, &[(name, value)]).await;
        refused.is_error(413, "body_too_large");
        assert!(refused.text().contains("65536 bytes"), "{}", refused.text());
        assert_eq!(talk.session(&answer).await["clear_pending"], false);
    }
    assert_eq!(send(64 << 10, &[]).await.status, 200);
    assert_eq!(talk.session(&answer).await["clear_pending"], true);
    // A large body on an invalid path is refused with the error for the path.
    let wrong = path.replace("sessions", "other");
    let got = post(
        &proxy,
        &wrong,
        HeaderMap::new(),
        Bytes::from(vec![b'x'; 1 << 20]),
    )
    .await;
    got.is_error(404, "path_not_found");
}
