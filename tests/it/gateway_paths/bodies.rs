//! Large, slow and compressed bodies of forwarded requests, and trailers.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use super::*;
use crate::support::{ProxyBuilder, within_time};

#[tokio::test]
async fn a_large_upload_is_not_buffered() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().set(|config| {
        config.server.max_bytes_in_flight = 256 << 10;
        config.server.max_body_bytes = 128 << 10;
    });
    let proxy = proxy.start().await;
    let begin = form(&[("purpose", "", b"batch")]);
    let begin = Bytes::copy_from_slice(&begin[..begin.len() - 9]);
    let mut parts = vec![begin];
    parts.extend(std::iter::repeat_n(Bytes::from(vec![b'x'; 1 << 16]), 1_600));
    let length: usize = parts.iter().map(Bytes::len).sum();
    let request = proxy
        .client()
        .request(Method::POST, "/v1/files")
        .header("content-type", FORM);
    let seen = sent_on(&up, 1, &proxy, request.body(chunked_body(parts)).unwrap()).await;
    assert!(length > 100_000_000 && seen.body.len() == length);
}

#[tokio::test]
async fn an_upload_waits_for_a_provider_that_does_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let up = ScriptedProvider::start().await;
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let proxy = up.proxy().providers(move |provider| {
        if provider.base_url.is_some() {
            provider.base_url = Some(url.clone());
        }
    });
    let proxy = proxy.start().await;
    let taken = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&taken);
    let piece = Bytes::from(vec![b'x'; 1 << 16]);
    let frames = stream::iter(0..4_000).map(move |_| {
        counted.fetch_add(1 << 16, SeqCst);
        Ok::<_, Infallible>(Frame::data(piece.clone()))
    });
    let client = proxy.client();
    let request = client.request(Method::PUT, "/v1/files");
    let request = request
        .body(StreamBody::new(frames).boxed_unsync())
        .unwrap();
    let silent = async {
        let (_connection, _) = within_time(listener.accept()).await.unwrap();
        let mut before = 0;
        // Until the socket accepts nothing more; the rest is in kernel buffers.
        within_time(async {
            loop {
                let now = taken.load(SeqCst);
                if now == before && now > 0 {
                    return now;
                }
                before = now;
                let _ = timeout(Duration::from_millis(300), std::future::pending::<()>()).await;
            }
        })
        .await
    };
    let taken = tokio::select! {
        taken = silent => taken,
        _ = client.begin(request) => unreachable!("the provider says nothing"),
    };
    assert!(taken < 100_000_000, "{taken} bytes were taken of 262 MB");
}

#[tokio::test]
async fn trailers_reach_a_client_that_reads_them() {
    let (up, _default, proxy) = two_providers().await;
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, x-plimsoll-fake\r\n\r\n\
                  2\r\nhi\r\n0\r\nx-sum: 7\r\nx-plimsoll-fake: 1\r\nset-cookie: a=b\r\n\r\n";
    for client in [proxy.client(), proxy.client_h2()] {
        up.script_next([send_bytes(answer)]);
        let request = client
            .request(Method::GET, "/up/v1/files")
            .header("te", "trailers");
        let got = client.send_with(request, "").await;
        assert_eq!(got.text(), "hi");
        let trailers = got.trailers.unwrap();
        assert_eq!(
            (trailers.len(), &trailers["x-sum"]),
            (1, &"7".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn trailers_of_a_request_go_no_further() {
    let (up, _default, proxy) = two_providers().await;
    up.script_next([answer("200 OK", "", "{}")]);
    let mut stream = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
    let request = "PUT /up/v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\
                   trailer: authorization\r\nconnection: close\r\n\r\n\
                   2\r\nhi\r\n0\r\nauthorization: Bearer sk-secret\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within_time(stream.read_to_string(&mut answer))
        .await
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let seen = up.request().await;
    assert_eq!(seen.body, b"hi");
    assert!(!format!("{seen:?}").contains("sk-secret"));
}

#[tokio::test]
async fn a_compressed_body_is_forwarded_unchanged() {
    let (_up, default, proxy) = two_providers().await;
    let client = proxy.client();
    let body = b"\x1f\x8bnot looked at".to_vec();
    let mut request = post(&client, "/v1/embeddings", "application/json", body.clone());
    let gzip = "gzip".parse().unwrap();
    request.headers_mut().insert("content-encoding", gzip);
    let seen = sent_on(&default, 1, &proxy, request).await;
    assert_eq!(seen.body, body);
    assert!(
        seen.headers
            .contains(&("content-encoding".into(), "gzip".into()))
    );
}

#[tokio::test]
async fn a_compressed_body_finds_the_provider_of_its_model() {
    let one = ScriptedProvider::start().await;
    let two = ScriptedProvider::start().await;
    let proxy = ProxyBuilder::new()
        .provider("one", &one)
        .provider("two", &two);
    let proxy = proxy.set(|config| config.default_provider = Some("one".into()));
    let proxy = proxy.start().await;
    let client = proxy.client();
    let plain = r#"{"model":"two/e","input":"x"}"#;
    let packed = zstd::encode_all(plain.as_bytes(), 1).unwrap();
    two.script_next([answer("200 OK", "", "{}")]);
    let mut request = post(&client, "/v1/embeddings", "application/json", packed);
    let encoding = "zstd".parse().unwrap();
    request.headers_mut().insert("content-encoding", encoding);
    assert_eq!(client.send(request).await.status, 200);
    let seen = two.request().await;
    assert_eq!(seen.body, br#"{"model":"e","input":"x"}"#);
    assert_eq!(seen.header("content-encoding"), None);
    assert_eq!(one.count_requests(), 0);
}
