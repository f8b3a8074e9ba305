//! Keys that are limited to some models, on paths that are forwarded.

use plimsoll::config::Auth;

use super::*;
use crate::support::SECRET;

#[tokio::test]
async fn a_key_for_some_models_is_limited_on_every_path() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .provider("other", &up)
        .client("alice", SECRET, &["up/good*"])
        .providers(|provider| provider.auth = Auth::None)
        .set(|config| {
            config.default_provider = Some("up".into());
            config.clients.get_mut("alice").unwrap().paths = vec!["*".into()];
        })
        .start()
        .await;
    let client = proxy.client();
    let keyed = |mut request: Request<TestUpload>| {
        let key = format!("Bearer {SECRET}").parse().unwrap();
        request.headers_mut().insert("authorization", key);
        request
    };
    let json = "application/json";
    for (path, kind, body) in [
        ("/v1/embeddings", json, &b"{\"model\":\"up/good\"}"[..]),
        ("/v1/batches/x/cancel", json, b""),
    ] {
        let request = keyed(post(&client, path, kind, body.to_vec()));
        let count = up.count_requests() + 1;
        sent_on(&up, count, &proxy, request).await;
    }
    let count = up.count_requests();
    let good = form(&[("file", "", b"x"), ("model", "", b"good")]);
    for (path, kind, body) in [
        ("/v1/embeddings", json, &b"{\"model\":\"bad\"}"[..]),
        ("/v1/embeddings", json, b"{\"model\":\"other/good\"}"),
        (
            "/v1/embeddings",
            json,
            b"{\"model\":\"bad\",\"model\":\"good\"}",
        ),
        ("/v1/embeddings", json, b"{\"input\":1}"),
        ("/v1/embeddings", json, b"{\"model\":\"good\"}{}"),
        ("/v1/embeddings", "text/plain", b"{\"model\":\"good\"}"),
        ("/v1/embeddings?model=bad", json, b"{\"model\":\"good\"}"),
        ("/v1/audio/transcriptions", FORM, &good),
        ("/v1/audio/transcriptions?model=good", FORM, &good),
        ("/v1/audio/transcriptions?model=good", json, &good),
        ("/v1/audio/transcriptions?model=good", "", &good),
    ] {
        let request = keyed(post(&client, path, kind, body.to_vec()));
        let got = client.send(request).await;
        got.is_error(404, "model_not_found");
    }
    let mut request = keyed(post(&client, "/v1/files", FORM, good));
    let version = "2023-06-01".parse().unwrap();
    request.headers_mut().insert("anthropic-version", version);
    let got = client.send(request).await;
    assert_eq!(got.status, 404);
    let error = &got.json()["error"];
    assert_eq!(error["type"], "not_found_error");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("needs a key for all models"), "{message}");
    // For gateways that prefer the query's model, or try the models of a list.
    let chat = "/v1/chat/completions";
    let one = br#"{"model":"good","messages":[{"role":"user","content":"x"}]}"#;
    let list = br#"{"model":"good","models":["bad"],"messages":[{"role":"user","content":"x"}]}"#;
    for (query, body) in [
        ("?model=bad", &one[..]),
        ("?model=good", one),
        ("?Model%5b%5D=bad", one),
        ("", list),
    ] {
        let request = keyed(post(
            &client,
            &format!("{chat}{query}"),
            json,
            body.to_vec(),
        ));
        let got = client.send(request).await;
        got.is_error(404, "model_not_found");
    }
    // Claude Code hides the words of a 404.
    let other = br#"{"model":"bad","max_tokens":9,"messages":[{"role":"user","content":"x"}]}"#;
    let got = client
        .send(keyed(post(&client, "/v1/messages", json, other.to_vec())))
        .await;
    assert_eq!(got.status, 400);
    assert_eq!(got.headers["x-plimsoll-error"], "model_not_found");
    for path in [
        "/v1/realtime?model=good&deployment=bad",
        "/v1/realtime?model=good;model=bad",
    ] {
        let request = client.request(Method::GET, path);
        let got = client
            .send(keyed(request.body(full_body("")).unwrap()))
            .await;
        got.is_error(404, "model_not_found");
    }
    let mut request = keyed(post(&client, "/v1/embeddings", json, "x"));
    let gzip = "gzip".parse().unwrap();
    request.headers_mut().insert("content-encoding", gzip);
    let got = client.send(request).await;
    got.is_error(400, "invalid_content_encoding");
    let request = client.request(Method::GET, "/other/v1/files");
    let got = client
        .send(keyed(request.body(full_body("")).unwrap()))
        .await;
    got.is_error(403, "path_not_allowed");
    let request = client.request(Method::GET, "/v1/realtime?model=good&MODEL=bad");
    let got = client
        .send(keyed(request.body(full_body("")).unwrap()))
        .await;
    got.is_error(404, "model_not_found");
    assert_eq!(up.count_requests(), count);
    // One spelling, so that no encoding hides the name from some readers.
    let plain = br#"{"model":"good"}"#;
    let packed = zstd::encode_all(&plain[..], 1).unwrap();
    let mut request = keyed(post(&client, "/v1/embeddings", json, packed));
    let zstd = "zstd".parse().unwrap();
    request.headers_mut().insert("content-encoding", zstd);
    let seen = sent_on(&up, count + 1, &proxy, request).await;
    assert_eq!(seen.body, plain);
    assert_eq!(seen.header("content-encoding"), None);
}
