//! Every path other than chat completions: forwarded to the provider of the named model, unchanged
//! in both directions but for the model's name.

mod bodies;
mod limited_keys;

use std::io::Write as _;

use bytes::Bytes;
use http::{Method, Request};
use plimsoll::config::ModelConfig;

use crate::support::{
    ProviderStep, ReceivedRequest, RunningProxy, ScriptedProvider, TestClient, TestUpload, answer,
    chunked_body, full_body, next, send_bytes, stream_head,
};

const VECTORS: &str = "{ \"unknown\":[ 1.0e0 ],\t\"input\":\"h\\u00e9\", \"model\" : \"NAME\" ,\"x\":{\"model\":\"NAME\"}}\n";

/// Two providers; `default` gets requests without a model.
async fn two_providers() -> (ScriptedProvider, ScriptedProvider, RunningProxy) {
    let up = ScriptedProvider::start().await;
    let default = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .provider("default", &default)
        .set(|config| {
            config.default_provider = Some("default".into());
            let model = ModelConfig {
                provider: Some("up".into()),
                ..ModelConfig::default()
            };
            config.models.insert("named".into(), model);
        })
        .start()
        .await;
    (up, default, proxy)
}

fn post(
    client: &TestClient,
    path: &str,
    kind: &str,
    body: impl Into<Bytes>,
) -> Request<TestUpload> {
    let request = client.request(Method::POST, path);
    let request = match kind {
        "" => request,
        kind => request.header("content-type", kind),
    };
    request.body(full_body(body)).unwrap()
}

async fn sent_on(
    up: &ScriptedProvider,
    count: usize,
    proxy: &RunningProxy,
    request: Request<TestUpload>,
) -> ReceivedRequest {
    up.script_next([answer("200 OK", "", "{}")]);
    let got = proxy.client().send(request).await;
    assert_eq!(got.status, 200, "{}", got.text());
    up.requests(count).await.pop().unwrap()
}

#[tokio::test]
async fn a_model_in_json_finds_its_provider_and_only_its_name_is_edited() {
    let (up, _default, proxy) = two_providers().await;
    let client = proxy.client();
    let mut count = 0;
    for (path, kind) in [
        ("/v1/embeddings", "application/json"),
        ("/v1/completions?a=b%20c", "application/json; charset=utf-8"),
        ("/v1/responses/compact", ""),
        ("/up/v1/moderations", "application/json"),
    ] {
        for (named, sent) in [("up\\/org/m", "org/m"), ("named", "named")] {
            count += 1;
            let body = VECTORS.replacen("NAME", named, 1);
            let seen = sent_on(&up, count, &proxy, post(&client, path, kind, body)).await;
            let expected = VECTORS.replacen("NAME", sent, 1);
            assert_eq!(String::from_utf8(seen.body).unwrap(), expected);
            let (_, path) = path.split_once("v1").unwrap();
            assert_eq!(seen.line, format!("POST /v1{path} HTTP/1.1"));
            let length = expected.len().to_string();
            let told = seen
                .headers
                .iter()
                .find(|(name, _)| name == "content-length");
            assert_eq!(told.map(|(_, length)| length), Some(&length));
        }
    }
}

#[tokio::test]
async fn json_without_a_model_goes_to_the_default_unchanged() {
    let (up, default, proxy) = two_providers().await;
    let client = proxy.client();
    let bodies = [
        "{\"input\":1}",
        "{\"model\":",
        "[ ]",
        "{\"model\":7}",
        "no json",
    ];
    for (count, body) in bodies.into_iter().enumerate() {
        let request = post(&client, "/v1/embeddings", "application/json", body);
        let seen = sent_on(&default, count + 1, &proxy, request).await;
        assert_eq!(seen.body, body.as_bytes());
    }
    let mut request = post(&client, "/v1/embeddings", "application/json", "{}");
    let name = "up".parse().unwrap();
    request.headers_mut().insert("x-plimsoll-provider", name);
    assert_eq!(sent_on(&up, 1, &proxy, request).await.body, b"{}");
    let nobody = post(
        &client,
        "/nobody/v1/embeddings",
        "application/json",
        "{\"model\":\"m\"}",
    );
    let got = client.send(nobody).await;
    got.is_error(404, "provider_not_found");
}

#[tokio::test]
async fn a_model_in_the_query_finds_its_provider() {
    let (up, _default, proxy) = two_providers().await;
    let request = proxy
        .client()
        .request(Method::GET, "/v1/realtime?x=%41&model=up%2Fa%20b&model2=c");
    let seen = sent_on(&up, 1, &proxy, request.body(full_body("")).unwrap()).await;
    assert_eq!(
        seen.line,
        "GET /v1/realtime?x=%41&model=a+b&model2=c HTTP/1.1"
    );
}

fn form(parts: &[(&str, &str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, more, value) in parts {
        let head =
            format!("--bnd\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n");
        body.extend(head.bytes());
        body.extend(*value);
        body.extend(b"\r\n");
    }
    body.extend(b"--bnd--\r\n");
    body
}

const FORM: &str = "multipart/form-data; boundary=bnd";

#[tokio::test]
async fn a_form_is_forwarded_unread_to_the_provider_that_is_named_beside_it() {
    let (up, default, proxy) = two_providers().await;
    let client = proxy.client();
    let audio: Vec<u8> = (0..100_000u32).map(|n| (n * 7 % 251) as u8).collect();
    let whole = form(&[("model", "", b"up/whisper"), ("file", "", &audio)]);
    let path = "/v1/audio/transcriptions";
    let request = post(&client, path, FORM, whole.clone());
    let seen = sent_on(&default, 1, &proxy, request).await;
    assert!(seen.body == whole);
    let length = whole.len().to_string();
    assert_eq!(seen.header("content-length"), Some(&*length));
    assert_eq!(seen.header("content-type"), Some(FORM));
    for (count, (path, sent)) in [
        ("/up/v1/audio/transcriptions", "/v1/audio/transcriptions"),
        (
            "/v1/audio/transcriptions?model=up/whisper",
            "/v1/audio/transcriptions?model=whisper",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let parts = whole.chunks(30_000).map(Bytes::copy_from_slice);
        let request = client
            .request(Method::POST, path)
            .header("content-type", FORM);
        let request = request.body(chunked_body(parts)).unwrap();
        let seen = sent_on(&up, count + 1, &proxy, request).await;
        assert_eq!(seen.line, format!("POST {sent} HTTP/1.1"));
        assert!(seen.body == whole, "{path}");
    }
    let mut request = post(&client, path, FORM, whole.clone());
    let name = "up".parse().unwrap();
    request.headers_mut().insert("x-plimsoll-provider", name);
    assert!(sent_on(&up, 3, &proxy, request).await.body == whole);
    let cut = &whole[..40];
    let request = post(&client, "/v1/files", FORM, cut.to_vec());
    assert!(sent_on(&default, 2, &proxy, request).await.body == cut);
}

#[tokio::test]
async fn answers_of_forwarded_paths_are_unchanged() {
    let (up, _default, proxy) = two_providers().await;
    let client = proxy.client();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"{\"data\":[]}").unwrap();
    let gzip = gzip.finish().unwrap();
    let audio: Vec<u8> = (0..100_000u32).map(|n| (n * 31 % 256) as u8).collect();
    let get = |method: Method| {
        let request = client
            .request(method, "/up/v1/files/a%2Fb?c=%2f&c=2")
            .header("accept-encoding", "gzip");
        request.body(full_body("")).unwrap()
    };
    let headers = "content-encoding: gzip\r\nx-many: 1\r\nx-many: 2\r\n";
    up.script_next([answer("200 OK", headers, &gzip)]);
    let got = client.send(get(Method::GET)).await;
    assert_eq!(got.body, gzip);
    assert_eq!(got.headers["content-encoding"], "gzip");
    assert_eq!(got.headers.get_all("x-many").iter().count(), 2);
    let seen = up.request().await;
    assert_eq!(seen.line, "GET /v1/files/a%2Fb?c=%2f&c=2 HTTP/1.1");

    up.script_next([answer("206 Partial Content", "", &audio)]);
    let got = client.send(get(Method::GET)).await;
    assert_eq!((got.status.as_u16(), got.body), (206, audio.into()));

    up.script_next([send_bytes(
        "HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n",
    )]);
    let got = client.send(get(Method::HEAD)).await;
    assert_eq!(got.headers["content-length"], "12345");
    assert!(got.body.is_empty());

    for status in ["204 No Content", "304 Not Modified"] {
        let head = format!("HTTP/1.1 {status}\r\netag: \"e\"\r\n\r\n");
        up.script_next([send_bytes(head)]);
        let got = client.send(get(Method::DELETE)).await;
        assert!(status.starts_with(got.status.as_str()) && got.body.is_empty());
        assert_eq!(got.headers["etag"], "\"e\"");
    }

    let early = send_bytes("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    up.script_next([early, answer("418 I'm a teapot", "retry-after: 7\r\n", "")]);
    let got = client.send(get(Method::GET)).await;
    assert_eq!(got.status, 418);
    assert_eq!(got.headers["retry-after"], "7");
    assert!(!got.headers.contains_key("link"));
}

#[tokio::test]
async fn events_of_other_apis_pass_one_by_one() {
    let (up, _default, proxy) = two_providers().await;
    let client = proxy.client();
    let first = "event: image_generation.partial_image\ndata: {\"x\":1}\n\n";
    up.script_next([
        stream_head(),
        send_bytes(first),
        ProviderStep::Stall,
        send_bytes("data: 2\n\n"),
    ]);
    let ask = r#"{"model":"up/m","stream":true,"input":"x"}"#;
    let request = post(&client, "/v1/images/generations", "application/json", ask);
    let mut body = client.begin(request).await.into_body();
    assert_eq!(next(&mut body).await, first);
    up.release_stalled();
    assert_eq!(next(&mut body).await, "data: 2\n\n");
    // Its connection ends without an error of the proxy.
    up.requests(1).await;
}

#[tokio::test]
async fn an_overlong_model_name_is_refused() {
    let (_, one, proxy) = two_providers().await;
    let client = proxy.client();
    let name = "m".repeat(1_025);
    for path in ["/v1/chat/completions", "/v1/embeddings"] {
        let body = format!(r#"{{"model":"{name}","messages":[]}}"#);
        let got = client
            .send(post(&client, path, "application/json", body))
            .await;
        got.is_error(404, "model_not_found");
        assert!(got.body.len() < 500);
    }
    assert_eq!(one.count_requests(), 0);
}

/// Codex reads a list of its own form, and prints an error where it gets another one.
#[tokio::test]
async fn codex_gets_a_list_of_models_in_its_form() {
    let (_up, default, proxy) = two_providers().await;
    let client = proxy.client();
    let ask = async || {
        let request = client
            .request(Method::GET, "/v1/models?client_version=0.160.0")
            .header("accept-encoding", "gzip");
        client.send(request.body(full_body("")).unwrap()).await
    };
    let own = r#"{"models": [{"slug": "gpt-6.2-sol"}]}"#;
    default.script_next([answer("200 OK", "etag: \"e\"\r\n", own)]);
    let got = ask().await;
    assert_eq!((got.status.as_u16(), got.text()), (200, own));
    assert_eq!(got.headers["etag"], "\"e\"");
    let seen = default.last_request();
    assert_eq!(seen.line, "GET /v1/models?client_version=0.160.0 HTTP/1.1");
    assert_eq!(seen.header("accept-encoding"), Some("identity"));
    for (status, body) in [
        ("200 OK", r#"{"object":"list","data":[]}"#),
        ("200 OK", "<html>"),
        ("404 Not Found", "{}"),
        ("401 Unauthorized", "{}"),
    ] {
        default.script_next([answer(status, "", body)]);
        let got = ask().await;
        assert_eq!((got.status.as_u16(), got.text()), (200, r#"{"models":[]}"#));
    }
    // Everyone else gets the proxy's list.
    let got = client.get("/v1/models").await;
    assert_eq!(got.json()["object"], "list");
}
